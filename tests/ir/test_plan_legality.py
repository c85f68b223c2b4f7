"""A plan that contradicts itself is refused, naming what is wrong: by the compiler and planrun."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from plancc_hand_plans import hand_data, hand_plan

from plancc.ir.legality import coverage_problems, plan_problems
from plancc.ir.plan import Plan, Stage, StageRank

Edit = Callable[[dict[str, Any]], None]


def problems_after(edit: Edit, **options: Any) -> tuple[str, ...]:
    data = copy.deepcopy(hand_data(**options))
    edit(data)
    return plan_problems(Plan.model_validate(data))


def stages(*ranges: tuple[int, int]) -> list[Stage]:
    rank = StageRank(device="d0", mlp_tiles=(0, 1))
    return [Stage(layers=layers, ranks=(rank,)) for layers in ranges]


@pytest.mark.parametrize("head", ["first", "last"])
@pytest.mark.parametrize("cuts", [(10,), (4, 10), (3, 6, 10), (1, 2, 3, 4)])
def test_plans_by_hand_are_sound(cuts: tuple[int, ...], head: str) -> None:
    assert plan_problems(hand_plan(cuts, head=head)) == ()


@pytest.mark.parametrize(
    ("ranges", "found"),
    [
        (((0, 3), (3, 6), (8, 10)), "layers 6..7 are in no stage"),
        (((0, 6), (5, 10)), "layers 5 are in stages 0, 1"),
        (((5, 10), (0, 5)), "stage[1].layers: expected layers after 9, found [0, 5)"),
        (((0, 3), (3, 6), (3, 6), (6, 10)), "layers 3..5 are in stages 1, 2"),
        (((0, 10), (10, 10)), "stage[1].layers: expected at least one layer, found [10, 10)"),
        (((0, 5), (5, 12)), "stage[1].layers: the model ends at 10, found [5, 12)"),
        ((), "layers 0..9 are in no stage"),
        (((1, 4), (4, 8)), "layers 0, 8..9 are in no stage"),
    ],
)
def test_layers_that_are_lost_repeated_or_out_of_order_are_named(
    ranges: tuple[tuple[int, int], ...], found: str
) -> None:
    assert any(found in problem for problem in coverage_problems(stages(*ranges), 10))


@pytest.mark.parametrize("cut", range(1, 10))
def test_every_contiguous_cut_covers(cut: int) -> None:
    assert list(coverage_problems(stages((0, cut), (cut, 10)), 10)) == []


def put(*path: Any, value: Any) -> Edit:
    """An edit that sets one value of the document."""

    def edit(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return edit


def drop(*path: Any) -> Edit:
    def edit(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data[key]
        del data[path[-1]]

    return edit


EDITS: dict[str, tuple[Edit, str]] = {
    "another device": (put("stages", 1, "ranks", 0, "device", value="d9"), "stage[1].ranks[0].dev"),
    "a stage without mixer mode": (put("stages", 1, "mixer", value="owned"), "stage[1].mixer"),
    "tiles left out": (put("stages", 0, "ranks", 0, "mlp_tiles", value=[0, 0]), "mlp_tiles"),
    "a block in no stage": (put("stages", 2, "blocks", value=[]), "block head is in no stage"),
    "a block twice": (put("stages", 2, "blocks", value=["head", "embed"]), "embed is in 2 stages"),
    "a block nobody knows": (put("stages", 1, "blocks", value=["eye"]), "block eye is not of"),
    "embed away from the start": (
        lambda d: (put("stages", 0, "blocks", value=[])(d),
                   put("stages", 1, "blocks", value=["embed"])(d))[0],
        "stage[1].blocks: embed",
    ),
    "head in the middle": (
        lambda d: (put("stages", 2, "blocks", value=[])(d),
                   put("stages", 1, "blocks", value=["head"])(d))[0],
        "stage[1].blocks: head",
    ),
    "a device that nothing uses": (
        lambda d: d["devices"].append({**d["devices"][0], "name": "d7"}), "device d7: no stage"
    ),
    "a total that is no sum": (
        put("devices", 1, "ledger", "total", value=999), "device d1 ledger.total: the parts add"
    ),
    "free that is no rest": (put("devices", 1, "ledger", "free_after", value=1), "free_after"),
    "a device over its budget": (put("devices", 2, "budget_bytes", value=900), "100 short"),
    "a device in no worker": (drop("runtime", "workers", 1), "device d1 is in 0 workers"),
    "a worker of another host": (put("runtime", "workers", 1, "host", value="h1"), "workers[1]"),
    "a host without address": (put("runtime", "hosts", value=[]), "no address of host h0"),
    "two workers of one name": (
        put("runtime", "workers", 1, "name", value="h0.w0"), "runtime.workers[0].name"
    ),
    "fewer pages": (put("runtime", "pages", value=7), "runtime.pages: expected 8, found 7"),
    "another page": (put("runtime", "page_tokens", value=32), "runtime.page_tokens"),
    "more slots": (put("runtime", "slots", value=2), "runtime.slots"),
    "another chunk": (put("runtime", "prefill_chunk", value=1), "runtime.prefill_chunk"),
    "another cache dtype": (put("runtime", "kv_dtype", value="float16"), "runtime.kv_dtype"),
    "another dtype": (put("runtime", "dtype", value="float16"), "runtime.dtype"),
    "a kernel of another name": (
        put("runtime", "kernels", "mlp", value="fast/2"), "runtime.kernels"
    ),
    "a longer context": (put("runtime", "context", value=129), "runtime.context"),
    "a shorter context": (put("runtime", "context", value=127), "runtime.context: 128 was asked"),
    "a link to nobody": (put("links", 0, "to", value=9), "links[0]: no two ranks"),
    "a narrower row": (put("links", 0, "bytes_per_row", value=64), "links[0].bytes_per_row"),
    "fewer link slots": (put("links", 0, "slots", value=1), "links[0].slots"),
    "a copy between processes": (put("links", 0, "transport", value="p2p"), "links[0].transport"),
    "a program of another stage": (put("programs", 1, "stage", value=2), "programs[1]"),
    "a program of another device": (put("programs", 1, "device", value="d0"), "programs[1]"),
    "a program lost": (drop("programs", 2), "programs: expected one for each of 3 ranks"),
    "an instruction on no link": (
        put("programs", 0, "instructions", 0, "link", value=9), "no link 9"
    ),
    "a layer skipped": (
        put("programs", 1, "instructions", 2, "layers", value=[4, 6]), "needs the rows after"
    ),
    "a layer of another stage": (
        put("programs", 1, "instructions", 2, "layers", value=[3, 7]), "not of this rank's stage"
    ),
    "a layer left out": (
        put("programs", 1, "instructions", 2, "layers", value=[3, 5]), "found rows after layer 4"
    ),
    "rows never freed": (drop("programs", 1, "instructions", 3), "received and never freed"),
    "rows never sent": (drop("programs", 1, "instructions", 4), "waits for ever"),
    "a step never told": (drop("programs", 2, "instructions", 0), "waits for ever"),
    "a step not awaited": (drop("programs", 0, "instructions", 0), "before it has received"),
    "no sample": (drop("programs", 2, "instructions", -1), "expected one sample, found 0"),
    "a sample elsewhere": (
        lambda d: d["programs"][0]["instructions"].append({"op": "sample"}), "without logits"
    ),
    "no head": (put("programs", 2, "instructions", 3, "head", value=False), "no head has run"),
    "a head elsewhere": (put("programs", 1, "instructions", 2, "head", value=True), "the head"),
    "no embedding": (put("programs", 0, "instructions", 1, "embed", value=False), "found no rows"),
    "an embedding twice": (
        put("programs", 1, "instructions", 2, "embed", value=True), "needs the rows after layer 2"
    ),
    "a send on another's link": (
        put("programs", 0, "instructions", 2, "link", value=1), "link 1 leaves rank 1"
    ),
    "a free of nothing": (
        put("programs", 1, "instructions", 3, "link", value=1), "nothing to free"
    ),
    "an exchange without a group": (
        lambda d: d["programs"][0]["instructions"].insert(
            2, {"op": "exchange", "layer": 1, "ranks": [0, 1]}
        ),
        "is no TP group",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_refused_and_its_place_named(name: str) -> None:
    edit, found = EDITS[name]
    problems = problems_after(edit)
    assert any(found in problem for problem in problems), problems


def test_a_cut_between_a_layer_and_the_kv_it_reads_is_refused() -> None:
    def edit(data: dict[str, Any]) -> None:
        data["model"]["layers"] = [dict(layer) for layer in data["model"]["layers"]]
        data["model"]["layers"][4]["kv_from"] = 2

    problems = problems_after(edit)
    assert problems == (
        "stage[1].layers: layer 4 reads the KV of layer 2, which is in another stage",
    )


def test_ranks_that_wait_for_each_other_are_found_without_running_them() -> None:
    def edit(data: dict[str, Any]) -> None:
        first = data["programs"][0]["instructions"]
        first.insert(0, {"op": "recv", "link": 2})
        data["programs"][2]["instructions"].insert(0, {"op": "recv", "link": 1})

    assert any("waits for ever" in problem for problem in problems_after(edit))


def test_every_problem_is_told_at_once() -> None:
    def edit(data: dict[str, Any]) -> None:
        data["runtime"]["pages"] = 1
        data["links"][0]["slots"] = 9
        data["devices"][0]["ledger"]["total"] = 1

    assert len(problems_after(edit)) >= 3
