"""Situations from the field, with their numbers: machines that are not what their labels say."""

from typing import Any

import pytest
from plancc_builders import GIB, MIB, build_device, build_topology, gib
from plancc_cuts import IN_ORDER, ledgers_of, placed, refused
from plancc_tp_cases import cut_bytes, cut_model, forms_of, sound_plan, values_of

from plancc.ir.topology import Topology

MS = 1e6  # ns


def test_the_order_of_the_runtime_does_not_move_a_share() -> None:
    """T01 (pure): management lists X first, the runtime Y; UUIDs, room and shares stay together."""
    model = cut_bytes(40, 1.1, 0.82, 4096)
    rows = [build_device(name, free, total_bytes=24 * GIB, uuid=f"GPU-{name}")
            for name, free in (("X", 22.0), ("Y", 23.7))]  # fmt: skip
    plans = [sound_plan(model, build_topology(order, latency_us=2.0), context=16)
             for order in (rows, rows[::-1])]  # fmt: skip
    found = [{(row.uuid, row.budget_bytes, row.ledger.total) for row in plan.devices}
             for plan in plans]  # fmt: skip
    assert found[0] == found[1]
    assert {uuid for uuid, _, _ in found[0]} == {"GPU-X", "GPU-Y"}
    shares = [{rank.device: rank.mlp_tiles for rank in plan.stages[0].ranks} for plan in plans]
    assert shares[0] == shares[1] == {"X": (0, 6), "Y": (6, 16)}


def three_alike(**links: Any) -> Topology:
    devices = [build_device(f"d{i}", 22.0, gb_s=900.0) for i in range(3)]
    return build_topology(devices, **links)


@pytest.mark.parametrize("fast", [("d1", "d2"), ("d0", "d2"), ("d0", "d1")])
def test_a_pair_is_formed_over_the_link_that_measured_fast(fast: tuple[str, str]) -> None:
    """T04: 13.2 GB/s between two of three equal devices, 6.5 elsewhere; all 25 us."""
    links = {pair: {"bandwidth_gb_s": 13.2} for pair in (fast, fast[::-1])}
    machine = three_alike(latency_us=25.0, gb_s=6.5, links=links)
    best = placed(cut_bytes(40, 0.5, 0.8, 5120), machine, tp=2, max_devices=2)
    assert forms_of(best) == [("replicated", fast, (0, 40))]


@pytest.mark.parametrize(("trunk", "wins"), [("up1", "group"), ("up0", "pipeline")])
def test_transfers_on_one_trunk_add_up_and_a_group_of_three_loses(trunk: str, wins: str) -> None:
    """T04: partial rows come to d0 from d1 and d2, each at 6 GB/s alone, at 3 where both are on
    trunk up0. A row of 64 KiB more in each of 24 layers is 0.262 ms.
    """
    links = {("d1", "d0"): {"trunk": "up0"}, ("d2", "d0"): {"trunk": trunk}}
    devices = [build_device(f"d{i}", 848 * MIB, gb_s=900.0) for i in range(3)]
    machine = build_topology(devices, latency_us=2.0, gb_s=6.0, links=links)
    model = cut_model(24, 16 * MIB, 48 * MIB, 16384)
    asked = {"devices": ("d0", "d1", "d2"), "context": 16, "prefill_chunk": 16}
    group = placed(model, machine, **asked, tp=3)
    assert [mixer for mixer, _, _ in forms_of(group)] == ["owned"]
    pipeline = values_of(placed(model, machine, **asked, tp="off"))["pipeline of 3 stages"]
    assert (group.proof.value < pipeline) is (wins == "group")
    expected = {"up1": 1.739, "up0": 1.739 + 24 * 65536 / 6e6}[trunk]
    assert group.proof.value / MS == pytest.approx(expected, abs=0.002)


def with_display(reserve: float = 2.0) -> Topology:
    more = {"total_bytes": 24 * GIB}
    return build_topology([
        build_device("A", 22.0, reserve_bytes=gib(reserve), **more),
        build_device("B", 23.7, reserve_bytes=gib(0.25), **more),
        build_device("C", 23.7, reserve_bytes=gib(0.25), **more),
    ], latency_us=5.0)  # fmt: skip


def test_cards_without_a_display_take_more_layers() -> None:
    """T06: 62 GiB on budgets of 20, 23.45, 23.45."""
    best = placed(cut_bytes(100, 0.62, 0.84, 4096), with_display(), context=16, **IN_ORDER)
    held = {devices[0]: end - first for _, devices, (first, end) in forms_of(best)}
    assert held == {"A": 30, "B": 35, "C": 35}


def test_the_reserve_of_a_display_is_in_the_plan_and_no_rank_touches_it() -> None:
    """T06: in a group of three as in a pipeline; the mixers go where there is more room."""
    plan = sound_plan(cut_bytes(100, 0.62, 0.84, 4096), with_display(), context=16)
    assert len(plan.stages[0].ranks) == 3
    assert plan.stages[0].ranks[0].device in ("B", "C")
    budgets = {row.name: row.budget_bytes for row in plan.devices}
    assert budgets == {"A": gib(20), "B": gib(23.7) - gib(0.25), "C": gib(23.7) - gib(0.25)}
    assert all(row.ledger.total <= row.budget_bytes for row in plan.devices)


def test_memory_that_a_driver_would_lend_is_not_room() -> None:
    """T08 (pure): 12.5 GiB needed, 12.0 of its own free; the driver would say yes to 24."""
    card = build_device("A", 12.0, total_bytes=24 * GIB)
    error = refused(cut_bytes(25, 0.5, 0.8, 4096), build_topology([card]), context=16)
    assert error.report["short_bytes"] == gib(0.5)
    assert "0.50 GiB" in str(error) or "512.0 MiB" in str(error)


@pytest.mark.parametrize("flags", [{"tp": "off"}, {"tp": 2}], ids=["pipeline", "group"])
def test_buffers_for_rows_do_not_grow_with_the_model(flags: dict[str, Any]) -> None:
    """T08 (pure): 8 MiB for each end of a hop; a group of two replicas keeps 2 + 2 such, in fp32:
    2 slots x 512 rows x (own + other) x 16 KiB = 32 MiB, and spreads the first rows through 8.
    """
    sizes = []
    for layers in (20, 40):
        model = cut_bytes(layers, 0.5, 0.81, 4096)
        machine = build_topology([build_device(name, 30.0) for name in "AB"], latency_us=2.0)
        asked = {**flags, "context": 512, "max_devices": 2, "devices": ("A", "B")}
        if flags["tp"] == "off":
            asked["stage_layers"] = (layers // 2, layers // 2)
        best = placed(model, machine, **asked)
        ledgers = ledgers_of(model, machine, best, **asked)
        sizes.append({row.hop_buffers for row in ledgers.values()})
    assert sizes[0] == sizes[1] == ({8 * MIB} if flags["tp"] == "off" else {40 * MIB})
