"""What a refusal says: needs by part, what binds, what would fit."""

import time

import pytest
from plancc_builders import GIB, MIB, build_device, build_layer, build_model, build_topology, gib
from plancc_cuts import has_room, ledgers_of, placed, refused

from plancc.ir.errors import DoesNotFit
from plancc.ir.layers import DenseMlp
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Topology
from plancc.ir.units import format_bytes

CHUNK = 512


def model(count: int = 12, **fields: object) -> ModelShape:
    layers = [build_layer(gib(1.0), kv=65536, state=MIB)] * count
    return build_model(layers, embed=GIB, head=GIB, hidden_size=1024, **fields)


def machine(*free: float) -> Topology:
    rows = [build_device(f"d{i}", size, overhead_bytes=gib(0.5)) for i, size in enumerate(free)]
    return build_topology(rows)


def test_every_device_tells_its_needs_by_part_what_it_has_and_lacks() -> None:
    error = refused(model(), machine(7.0, 7.0), context=8192)
    rows = error.report["devices"]
    assert sorted(row["device"] for row in rows) == ["d0", "d1"]
    for row in rows:
        assert sum(row["need"].values()) == row["need_bytes"]
        assert row["have_bytes"] == gib(7.0)
        assert row["short_bytes"] == max(0, row["need_bytes"] - row["have_bytes"]) > 0
        assert row["need"]["hop_buffers"] == 2 * CHUNK * 2048
        assert {"weights", "kv", "state", "blocks", "overhead"} < set(row["need"])
        assert f"{row['device']}: needs" in str(error)
    assert sum(row["need"]["weights"] for row in rows) == 12 * GIB


def test_the_sum_fails_where_all_devices_together_lack_room() -> None:
    error = refused(model(), machine(7.0, 7.0), context=8192)
    assert error.report["fails"] == {
        "kind": "sum",
        "need_bytes": 14 * GIB + 12 * (65536 * 8192 + MIB),
        "have_bytes": 2 * gib(6.5),
        "short_bytes": 14 * GIB + 12 * (65536 * 8192 + MIB) - 2 * gib(6.5),
    }
    assert "the sum fails: 20.01 GiB needed without overhead, all devices together have 13.00 GiB "\
           "beside it: 7.01 GiB short" in str(error)  # fmt: skip


def test_the_sum_is_of_as_many_devices_as_may_be_used() -> None:
    """14 GiB over 9 + 7 + 7 would go, over 8.5 do not: no cut of any kind makes room."""
    error = refused(model(), machine(9.0, 7.0, 7.0), context=64, max_devices=1)
    assert error.report["fails"]["kind"] == "sum"
    assert error.report["fails"]["have_bytes"] == gib(8.5)
    assert "--max-devices 1 leaves at most 8.50 GiB" in str(error)
    assert "TP groups" not in str(error)


def test_the_first_line_names_the_device_that_lacks_most() -> None:
    error = refused(model(), machine(7.0, 6.0), context=8192)
    worst = max(error.report["devices"], key=lambda row: row["short_bytes"])
    first = str(error).splitlines()[0]
    assert first.endswith(f"short by {format_bytes(worst['short_bytes'])} on {worst['device']}")
    alone = refused(model(), machine(7.0), context=8192)
    assert str(alone).splitlines()[0].endswith(f"by {format_bytes(alone.report['short_bytes'])}")


def test_a_chunk_that_takes_the_room_is_named_with_the_largest_that_leaves_it() -> None:
    machines, flags = machine(8.0, 8.0), {"context": 64}
    error = refused(model(), machines, prefill_chunk=500_000, **flags)
    rows = error.report["largest"]["prefill_chunk"]
    assert has_room(model(), machines, prefill_chunk=rows, **flags)
    assert not has_room(model(), machines, prefill_chunk=rows + 1, **flags)
    assert f"would fit: --prefill-chunk {rows}" in str(error)


def test_flags_that_take_room_are_named_though_they_pin_nothing() -> None:
    roomy = build_topology(
        [build_device(f"d{i}", 8.0, overhead_bytes=gib(0.5), wire_bytes=GIB) for i in range(2)]
    )
    assert refused(model(), roomy, context=64, workers="device").report["binding"] == [
        "--workers device"
    ]
    layer = build_layer(gib(1.0))
    mixer = layer.mixer.model_copy(
        update={"kv_bytes_per_token": 65536, "num_kv_heads": 128, "head_dim": 128}
    )
    halves = build_model([layer.model_copy(update={"mixer": mixer})] * 12, embed=GIB, head=GIB)
    wide = refused(halves, machine(8.0, 8.0), context=1024, kv_dtype="float32")
    assert has_room(halves, machine(8.0, 8.0), context=1024)
    assert wide.report["binding"] == ["--kv-dtype float32"]


def test_the_packing_fails_where_whole_layers_do_not_go_in() -> None:
    layers = [build_layer(gib(3.0))] * 4
    error = refused(build_model(layers, hidden_size=8), machine(6.0, 6.0, 6.0, 4.0 - 1.5))
    assert error.report["fails"]["kind"] == "packing"
    assert error.report["fails"]["need_bytes"] == 12 * GIB <= error.report["fails"]["have_bytes"]
    assert error.report["fails"]["short_bytes"] == 0
    assert "the packing fails" in str(error)
    assert error.report["groups"] == "uncut"
    assert "are no way out: no MLP of this model can be cut\n" in str(error)


@pytest.mark.parametrize(
    ("flags", "hosts", "cause", "words"),
    [
        ({"workload": {"prompt": 32, "output": 32}}, "aaa", "workload", "--workload places"),
        ({"devices": ("d0", "d1", "d2", "d2")}, "aaa", "repeated", "names a device twice"),
        ({}, "abc", "apart", "no two of these devices may share one"),
    ],
)
def test_where_groups_are_no_way_out_the_one_cause_is_said(
    flags: dict[str, object], hosts: str, cause: str, words: str
) -> None:
    """Layers of 3 GiB over 6 + 6 + 2.7: the sum holds them, no cut does."""
    error = refused(cuttable(0.1), on_hosts(hosts), context=64, **flags)
    assert error.report["fails"]["kind"] == "packing"
    assert error.report["groups"] == cause
    (line,) = (line for line in str(error).splitlines() if "TP groups" in line)
    assert words in line


def on_hosts(hosts: str) -> Topology:
    """Three devices and the host of each, a letter."""
    rates = {"tflops": {"bfloat16": 100.0}}
    rows = [build_device(f"d{i}", size, overhead_bytes=gib(0.5), host=host, **rates)
            for i, (size, host) in enumerate(zip((6.0, 6.0, 2.7), hosts, strict=True))]  # fmt: skip
    return build_topology(rows)


def cuttable(mlp_gib: float) -> ModelShape:
    """Four layers of 3 GiB, of which an MLP of 16 tiles."""
    layer = build_layer(gib(3.0), mlp_bytes=gib(mlp_gib))
    mlp = DenseMlp(kind="swiglu", weight_bytes=gib(mlp_gib), intermediate_size=4096)
    return build_model([layer.model_copy(update={"mlp": mlp})] * 4, hidden_size=8)


def test_groups_pack_what_pipelines_cannot_and_a_refusal_without_them_names_the_flag() -> None:
    """12 GiB over 5.5 + 5.5 + 4 GiB: whole layers of 3 GiB leave one out, tiles do not."""
    devices = machine(6.0, 6.0, 4.5)
    assert has_room(cuttable(2.9), devices)
    error = refused(cuttable(2.9), devices, tp="off")
    assert error.report["fails"]["kind"] == "packing"
    assert error.report["groups"] == "off"
    assert error.report["binding"] == ["--tp off"]
    assert "were not tried: --tp off" in str(error)
    assert "without --tp off it fits" in str(error)


def test_where_groups_do_not_help_either_the_refusal_says_so() -> None:
    """Mixers of 2.9 GiB are never cut, so tiles of 0.1 GiB fill no hole."""
    error = refused(cuttable(0.1), machine(6.0, 6.0, 4.5 - 1.8))
    assert error.report["groups"] == "tried"
    assert "TP groups, which share a layer with its MLP cut in tiles, do not help" in str(error)


def test_over_many_unlike_devices_a_refusal_says_that_groups_were_not_searched() -> None:
    """Eleven unlike devices: two with room for a layer, nine with room for a half."""
    rooms = [3.7 + 0.01 * i for i in range(2)] + [2.0 + 0.01 * i for i in range(9)]
    started = time.process_time()
    error = refused(cuttable(2.9), machine(*rooms))
    assert error.report["fails"]["kind"] == "packing"
    assert error.report["groups"] == "many"
    assert "name up to 10 with --devices" in str(error)
    assert has_room(cuttable(2.9), machine(*rooms[:10]))
    assert time.process_time() - started < 10


def test_what_the_sum_refuses_is_refused_at_once_over_sixteen_unlike_devices() -> None:
    """Listing the groups of sixteen devices takes minutes: here no set of them would do."""
    started = time.process_time()
    rooms = [3.0 + 0.01 * i for i in range(16)]
    error = refused(cuttable(2.9).model_copy(update={"layers": cuttable(2.9).layers * 4}),
                    machine(*rooms))  # fmt: skip
    assert error.report["fails"]["kind"] == "sum"
    assert time.process_time() - started < 5


def test_the_report_begins_with_what_the_worst_device_lacks() -> None:
    error = refused(model(), machine(7.0, 7.0), context=8192)
    worst = max(row["short_bytes"] for row in error.report["devices"])
    assert error.report["short_bytes"] == worst
    assert (error.report["context"], error.report["slots"]) == (8192, 1)


def test_flags_that_bind_only_together_are_named_together() -> None:
    """10 + 8 GiB hold twelve layers; neither flag alone keeps them out, both do."""
    flags = {"devices": ("d2", "d1"), "max_devices": 1}
    error = refused(model(12), machine(10.0, 8.0, 1.4), context=64, **flags)
    assert error.report["binding"] == ["--devices d2,d1 --max-devices 1"]
    assert "without --devices d2,d1 --max-devices 1 it fits" in str(error)


def test_largest_context_and_slots_are_exact() -> None:
    machines = machine(11.0, 11.0)
    error = refused(model(), machines, context=8192, slots=2)
    longest, most = error.report["largest"]["context"], error.report["largest"]["slots"]
    assert has_room(model(), machines, context=longest, slots=2)
    assert not has_room(model(), machines, context=longest + 1, slots=2)
    assert most == 1
    assert not has_room(model(), machines, context=8192, slots=2)
    assert f"--context {longest}, or --slots 1" in str(error)


def test_no_context_is_offered_where_the_weights_alone_are_too_large() -> None:
    error = refused(model(), machine(4.0, 4.0), context=8192, slots=4)
    assert error.report["largest"] == {
        "context": None, "slots": None, "prefill_chunk": None
    }  # fmt: skip
    assert "\n  no context is small enough: add a device" in str(error)


@pytest.mark.parametrize(
    ("flags", "way"),
    [
        ({"max_devices": 1}, "raise --max-devices"),
        ({"devices": ("d1",)}, "name other or more --devices"),
        ({"stage_layers": (11, 1)}, "leave out --stage-layers 11,1"),
        ({"devices": ("d2", "d1"), "max_devices": 1},
         "leave out --devices d2,d1 --max-devices 1"),
    ],
)  # fmt: skip
def test_where_a_flag_binds_no_device_is_to_be_added(flags: dict[str, object], way: str) -> None:
    error = refused(model(12), machine(10.0, 8.0, 1.4), context=64, **flags)
    assert error.report["largest"]["context"] is None
    last = str(error).splitlines()[-1]
    assert last.startswith(f"  with it no context is small enough: {way}, or choose")
    assert "add a device" not in str(error)


@pytest.mark.parametrize(
    ("flags", "binding"),
    [
        ({"pin": {"head": "d2"}}, ["--pin head=d2"]),
        ({"stage_layers": (11, 1)}, ["--stage-layers 11,1"]),
        ({"devices": ("d1", "d2")}, ["--devices d1,d2"]),
        ({"max_devices": 1}, ["--max-devices 1"]),
        ({"max_devices": 2, "pin": {"head": "d2"}}, ["--pin head=d2"]),
        ({"devices": ("d0", "d1"), "stage_layers": (1, 11)}, ["--stage-layers 1,11"]),
        ({}, []),
    ],
)
def test_the_flag_that_binds_is_named(flags: dict[str, object], binding: list[str]) -> None:
    """It would fit without it, all others kept."""
    context, count = (64, 12) if flags else (64, 40)
    error = refused(model(count), machine(10.0, 8.0, 1.4), context=context, **flags)
    assert error.report["binding"] == binding
    for flag in binding:
        assert flag in str(error)


def test_the_place_of_the_head_binds_too() -> None:
    """A tied head beside the embedding is free; at the other end it is a second copy."""
    layers = [build_layer(gib(1.0))] * 6
    tied = build_model(layers, embed=gib(1.5), head=gib(1.5), tied=True, hidden_size=8)
    machines = machine(5.1, 4.0)
    assert has_room(tied, machines)
    error = refused(tied, machines, head="last", devices=("d0", "d1"))
    assert error.report["binding"] == ["--head last"]
    assert "--head last" in str(error)


def test_the_attempt_is_one_that_lacks_least() -> None:
    """13 GiB on 6 + 6 + 0: no device lacks more than the best split makes it."""
    error = refused(model(12), machine(6.0, 6.0), context=64)
    worst = max(row["short_bytes"] for row in error.report["devices"])
    assert worst < gib(1.6)


def test_a_repeated_device_is_refused_once_with_its_shared_budget() -> None:
    error = refused(model(12), machine(6.0), context=64, devices=("d0", "d0"))
    (row,) = error.report["devices"]
    assert row["need"]["weights"] == 12 * GIB
    assert row["need"]["overhead"] == gib(0.5)
    assert row["have_bytes"] == gib(6.0)


def test_reserve_is_no_room() -> None:
    kept = build_topology([build_device("d0", 16.0, reserve_bytes=gib(2.5))])
    assert has_room(model(12), build_topology([build_device("d0", 16.0)]), context=64)
    assert refused(model(12), kept, context=64).report["devices"][0]["have_bytes"] == gib(13.5)


def test_a_refusal_is_a_clear_no() -> None:
    error = refused(model(12), machine(4.0), context=64)
    assert isinstance(error, DoesNotFit)
    assert error.exit_code == 1


def test_what_fits_has_ledgers_within_every_budget() -> None:
    machines = machine(9.0, 9.0)
    placement = placed(model(), machines, context=512)
    for name, ledger in ledgers_of(model(), machines, placement, context=512).items():
        assert ledger.total == sum(ledger.parts().values())
        assert ledger.free_after == gib(9.0) - ledger.total >= 0, name
