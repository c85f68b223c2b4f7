"""Full tensor parallelism is priced by its formula, sized, and never more than a row beside."""

import pytest
from plancc_builders import GIB, build_device, build_layer, build_model, build_topology

from plancc.compiler.cost.compute import Work
from plancc.compiler.cost.full_tp import (
    full_tp_bytes,
    full_tp_exchange_ns,
    full_tp_step_ns,
)
from plancc.compiler.cost.full_tp_row import full_tp_row
from plancc.ir.ask import Ask
from plancc.ir.exchange import Exchange
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Topology

LAYERS = 4
HIDDEN = 1000  # a partial row of 4,000 bytes


def model(*, mlp: bool = True) -> ModelShape:
    layer = build_layer(30_000_000, kv=1000, mlp_bytes=20_000_000 if mlp else 0)
    return build_model([layer] * LAYERS, embed=8_000_000, head=10_000_000, hidden_size=HIDDEN)


def machine(count: int, *, free: int = GIB, gb_s: float = 10.0, **fields: object) -> Topology:
    devices = [build_device(f"d{i}", free, gb_s=1000.0) for i in range(count)]
    return build_topology(devices, latency_us=20.0, gb_s=gb_s, **fields)


def work(rows: int = 1) -> Work:
    return Work(rows, 100, "bfloat16")


def filled(**ask: object) -> Ask:
    return Ask.model_validate(ask).filled(131072, "bfloat16")


def test_a_step_reads_an_nth_of_everything_and_exchanges_twice_a_layer() -> None:
    read_ns = (LAYERS * (30_000_000 + 100_000) + 10_000_000) / 2
    exchange_ns = 20_000 + 400  # 4,000 bytes at 10 GB/s
    priced = full_tp_step_ns(model(), machine(2), ("d0", "d1"), work())
    assert priced == pytest.approx(read_ns / 1000 + 8 * exchange_ns, abs=30)


def test_a_layer_without_an_mlp_exchanges_once() -> None:
    whole = machine(2, exchanges=(Exchange(group=("d0", "d1"), points=((1, 1000.0),)),))
    free = machine(2, exchanges=(Exchange(group=("d0", "d1"), points=((1, 0.001), (2, 0.001))),))
    exchanges_ns = [
        full_tp_step_ns(model(mlp=mlp), whole, ("d0", "d1"), work())
        - full_tp_step_ns(model(mlp=mlp), free, ("d0", "d1"), work())
        for mlp in (True, False)
    ]
    assert exchanges_ns[0] == 2 * exchanges_ns[1]


def test_the_slowest_device_decides() -> None:
    devices = [build_device("d0", GIB, gb_s=1000.0), build_device("d1", GIB, gb_s=100.0)]
    slow = full_tp_step_ns(model(), build_topology(devices), ("d0", "d1"), work())
    devices[0] = build_device("d0", GIB, gb_s=100.0)
    assert slow == full_tp_step_ns(model(), build_topology(devices), ("d0", "d1"), work())


def test_large_exchanges_go_in_two_steps_and_small_ones_in_one() -> None:
    topology, names = machine(4), ("d0", "d1", "d2", "d3")
    one_row = 20_000 + 3 * 400
    assert full_tp_exchange_ns(model(), topology, names, 1) == pytest.approx(one_row, abs=5)
    at_once = 20_000 + 3 * 1024 * 400
    in_two = 2 * (20_000 + 3 * 1024 * 100)
    assert in_two < at_once
    assert full_tp_exchange_ns(model(), topology, names, 1024) == pytest.approx(in_two, abs=20)


def test_a_measured_exchange_wins_over_the_links() -> None:
    rows = (Exchange(group=("d1", "d0"), points=((1, 33.0), (10**9, 33.0))),)
    assert full_tp_exchange_ns(model(), machine(2, exchanges=rows), ("d0", "d1"), 1) == 33_000


def test_what_all_compute_at_once_in_a_decode_step_is_slowed_and_a_prompt_is_not() -> None:
    points = ((1, 33.0), (10**9, 33.0))
    rows = [Exchange(group=("d0", "d1"), points=points, slowdown=slow) for slow in (1, 1.5)]
    alone, slowed = (machine(2, exchanges=(row,)) for row in rows)
    computing_ns = (LAYERS * (30_000_000 + 100_000) + 10_000_000) / 2 / 1000
    more_ns = [
        full_tp_step_ns(model(), slowed, ("d0", "d1"), one)
        - full_tp_step_ns(model(), alone, ("d0", "d1"), one)
        for one in (work(), Work(1, 100, "bfloat16", prompt=100))
    ]
    assert more_ns == [pytest.approx(computing_ns / 2, abs=30), 0]


def test_bytes_are_an_nth_of_what_is_cut_and_the_rows_of_everyone() -> None:
    ask = filled(context=1024, slots=2)
    cut = LAYERS * (30_000_000 + 2 * 1024 * 1000) + 18_000_000
    buffers = 2 * 512 * 2 * 4000  # two slots a step of 512 rows, two devices
    assert full_tp_bytes(model(), ask, 1024, 2, "chunk") == cut // 2 + buffers


@pytest.mark.parametrize(("spare", "verdict"), [(0, "not allowed"), (-1, "does not fit")])
def test_a_row_says_what_is_short_to_the_byte(spare: int, verdict: str) -> None:
    ask = filled(context=1024)
    need = full_tp_bytes(model(), ask, 1024, 2, "chunk")
    row = full_tp_row(model(), machine(2, free=need + spare), ask, 1024)
    assert row is not None
    assert row.verdict == verdict
    if verdict == "does not fit":
        assert (row.short_bytes, row.device) == (1, "d1")
    else:
        assert row.value == full_tp_step_ns(model(), machine(2), ("d0", "d1"),
                                            Work(1, 1024, "bfloat16"))  # fmt: skip


def test_a_row_is_of_the_objective_asked() -> None:
    topology, names = machine(2), ("d0", "d1")
    many = full_tp_row(model(), topology, filled(objective="throughput", slots=8), 8192)
    assert many is not None
    assert many.value == full_tp_step_ns(model(), topology, names, Work(8, 8192, "bfloat16"))
    for objective in ("context", "prefill"):  # no ns of a context; no matmul rate
        row = full_tp_row(model(), topology, filled(objective=objective), 8192)
        assert row is not None
        assert (row.value, row.verdict) == (None, "not allowed")


def test_the_number_of_devices_is_a_power_of_two_of_those_asked() -> None:
    def shape(count: int, **ask: object) -> str | None:
        row = full_tp_row(model(), machine(count, gb_s=1000.0), filled(**ask), 8192)
        return row.shape if row else None

    assert shape(1) is None
    assert shape(7) in (f"full tensor parallelism over {count}" for count in (2, 4))
    assert shape(4, max_devices=3) == "full tensor parallelism over 2"
    assert shape(4, devices=("d1",)) is None


def test_devices_of_two_hosts_are_no_group() -> None:
    devices = [build_device("d0", GIB), build_device("d1", GIB, host="h1")]
    assert full_tp_row(model(), build_topology(devices), filled(), 8192) is None
