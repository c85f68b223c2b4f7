"""Situations from the field, with their numbers: unequal devices, and what does not fit."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from plancc_builders import (
    GIB,
    MIB,
    build_ask,
    build_device,
    build_layer,
    build_model,
    build_topology,
    gib,
)
from plancc_cuts import (
    IN_ORDER,
    cuts_that_fit,
    has_room,
    ledgers_of,
    never_worse_when_free,
    placed,
    refused,
    stages_of,
)

from plancc.compiler.cli import plancc
from plancc.compiler.placement.question import build_problem
from plancc.ir.command import exit_code_of
from plancc.ir.errors import BadInput
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Topology

SMALL = 8  # hidden size: hop buffers of 16 KiB do not disturb whole-token figures
LISTED = {**IN_ORDER, "devices": ("A", "B")}


def even(count: int, size: float, ends: float = 0, kv: int = 0, **fields: Any) -> ModelShape:
    layers = [build_layer(gib(size), kv=kv)] * count
    return build_model(layers, embed=gib(ends), head=gib(ends), hidden_size=SMALL, **fields)


def two(a: float, b: float, *, gb_s: tuple[float, float] = (500.0, 500.0)) -> Topology:
    overhead = {"overhead_bytes": gib(0.8)}
    devices = [build_device("A", a, gb_s=gb_s[0], **overhead),
               build_device("B", b, gb_s=gb_s[1], **overhead)]  # fmt: skip
    return build_topology(devices, latency_us=20.0, gb_s=12.0)


def test_large_layers_spread_over_sixteen_devices_and_none_is_lost() -> None:
    """C08 (a): never more than 6 large layers on a device, and 10 devices suffice."""
    layers = [build_layer(gib(1.2))] * 3 + [build_layer(gib(11.3))] * 58
    model = build_model(layers, hidden_size=SMALL)
    devices = [build_device(f"d{i:02}", 76.0, overhead_bytes=gib(2)) for i in range(16)]
    stages = stages_of(placed(model, build_topology(devices)))
    assert [first for _, first, _ in stages] == [0, *(end for _, _, end in stages[:-1])]
    assert stages[-1][2] == 61
    assert max(end - max(first, 3) for _, first, end in stages) <= 6
    assert len(stages) == 10


def test_a_model_that_fits_the_large_device_runs_there_alone() -> None:
    """C15 (a): 13.98 GiB; its half would not fit the small one."""
    model, machine = even(32, 0.406, 0.244, kv=4096), two(23.3, 7.4)
    assert stages_of(placed(model, machine, context=4096)) == [("A", 0, 32)]
    error = refused(model, machine, context=4096, **LISTED, stage_layers=(16, 16))
    assert [row["short_bytes"] > 0 for row in error.report["devices"]] == [False, True]


def tight() -> ModelShape:
    return even(40, 0.62, 1.45, kv=20480)


@pytest.mark.parametrize(("context", "cuts"), [(512, [30, 31]), (1024, [30]), (2048, [])])
def test_unequal_devices_leave_few_cuts(context: int, cuts: list[int]) -> None:
    """C15 (b)"""
    assert cuts_that_fit(tight(), two(22.0, 9.0), context=context) == cuts
    if cuts:
        never_worse_when_free(tight(), two(22.0, 9.0), context=context)


def test_the_longest_context_of_unequal_devices_is_told_to_the_token() -> None:
    """C15 (b): 2009, cut 30."""
    error = refused(tight(), two(22.0, 9.0), context=2048, **LISTED)
    assert error.report["largest"] == {"context": 2009, "slots": None, "prefill_chunk": None}
    assert "2009" in str(error)
    assert cuts_that_fit(tight(), two(22.0, 9.0), context=2009) == [30]


def test_the_largest_context_is_worth_an_uneven_cut() -> None:
    """C15 (c): 9 | 19, 1.55 times what 14 | 14 could hold."""
    model, machine = even(28, 0.1, 0.44, kv=1024, max_context=10_000_000), two(23.0, 46.0)
    best = placed(model, machine, objective="context", **LISTED)
    halves = placed(model, machine, objective="context", **LISTED, stage_layers=(14, 14))
    assert stages_of(best) == [("A", 0, 9), ("B", 9, 28)]
    assert best.context / halves.context == pytest.approx(1.55, abs=0.01)
    free = placed(model, machine, objective="context", tp="off")
    assert free.context >= best.context


@pytest.mark.parametrize("rates", [(936.0, 346.0), (346.0, 936.0)])
def test_the_fast_device_takes_what_it_can_hold(rates: tuple[float, float]) -> None:
    """C16: 42 and 18 layers, whichever is listed first; about 53 ms, against 66 for 30 | 30."""
    room = {936.0: 22.5, 346.0: 23.0}
    model, machine = even(60, 0.5, 0.5), two(room[rates[0]], room[rates[1]], gb_s=rates)
    fast = "A" if rates[0] > rates[1] else "B"
    best = placed(model, machine, tp="off", head="last")
    held = {device: end - first for device, first, end in stages_of(best)}
    assert held[fast] == 42
    assert sum(held.values()) == 60
    halves = placed(model, machine, **LISTED, stage_layers=(30, 30))
    assert halves.proof.value / best.proof.value == pytest.approx(66 / 53, abs=0.04)
    assert placed(model, machine, tp="off").proof.best <= best.proof.best


def test_a_slow_device_stays_closed_where_the_fast_one_suffices() -> None:
    """C16"""
    machine = two(22.5, 23.0, gb_s=(936.0, 346.0))
    assert stages_of(placed(even(40, 0.5, 0.5), machine)) == [("A", 0, 40)]


def test_slow_links_are_not_worth_more_devices() -> None:
    """C17 (a): one device 4.15 ms, three in a pipeline 4.55."""
    size = gib(3.9 / 32)
    layers = [build_layer(size, mlp_bytes=int(size * 0.66))] * 32
    model = build_model(layers, hidden_size=4096)
    devices = [build_device(name, 22.0, gb_s=1008.0) for name in "ABC"]
    machine = build_topology(devices, latency_us=200.0, gb_s=6.0)
    best = placed(model, machine)
    assert stages_of(best) == [("A", 0, 32)]
    assert best.proof.value / 1e6 == pytest.approx(4.15, abs=0.05)
    values = {row.shape: row.value for row in best.alternatives if row.value is not None}
    assert values["pipeline of 3 stages"] / 1e6 == pytest.approx(4.75, abs=0.3)


def too_large() -> tuple[ModelShape, Topology]:
    """20.5 GiB of weights, 3.0 GiB of KV at 32768, 0.8 GiB of overhead; 21.8 GiB free."""
    model = even(32, 20.5 / 32, kv=3072)
    return model, build_topology([build_device("A", 21.8, overhead_bytes=gib(0.8))])


def test_a_refusal_says_what_is_needed_what_is_there_and_what_would_fit() -> None:
    """C19: short by 2.5 GiB."""
    model, machine = too_large()
    error = refused(model, machine, context=32768)
    assert "short by 2.50 GiB" in str(error)
    (row,) = error.report["devices"]
    assert row["short_bytes"] == pytest.approx(2.5 * GIB, abs=MIB)
    assert row["need"] == {"weights": 32 * gib(20.5 / 32), "kv": 3 * GIB, "overhead": gib(0.8)}
    assert error.report["fails"]["kind"] == "sum"
    longest = error.report["largest"]["context"]
    assert has_room(model, machine, context=longest)
    assert not has_room(model, machine, context=longest + 1)


def test_a_pin_that_alone_makes_it_impossible_is_named() -> None:
    """C19"""
    model = even(32, 0.5, 1.0)
    machine = build_topology([build_device("A", 22.0), build_device("B", 1.2)])
    error = refused(model, machine, pin={"head": "B"})
    assert error.report["binding"] == ["--pin head=B"]
    assert "--pin head=B" in str(error)


@pytest.mark.parametrize("is_old", [False, True], ids=["no plan yet", "an old plan"])
def test_a_refusal_writes_no_plan_and_keeps_an_old_one(
    is_old: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """C19: exit 1, through the command."""
    model, machine = too_large()
    files = [tmp_path / "model.yaml", tmp_path / "topo.yaml"]
    shape = {"format": "plancc.model/1", **json.loads(model.model_dump_json())}
    files[0].write_text(yaml.safe_dump(shape))
    files[1].write_text(yaml.safe_dump(machine.model_dump(mode="json", by_alias=True)))
    plan = tmp_path / "a.plan.json"
    if is_old:
        plan.write_text("old")
    words = ["compile", *map(str, files), "--context", "32768", "-o", str(plan)]
    assert exit_code_of(lambda: plancc.main(words, "plancc", standalone_mode=False)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "short by 2.50 GiB" in captured.err
    assert (plan.read_text() == "old") if is_old else not plan.exists()
    assert len(list(tmp_path.iterdir())) == 2 + is_old


def shared_kv() -> ModelShape:
    """Layers 20-34 read the KV of 18 (window) or 19 (full); only 0-19 keep their own."""
    window = build_layer(MIB, kv=1024, window=512)
    full = build_layer(MIB, kv=1024)
    own = [window if i % 2 == 0 else full for i in range(20)]
    reads = [build_layer(MIB, window=512, kv_from=18), build_layer(MIB, kv_from=19)]
    return build_model([*own, *(reads[i % 2] for i in range(20, 35))], hidden_size=SMALL)


def test_no_cut_parts_a_layer_from_the_kv_that_it_reads() -> None:
    """C21: stage 2 may begin at 1..18."""
    model, machine = shared_kv(), two(22.0, 22.0)
    refused_cuts = [cut for cut in range(1, 35) if "parts layer" in why_not(model, machine, cut)]
    assert refused_cuts == list(range(19, 35))
    assert cuts_that_fit_in(model, machine, list(range(1, 19))) == list(range(1, 19))


def why_not(model: ModelShape, machine: Topology, cut: int) -> str:
    ask = build_ask(model, **LISTED, stage_layers=(cut, 35 - cut), context=4096)
    try:
        build_problem(model, machine, ask)
    except BadInput as error:
        return str(error)
    return ""


def cuts_that_fit_in(model: ModelShape, machine: Topology, cuts: list[int]) -> list[int]:
    return [k for k in cuts if has_room(model, machine, **LISTED, stage_layers=(k, 35 - k))]


def test_layers_that_read_kv_of_others_keep_none() -> None:
    """C21: and the solver never cuts between them, however tight the room."""
    model = shared_kv()
    machine = build_topology([build_device("A", 30 * MIB), build_device("B", 30 * MIB)])
    placement = placed(model, machine, context=1024)
    assert all(first <= 18 for _, first, _ in stages_of(placement))
    ledgers = ledgers_of(model, machine, placement, context=1024)
    assert sum(ledger.kv for ledger in ledgers.values()) == 20 * 1024 * 1024


def test_cuts_are_asked_of_two_devices() -> None:
    """C15: the halves of the toy hold alike."""
    assert cuts_that_fit(even(4, 1.0), two(3.9, 3.9), context=16) == [1, 2, 3]
