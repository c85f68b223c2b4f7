"""The probe's file and its comparison of two files."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plancc.executor.probe_compare import changes, describe_changes
from plancc.executor.probe_numbers import median_us, rising, rounded
from plancc.executor.probe_yaml import to_yaml, write_topology
from plancc.ir.errors import BadInput
from plancc.ir.exchange import Exchange
from plancc.ir.topology import Device, Host, Link, Topology, read_topology

MIB = 2**20
NUMBER = st.floats(min_value=1e-6, max_value=1e12, allow_nan=False)
POINTS = st.dictionaries(st.integers(1, 2**40), NUMBER, min_size=1, max_size=5).map(
    lambda found: tuple(sorted(found.items()))
)


def build_device(name: str, **fields: object) -> Device:
    known = {"total_bytes": 300 * MIB, "free_bytes": 300 * MIB, "threads": 1, "launch_us": 2.5,
             "read_points": ((MIB, 100.0), (4 * MIB, 400.0)), "tflops": {"bfloat16": 0.05},
             "matmul_points": ((64, 0.04), (512, 0.05))}  # fmt: skip
    return Device.model_validate({"name": name, "host": "h0", "kind": "cpu"} | known | fields)


def build_topology(**fields: object) -> Topology:
    rows = [("cpu0", "cpu1"), ("cpu1", "cpu0")]
    links = [
        Link.model_validate(
            {"from": a, "to": b, "mode": "network", "points": [(64, 150.0), (MIB, 700.0)]}
        )
        for a, b in rows
    ]
    return Topology(
        name="two",
        hosts=(Host(name="h0", address="127.0.0.1"),),
        devices=(build_device("cpu0", **fields), build_device("cpu1")),
        links=tuple(links),
        exchanges=(Exchange(group=("cpu0", "cpu1"), points=((64, 300.0),)),),
    )


def test_a_written_topology_reads_back_equal(tmp_path: Path) -> None:
    path = tmp_path / "topo.yaml"
    write_topology(build_topology(reserve_bytes=12345, uuid="CPU-h0-0"), path)
    assert read_topology(path) == build_topology(reserve_bytes=12345, uuid="CPU-h0-0")
    assert [entry.name for entry in tmp_path.iterdir()] == ["topo.yaml"]


@given(
    points=POINTS,
    launch=NUMBER,
    free=st.integers(1, 2**45),
    name=st.from_regex("[A-Za-z0-9][a-z0-9.:-]{0,5}", fullmatch=True),
)
def test_any_numbers_and_names_survive_the_file(
    points, launch, free, name, tmp_path_factory
) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    device = build_device(
        name, read_points=points, launch_us=launch, free_bytes=free, total_bytes=2**45
    )
    topology = Topology(name="a: #b", hosts=(Host(name="h0", address="::1"),), devices=(device,))
    write_topology(topology, path)
    assert read_topology(path) == topology


def test_a_device_is_written_as_one_line_a_group_of_numbers() -> None:
    rows = to_yaml(build_topology()).splitlines()
    first = rows.index("devices:") + 1
    assert rows[first : first + 5] == [
        "  - {name: cpu0, host: h0, kind: cpu, threads: 1,",
        "     total_bytes: 300 MiB, free_bytes: 300 MiB,",
        "     read_points: [[1048576, 100], [4194304, 400]],",
        "     tflops: {bfloat16: 0.05}, matmul_points: [[64, 0.04], [512, 0.05]],",
        "     launch_us: 2.5}",
    ]


def test_what_a_card_has_free_is_compared_too() -> None:
    before = build_topology(uuid="GPU-a", overhead_bytes=100 * MIB)
    after = build_topology(uuid="GPU-a", overhead_bytes=110 * MIB, free_bytes=150 * MIB)
    assert describe_changes(changes(before, after)).splitlines() == [
        "cpu0 free      0.293 -> 0.1465 GiB  (-50.0 %)",
        "cpu0 overhead  100 -> 110 MiB  (+10.0 %)",
        "2 of 17 numbers moved by 3 % or more",
    ]


def test_a_file_that_cannot_be_written_is_a_user_error_and_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "topo.yaml"
    folder.mkdir()
    with pytest.raises(BadInput, match="expected a file to write, found a folder"):
        write_topology(build_topology(), folder)
    assert [entry.name for entry in tmp_path.iterdir()] == ["topo.yaml"]


def test_a_slower_device_is_reported_in_percent_and_the_rest_is_counted() -> None:
    slower = build_topology(read_points=((MIB, 125.0), (4 * MIB, 400.0)))
    text = describe_changes(changes(build_topology(), slower))
    rate = MIB / 100 / 1e3
    assert text.splitlines() == [
        f"cpu0 read of 1.0 MiB  {rate:.4g} -> {rate * 0.8:.4g} GB/s  (-20.0 %)",
        "1 of 15 numbers moved by 3 % or more",
    ]


def test_equal_measurements_are_no_changes() -> None:
    rows = changes(build_topology(), build_topology())
    assert describe_changes(rows) == "No changes: 0 of 15 numbers moved by 3 % or more"
    assert {row.percent for row in rows} == {0.0}


def test_what_a_group_loses_at_once_and_to_an_owner_is_compared_too() -> None:
    points = ((64, 300.0),)
    before, after = (
        build_topology().model_copy(update={"exchanges": (
            Exchange(group=("cpu0", "cpu1"), points=points, owned_points=((64, us),),
                     slowdown=slow),)})
        for us, slow in ((100.0, 1.2), (150.0, 1.5))
    )  # fmt: skip
    assert describe_changes(changes(before, after)).splitlines() == [
        "exchange cpu0,cpu1 with an owner of 64 B  100 -> 150 us  (+50.0 %)",
        "exchange cpu0,cpu1 slowdown               1.2 -> 1.5 times  (+25.0 %)",
        "2 of 17 numbers moved by 3 % or more",
    ]
    assert len(changes(build_topology(), after)) == 16  # a file from before says nothing of owners


def test_a_rate_is_compared_at_sizes_that_only_one_file_has() -> None:
    denser = build_topology(read_points=((MIB, 100.0), (2 * MIB, 200.0), (4 * MIB, 400.0)))
    rows = [row for row in changes(build_topology(), denser) if row.what == "cpu0 read of 2.0 MiB"]
    assert [round(row.percent, 6) for row in rows] == [0.0]


def test_fewer_bytes_never_take_longer() -> None:
    assert rising([(1, 5.0), (2, 4.0), (3, 6.0)]) == [(1, 4.0), (2, 4.0), (3, 6.0)]


def test_numbers_keep_four_digits() -> None:
    assert [rounded(value) for value in (123456.0, 0.00123456, 2.5)] == [123500.0, 0.001235, 2.5]


def test_a_hop_is_the_median_of_its_one_way_times() -> None:
    assert median_us([0, 1000, 2000], [50_000, 3000, 12_000]) == 10.0
