"""`plancc check` accepts what was compiled and names what an edit made wrong, digest or not."""

import copy
from typing import Any

import pytest
from plancc_builders import build_layer, build_manifest, build_model, llama_8b
from plancc_edits import Edit, both, more, put, single_edits
from plancc_examples import three_devices, tiny_ask, tiny_manifest, tiny_plan
from plancc_hand_plans import restamp
from pydantic import ValidationError

from plancc.compiler.api import compile
from plancc.compiler.check import check_plan
from plancc.ir.plan import Plan

ASKS: dict[str, dict[str, Any]] = {
    "default": {},
    "one device": {"devices": ("d2",)},
    "head first": {"head": "first"},
    "pinned cut": {"devices": ("d0", "d1"), "stage_layers": (3, 3), "head": "last"},
    "three stages": {"devices": ("d2", "d0", "d1"), "stage_layers": (2, 2, 2)},
    "two slots": {"slots": 2},
    "half cache": {"kv_dtype": "float16"},
    "own workers": {"workers": "device"},
    "throughput": {"objective": "throughput", "slots": 3},
    "prefill": {"objective": "prefill", "prompt": 50},
    "context": {"objective": "context"},
    "seats": {"devices": ("d2", "d2"), "stage_layers": (2, 4)},
}


@pytest.mark.parametrize("name", ASKS)
def test_what_was_compiled_is_sound(name: str) -> None:
    plan = tiny_plan(**ASKS[name])
    assert check_plan(plan, tiny_manifest(), three_devices()) == ()


def move_a_byte(data: dict[str, Any]) -> None:
    """Sums stay right, parts do not."""
    ledger = data["devices"][0]["ledger"]
    ledger["weights"] -= 1
    ledger["kv"] += 1


def move_a_layer(data: dict[str, Any]) -> None:
    """Stages and programs agree; bytes and times are those of the other cut."""
    for stage in (0, 1):
        first, end = data["stages"][stage]["layers"]
        moved = [first, end - 1] if stage == 0 else [first - 1, end]
        data["stages"][stage]["layers"] = moved
        for item in data["programs"][stage]["instructions"]:
            if item["op"] == "run":
                item["layers"] = moved


def swap_devices(data: dict[str, Any]) -> None:
    for stage, device in ((0, "d1"), (1, "d0")):
        data["stages"][stage]["ranks"][0]["device"] = device
        data["programs"][stage]["device"] = device


# name -> (edit of the plan with stages d0 | d1 and three layers each, what must be said)
EDITS: dict[str, tuple[Edit, str]] = {
    "a gap": (put("stages", 0, "layers", value=[0, 2]), "stages: layers 2 are in no stage"),
    "an overlap": (put("stages", 1, "layers", value=[2, 6]), "layers 2 are in stages 0, 1"),
    "a lost end": (put("stages", 1, "layers", value=[3, 5]), "layers 5 are in no stage"),
    "stages out of order": (
        both(put("stages", 0, "layers", value=[3, 6]), put("stages", 1, "layers", value=[0, 3])),
        "stage[1].layers: expected layers after 5",
    ),
    "a layer moved": (move_a_layer, "device d0 ledger.weights"),
    "devices swapped": (swap_devices, "device d0 ledger.blocks"),
    "a device of no topology": (
        both(
            put("stages", 1, "ranks", 0, "device", value="d7"),
            put("devices", 1, "name", value="d7"),
        ),
        "stage[1].ranks[0].device: d7 is not in topology three",
    ),
    "a byte moved": (move_a_byte, "device d0 ledger.kv"),
    "less kv": (put("devices", 0, "ledger", "kv", value=more(-64)), "device d0 ledger.kv"),
    "less overhead": (
        put("devices", 1, "ledger", "overhead", value=0),
        "device d1 ledger.overhead: recomputed 10240",
    ),
    "a larger budget": (
        put("devices", 0, "budget_bytes", value=more(4096)),
        "device d0 budget_bytes: the topology",
    ),
    "no reserve": (put("devices", 1, "reserve_bytes", value=0), "device d1 reserve_bytes"),
    "another host": (put("devices", 0, "host", value="h9"), "device d0 host"),
    "another kind": (put("devices", 0, "kind", value="toaster"), "device d0 kind"),
    "another card": (put("devices", 0, "uuid", value="GPU-9"), "device d0 uuid"),
    "a faster step": (
        put("predicted", "decode", "step_ns", value=more(-1)),
        "predicted.decode.step_ns: recomputed",
    ),
    "a faster rate": (
        put("predicted", "decode", "tokens_per_s", value=lambda r: r * 2),
        "decode.tokens_per_s",
    ),
    "a faster stage": (
        put("predicted", "decode", "stages", 0, "compute_ns", value=more(-5)),
        "predicted.decode.stages[0].compute_ns",
    ),
    "a faster hop": (
        put("predicted", "decode", "stages", 0, "hop_ns", value=0),
        "predicted.decode.stages[0].hop_ns",
    ),
    "a faster prompt": (
        put("predicted", "prefill", "total_ns", value=more(-1)),
        "predicted.prefill.total_ns",
    ),
    "a longer prompt": (
        put("predicted", "prefill", "prompt", value=65),
        "predicted.prefill.prompt",
    ),
    "no prefill": (put("predicted", "prefill", value=None), "predicted.prefill: expected one"),
    "another value": (
        put("provenance", "solver", "value", value=more(7)),
        "provenance.solver.value: recomputed",
    ),
    "another objective": (
        put("provenance", "solver", "objective", value="prefill"),
        "provenance.solver.objective",
    ),
    "a hidden gap": (
        put("provenance", "solver", "bound", value=more(-9)),
        "provenance.solver.status: optimal, but",
    ),
    "a gap nobody accepted": (
        put("provenance", "solver", "status", value="feasible"),
        "--accept-gap was not asked",
    ),
    "a better best": (
        put("provenance", "solver", "best", value=lambda v: v // 2),
        "provenance.solver.value: at most",
    ),
    "a link from elsewhere": (put("links", 0, "from", value=1), "links[0]"),
    "another transport": (
        put("links", 0, "transport", value="p2p"),
        "links[0].transport: expected staged",
    ),
    "a narrower link": (put("links", 0, "bytes_per_row", value=128), "links[0].bytes_per_row"),
    "an instruction lost": (
        lambda data: data["programs"][0]["instructions"].pop(),
        "programs[1].instructions",
    ),
    "a segment that skips a layer": (
        put("programs", 0, "instructions", 1, "layers", value=[0, 2]),
        "programs[1]",
    ),
    "more pages": (put("runtime", "pages", value=more(1)), "runtime.pages"),
    "a longer context": (put("runtime", "context", value=80), "runtime.context: 64 was asked"),
    "another cache": (put("runtime", "kv_dtype", value="float16"), "runtime.kv_dtype"),
    "another kernel": (put("runtime", "kernels", "head", value="blas/1"), "runtime.kernels"),
    "another address": (
        put("runtime", "hosts", 0, "address", value="10.0.0.1"),
        "runtime.hosts h0: the topology",
    ),
    "worker threads": (
        put("runtime", "workers", 0, "threads", value=8),
        "runtime.workers: expected",
    ),
    "another manifest": (
        put("inputs", "model", "sha256", value="0" * 64),
        "inputs.model.sha256: the file has",
    ),
    "another topology": (
        put("inputs", "topology", "sha256", value="0" * 64),
        "inputs.topology.sha256",
    ),
    "other weights": (put("weights", "sha256", value="0" * 64), "weights.sha256: the manifest's"),
    "no weights": (put("weights", value=None), "weights: the manifest has an index"),
    "weights elsewhere": (put("weights", "source", value="other"), "weights.source"),
    "a lighter model": (
        put("model", "blocks", 0, "weight_bytes", value=1),
        "model: blocks differ from the manifest",
    ),
    "an ask that was not honoured": (
        put("ask", "stage_layers", value=[2, 4]),
        "stages: --stage-layers 2,4 was asked, found 3,3",
    ),
    "a pin that was not": (
        put("ask", "pin", value={"embed": "d1"}),
        "stage[0].blocks: embed is pinned to d1, found on d0",
    ),
    "fewer devices asked": (
        put("ask", "max_devices", value=1),
        "--max-devices 1 was asked, found 2",
    ),
    "other devices asked": (put("ask", "devices", value=["d1", "d2"]), "--devices d1,d2 was asked"),
    "a head asked first": (
        put("ask", "head", value="first"),
        "head must lie in the first stage, found in stage 1",
    ),
    "a block left out": (
        put("ask", "without", value=["head"]),
        "block head is not of the model, or",
    ),
}


def edited(edit: Edit) -> Plan:
    data = copy.deepcopy(tiny_plan(**ASKS["pinned cut"]).data())
    edit(data)
    return Plan.model_validate(data)


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_with_its_digest_recomputed_is_named(name: str) -> None:
    edit, expected = EDITS[name]
    problems = check_plan(restamp(edited(edit)), tiny_manifest(), three_devices())
    assert any(expected in problem for problem in problems), problems
    assert not any("plan was edited" in problem for problem in problems)


@pytest.mark.parametrize("name", list(EDITS)[:5])
def test_an_edit_as_it_was_saved_is_told_by_its_digest_too(name: str) -> None:
    plan = edited(EDITS[name][0])
    problems = check_plan(plan, tiny_manifest(), three_devices())
    said = (
        f"digest: plan was edited: digest says {plan.digest}, content is {plan.computed_digest()}"
    )
    assert problems[0] == said
    assert len(problems) > 1


# What a plan says that its files cannot contradict: by whom and how it was decided, how long to
# wait, and flags that this plan honours with another value as well.
FREE = {
    ("provenance", "plancc"),
    ("provenance", "solver", "name"),
    ("provenance", "solver", "version"),
    ("provenance", "solver", "space"),
    ("ask", "tp"),
    ("ask", "margin"),
    ("ask", "accept_gap"),
}


def test_no_other_value_of_a_plan_can_be_changed_unnoticed() -> None:
    manifest, topology = tiny_manifest(), three_devices()
    data = tiny_plan(**ASKS["pinned cut"]).data()
    data["alternatives"] = []
    unnoticed = set()
    for path, other in single_edits(data):
        try:
            plan = Plan.model_validate(other)
        except ValidationError:
            continue
        if path[:2] != ("runtime", "timeouts") and not check_plan(
            restamp(plan), manifest, topology
        ):
            unnoticed.add(path)
    assert unnoticed == FREE


@pytest.mark.parametrize("moved", [("bound",), ("best_bound",), ("bound", "best_bound")])
def test_a_gap_that_was_accepted_and_told_is_sound(moved: tuple[str, ...]) -> None:
    def edit(data: dict[str, Any]) -> None:
        proof = data["provenance"]["solver"]
        for name in moved:
            proof[name] -= 1000
        proof |= {"status": "feasible", "gap": round(1000 / proof["value"], 6)}
        data["ask"]["accept_gap"] = True

    assert check_plan(restamp(edited(edit)), tiny_manifest(), three_devices()) == ()


def test_a_plan_of_another_model_is_refused_without_sums() -> None:
    problems = check_plan(tiny_plan(), build_manifest(llama_8b()), three_devices())
    assert any(problem.startswith("model: name,") for problem in problems)
    assert not any("ledger" in problem for problem in problems)


def test_a_model_of_bytes_alone_is_checked_as_well() -> None:
    layers = [build_layer(50_000, kv=32, mlp_bytes=30_000, workspace=100) for _ in range(5)]
    model = build_manifest(build_model(layers, embed=1000, head=2000, max_context=128))
    topology = three_devices()
    plan = compile(model, topology, tiny_ask())
    assert plan.weights is None
    assert check_plan(plan, model, topology) == ()
