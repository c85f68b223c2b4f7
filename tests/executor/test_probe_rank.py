"""What the probe makes of a device that works by itself: its own time, not the host's."""

from collections.abc import Callable

import pytest
from plancc_fake_device import FakeDevice, tiny_rank

from plancc.executor import probe_local, probe_rank, probe_stepper
from plancc.executor.probe_kinds import MIB, Scale
from plancc.executor.probe_local import LocalProbe
from plancc.executor.probe_rank import RankProbe

SCALE = Scale(read_sizes=(MIB, 4 * MIB), rotated_bytes=16 * MIB, prompt_width=512,
              matmul_rows=(64, 256), attention_rows=64, attention_chunks=8, tiny_total=4 * MIB,
              seconds=0.1, batch_s=0.02)  # fmt: skip


@pytest.fixture
def probe_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., RankProbe]:
    def made(device: FakeDevice, scale: Scale = SCALE) -> RankProbe:
        for module in (probe_rank, probe_stepper, probe_local):
            monkeypatch.setattr(module, "time", device.clock)
        monkeypatch.setattr(probe_rank, "backend_of", lambda kind: device)
        monkeypatch.setattr(probe_rank, "host_of", lambda kind: device)
        return RankProbe("fake", "GPU-x", 1, "bfloat16", scale)

    return made


def test_a_launch_is_the_devices_time_and_not_the_hosts(
    probe_of: Callable[..., RankProbe],
) -> None:
    """5 kernels a layer, 10 us a layer; a step's 30 us of the host and a wait are hidden."""
    assert probe_of(FakeDevice()).launch_us() == pytest.approx(2.0, rel=0.01)


def test_steps_one_by_one_are_the_hosts_time_too(probe_of: Callable[..., RankProbe]) -> None:
    """What a host that computes itself takes: 1 layer of 10 us, 30 to launch, 20 to wait."""
    alone = Scale(**{**vars(SCALE), "batch_s": 0.0, "tiny_total": 1})
    assert probe_of(FakeDevice(), alone).launch_us() == pytest.approx((30 + 10 + 20) / 5)


def test_read_points_are_layers_times_without_their_launches(
    probe_of: Callable[..., RankProbe],
) -> None:
    """Of 100 us a layer 5 launches take 1 each; its matrices are 1, 1, 4/3 and 2/3 of a size."""
    points = probe_of(FakeDevice(layer_us=100.0)).read_points(1.0)
    assert [size for size, _ in points] == [MIB, 4 * MIB]
    for _, us in points:
        assert us == pytest.approx(95 / 4, rel=0.05)


def test_more_rows_in_the_same_time_are_a_higher_rate(probe_of: Callable[..., RankProbe]) -> None:
    (_, few), (_, many) = probe_of(FakeDevice()).matmul_points(0.1, 1e6)
    assert 4.0 <= many / few < 4.3  # attention adds a little


def test_attention_is_what_rows_take_longer_where_more_keys_are_before_them(
    probe_of: Callable[..., RankProbe],
) -> None:
    """448 keys before the last chunk's 64 rows are 0.05 us each; 4 FLOPs, 512 numbers wide."""
    found = probe_of(FakeDevice(key_us=0.05)).attention_tflops()
    assert found == pytest.approx(4 * 64 * 512 / 0.05 / 1e6, rel=0.01)


def test_attention_that_cannot_be_told_is_a_hundredth_of_a_step(
    probe_of: Callable[..., RankProbe],
) -> None:
    """A layer takes 10 us whatever was before: 64 rows' attention to 448 keys in 0.1 us."""
    found = probe_of(FakeDevice(layer_us=10.0, key_us=0.0)).attention_tflops()
    assert found == pytest.approx(4 * 64 * 448 * 512 / 0.1 / 1e6, rel=0.01)


def test_a_slow_attention_is_taken_off_the_time_of_products(
    probe_of: Callable[..., RankProbe],
) -> None:
    """Of 64 rows, 512 wide: 4.3 MFLOP of attention, at 1 TFLOP/s 4.3 of a layer's 20 us."""
    scale = Scale(**{**vars(SCALE), "matmul_rows": (64,)})
    probe = probe_of(FakeDevice(layer_us=20.0), scale)
    ((_, alone),) = probe.matmul_points(0.0, 1.0)
    ((_, both),) = probe.matmul_points(0.0, 1e6)
    us = 4 * 64 * 512 * 32.5 / 1e6
    assert alone * (20 - us) + us == pytest.approx(both * 20, rel=0.01)
    assert alone > both


def test_overhead_is_what_is_gone_beside_what_ledgers_count(
    probe_of: Callable[..., RankProbe],
) -> None:
    device = FakeDevice(overhead_bytes=500 * MIB + 1)
    assert probe_of(device).warm_up() == 501 * MIB
    assert all(how["uuid"] == "GPU-x" for how in device.opened)


def test_a_device_that_tells_nothing_has_no_overhead(
    probe_of: Callable[..., RankProbe], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = FakeDevice(overhead_bytes=MIB)
    monkeypatch.setattr(FakeDevice, "free_bytes", lambda self, uuid: None)
    assert probe_of(device).warm_up() == 0


def test_a_hop_is_one_way_and_without_the_hosts_time(probe_of: Callable[..., RankProbe]) -> None:
    device = FakeDevice(hop_us=lambda size: 5.0 + size / 1000)
    probe_of(device)
    probe = LocalProbe(device, {"a": tiny_rank(device), "b": tiny_rank(device)}, _yes)
    sizes = [64, 64_000, 64_000_000]
    times = probe.hop_us("a", "b", False, sizes, 0.0)
    assert times[1:] == [pytest.approx(5.0 + size / 1000, rel=0.02) for size in sizes[1:]]
    assert times[0] == pytest.approx(5.0, abs=0.5)


def test_an_exchange_is_all_hops_of_a_round(probe_of: Callable[..., RankProbe]) -> None:
    device = FakeDevice(hop_us=lambda size: 10.0)
    probe_of(device)
    probe = LocalProbe(device, {name: tiny_rank(device) for name in "abc"}, _yes)
    assert probe.exchange_us("abc", [], [64], 0.0) == [pytest.approx(60.0, rel=0.05)]
    assert probe.at_once_us([("a", "b", False)], 64, 0.0) == pytest.approx(10.0, abs=6)


def _yes(source: object, target: object) -> bool:
    return True
