"""A group that a plan gets wrong is refused with its place named, before anything runs."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from plancc_examples import tiny_manifest
from plancc_group_plans import group_plan, stage

from plancc.ir.legality import plan_problems
from plancc.ir.plan import Plan

Data = dict[str, Any]
REPLICATED = [stage((0, 6), "cpu0", "cpu1", tiles=(10,), mixer="replicated")]
OWNED = [stage((0, 6), "cpu0", "cpu1", tiles=(10,), mixer="owned")]


def problems_after(stages: list[Any], edit: Callable[[Data], object]) -> tuple[str, ...]:
    data = copy.deepcopy(group_plan(tiny_manifest(), stages).data())
    edit(data)
    return plan_problems(Plan.model_validate(data))


def program(data: Data, rank: int) -> list[Data]:
    found: list[Data] = data["programs"][rank]["instructions"]
    return found


def at(data: Data, rank: int, **wanted: Any) -> int:
    """Index of the first instruction with these values."""
    items = enumerate(program(data, rank))
    return next(i for i, item in items if wanted.items() <= item.items())


def swap_first_layers(data: Data) -> None:
    """Rank 1 exchanges layer 1's rows as layer 0's."""
    for item in program(data, 1):
        if item["op"] == "exchange" and item["layer"] in (0, 1):
            item["layer"] = 1 - item["layer"]


def partial_link(data: Data) -> Data:
    link: Data = next(link for link in data["links"] if link["payload"] == "partial")
    return link


def with_mlp(**fields: Any) -> Callable[[Data], None]:
    def edit(data: Data) -> None:
        (row,) = data["model"]["layers"]
        layers = [copy.deepcopy(row["pattern"][0]) for _ in range(row["repeat"])]
        layers[3]["mlp"] |= fields
        data["model"]["layers"] = layers

    return edit


def with_experts(data: Data) -> None:
    with_mlp()(data)
    data["model"]["layers"][3]["mlp"] = {
        "kind": "moe", "num_experts": 4, "experts_per_token": 2, "expert_bytes": 100
    }  # fmt: skip


SHAPE = {
    "a gap between shares": (
        lambda d: d["stages"][0]["ranks"][1].update(mlp_tiles=[11, 16]), "ranks.mlp_tiles"
    ),
    "an empty share": (
        lambda d: (d["stages"][0]["ranks"][0].update(mlp_tiles=[0, 0]),
                   d["stages"][0]["ranks"][1].update(mlp_tiles=[0, 16])), "ranks.mlp_tiles"
    ),
    "shares out of rank order": (lambda d: d["stages"][0]["ranks"].reverse(), "ranks.mlp_tiles"),
    "two ranks and one mixer": (lambda d: d["stages"][0].update(mixer="single"), "stage[0].mixer"),
    "layers of different tiles": (with_mlp(tiles=8), "layers of a group have the same tiles"),
    "experts in a group": (with_experts, "layer 3 is in a group of 2: expected a dense MLP"),
    "fewer tiles than ranks": (with_mlp(tiles=1), "has 1 tile(s), fewer than ranks"),
    "an MLP of bytes only": (
        with_mlp(intermediate_size=None), "layer 3 is in a group of 2: its MLP has no intermediate"
    ),
}  # fmt: skip
LINKS = {
    "a narrower partial row": (
        lambda d: partial_link(d).update(bytes_per_row=256), "bytes_per_row: expected 512"
    ),
    "a pair without a link": (
        lambda d: partial_link(d).update(payload="hidden", bytes_per_row=256),
        "expected 1 of partial rows from rank 0 to 1, found 0",
    ),
    "an exchange of fewer ranks": (
        lambda d: program(d, 0)[at(d, 0, op="exchange")].update(ranks=[0]), "an exchange of ranks"
    ),
    "an exchange left out": (
        lambda d: program(d, 0).pop(at(d, 0, op="exchange")), "found partial rows of layer 0"
    ),
    "an exchange of one rank alone": (
        lambda d: program(d, 1).pop(at(d, 1, op="exchange", layer=5)), "waits for ever"
    ),
    "a rank that exchanges another layer": (swap_first_layers, "needs partial rows of layer 1"),
    "two layers in one run": (
        lambda d: program(d, 0)[at(d, 0, op="run", layers=[0, 1])].update(layers=[0, 2]),
        "exchanged one by one",
    ),
    "a part where every rank has the mixer": (
        lambda d: program(d, 0)[at(d, 0, op="run", layers=[0, 1])].update(part="mlp"),
        "a run of part mlp in a stage whose mixer is replicated",
    ),
    "partial rows sent by hand": (
        lambda d: program(d, 0).insert(
            at(d, 0, op="exchange"), {"op": "send", "link": d["links"].index(partial_link(d))}
        ),
        "sends rows, found partial rows",
    ),
}  # fmt: skip
OWNERS = {
    "a mixer on a rank that holds none": (
        lambda d: program(d, 1)[at(d, 1, op="run")].update(part="mixer"), "lies on rank 0"
    ),
    "normed rows never sent": (
        lambda d: program(d, 0).pop(at(d, 0, op="send", link=0)), "waits for ever"
    ),
    "a share before its rows": (
        lambda d: program(d, 1).insert(1, program(d, 1)[2] | {"segment": 0}),
        "expected segments 0, 1",
    ),
    "an owner that skips its share": (
        lambda d: program(d, 0)[at(d, 0, op="run", part="mlp")].update(part="mixer"),
        "needs the rows after layer",
    ),
    "a rank that goes on after its partial rows left": (
        lambda d: program(d, 1).append(
            {"op": "run", "segment": 6, "layers": [5, 6], "part": "mlp"}
        ),
        "needs its normed rows, found no rows",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPE)
@pytest.mark.parametrize("stages", [REPLICATED, OWNED], ids=["replicated", "owned"])
def test_a_share_that_cannot_be_is_refused(name: str, stages: list[Any]) -> None:
    edit, found = SHAPE[name]
    problems = problems_after(stages, edit)
    assert any(found in problem for problem in problems), problems


@pytest.mark.parametrize("name", LINKS)
def test_an_exchange_that_would_hang_or_mix_rows_is_refused(name: str) -> None:
    edit, found = LINKS[name]
    problems = problems_after(REPLICATED, edit)
    assert any(found in problem for problem in problems), problems


@pytest.mark.parametrize("name", OWNERS)
def test_an_owner_and_its_ranks_must_agree(name: str) -> None:
    edit, found = OWNERS[name]
    problems = problems_after(OWNED, edit)
    assert any(found in problem for problem in problems), problems


@pytest.mark.parametrize(("heads", "kv_heads"), [(5, 1), (25, 5), (40, 4), (52, 2), (9, 3)])
@pytest.mark.parametrize("ranks", [2, 3, 5, 6, 7, 8])
def test_head_counts_never_limit_a_group(heads: int, kv_heads: int, ranks: int) -> None:
    manifest = tiny_manifest()
    mixer = manifest.layers[0].mixer.model_copy(
        update={"num_heads": heads, "num_kv_heads": kv_heads}
    )
    layer = manifest.layers[0].model_copy(update={"mixer": mixer})
    odd = manifest.model_copy(update={"layers": (layer,) * 6})
    borders = tuple(-(-16 * rank // ranks) for rank in range(1, ranks))
    names = [f"cpu{rank}" for rank in range(ranks)]
    for mode in ("replicated", "owned"):
        plan = group_plan(odd, [stage((0, 6), *names, tiles=borders, mixer=mode)])  # type: ignore[arg-type]
        assert plan_problems(plan) == ()
