"""topo.yaml: measured numbers, each pair once and in both directions."""

from pathlib import Path

import pytest
from plancc_builders import build_device, build_topology

from plancc.ir.errors import BadInput
from plancc.ir.topology import Topology, read_topology

GOOD = """\
format: plancc.topology/1
name: two
hosts: [{name: h0, address: 127.0.0.1}]
devices:
  - {name: gpu0, host: h0, kind: cuda, total_bytes: 24 GiB, free_bytes: 23.5 GiB, read_gb_s: 812}
  - {name: gpu1, host: h0, kind: cuda, total_bytes: 24 GiB, free_bytes: 23.5 GiB,
     reserve_bytes: 0.5 GiB, read_points: [[1000000, 10.0], [2000000, 15.0]]}
links:
  - {from: gpu0, to: gpu1, mode: staged, latency_us: 15.2, bandwidth_gb_s: 11.3, trunk: pcie0}
  - {from: gpu1, to: gpu0, mode: staged, points: [[20480, 17.0], [655360, 75.0]]}
exchanges:
  - {group: [gpu0, gpu1], points: [[20480, 27.0], [655360, 190.0]]}
"""


def read(tmp_path: Path, text: str) -> Topology:
    path = tmp_path / "topo.yaml"
    path.write_text(text)
    return read_topology(path)


def test_points_win_over_scalars_and_budget_is_free_less_reserve(tmp_path: Path) -> None:
    topology = read(tmp_path, GOOD)
    second = topology.device("gpu1")
    assert second is not None
    assert second.budget_bytes == 23 * 2**30
    assert second.read_curve().us(1_500_000) == pytest.approx(12.5)
    back = topology.link("gpu1", "gpu0")
    assert back is not None
    assert back.curve().ns(20480) == 17000


def test_a_device_has_no_link_to_itself_unless_written(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD).link("gpu0", "gpu0") is None


REFUSED = [
    ("read_gb_s: 812", "read_gb_s: .nan", "field devices.0.read_gb_s", "found nan"),
    ("read_gb_s: 812", "read_gb_s: 0", "field devices.0.read_gb_s", "found 0"),
    ("read_gb_s: 812", "read_gb_s: -1", "field devices.0.read_gb_s", "found -1"),
    ("read_gb_s: 812", "reed_gb_s: 812", "field devices.0.reed_gb_s", "unknown field"),
    (", read_gb_s: 812", "", "field devices.0", "expected read_gb_s or read_points"),
    ("23.5 GiB", "25 GiB", "field devices.0", "free_bytes must be at most total_bytes"),
    ("23.5 GiB", "23.5 Gibi", "field devices.0.free_bytes", "'23.5 Gibi'"),
    ("total_bytes: 24 GiB, ", "", "field devices.0.total_bytes", "missing"),
    ("name: gpu1", "name: gpu0", "field devices", "'gpu0' twice"),
    ("name: gpu1", "name: 'gpu 1'", "field devices.1.name", "'gpu 1'"),
    ("host: h0", "host: h7", "field devices.gpu0.host", "found 'h7'"),
    ("from: gpu1, to: gpu0", "from: gpu0, to: gpu1", "field links", "gpu0->gpu1 once"),
    ("to: gpu0, mode", "to: gpu9, mode", "field links gpu1->gpu9", "found 'gpu9'"),
    ("mode: staged", "mode: pcie", "field links.0.mode", "found 'pcie'"),
    ("latency_us: 15.2, ", "", "field links.0", "expected points, or latency_us and"),
    ("[655360, 75.0]", "[20, 75.0]", "field links.1.points", "found 20 after 20480"),
    ("[20480, 17.0]", "[20480, 0]", "field links.1.points.0.1", "found 0"),
    ("group: [gpu0, gpu1]", "group: [gpu0, gpu5]", "field exchanges", "'gpu5'"),
    ("topology/1", "topology/2", "field format", "found 'plancc.topology/2'"),
    ("devices:", "devices: }", "not YAML", "line 4"),
]


@pytest.mark.parametrize(("before", "after", "field", "found"), REFUSED)
def test_a_wrong_number_or_name_is_refused_by_field(
    tmp_path: Path, before: str, after: str, field: str, found: str
) -> None:
    assert before in GOOD
    with pytest.raises(BadInput) as error:
        read(tmp_path, GOOD.replace(before, after, 1))
    message = str(error.value)
    assert field in message
    assert found in message
    assert len(message.splitlines()) == 1


def test_two_entries_of_one_uuid_are_refused() -> None:
    with pytest.raises(ValueError, match="'GPU-1' twice"):
        build_topology([build_device("a", 1.0, uuid="GPU-1"), build_device("b", 1.0, uuid="GPU-1")])


def test_a_missing_direction_is_an_error_not_a_mirror() -> None:
    whole = build_topology([build_device("a", 1.0), build_device("b", 1.0)])
    one_way = whole.model_dump(by_alias=True) | {
        "links": [whole.links[0].model_dump(by_alias=True)]
    }
    with pytest.raises(ValueError, match="expected a row b->a, found none"):
        Topology.model_validate(one_way)


def test_the_matmul_rate_is_interpolated_and_held_flat() -> None:
    device = build_device("a", 1.0, matmul_points=[(16, 2.0), (1024, 58.0)])
    rates = [device.matmul_tflops(rows, "bfloat16") for rows in (8, 16, 520, 4096)]
    assert rates == [1.0, 2.0, 30.0, 58.0]


def test_a_rate_by_dtype_is_unknown_for_another() -> None:
    device = build_device("a", 1.0, tflops={"bfloat16": 61.0})
    assert device.matmul_tflops(7, "bfloat16") == 61.0
    assert device.matmul_tflops(7, "float32") is None


@pytest.mark.parametrize(
    ("tflops", "points", "expected"),
    [
        ({"bfloat16": 600.0}, True, (300.0, 300.0, None)),
        ({"float32": 50.0}, True, (None, None, 300.0)),
        ({"bfloat16": 600.0, "float32": 50.0}, True, (300.0, 300.0, 50.0)),
        ({"bfloat16": 600.0, "float16": 500.0}, True, (300.0, 500.0, None)),
        ({"bfloat16": 600.0, "float16": 600.0}, True, (300.0, 300.0, None)),
        ({}, True, (300.0, 300.0, 300.0)),
        ({"float16": 600.0}, False, (600.0, 600.0, None)),
        ({}, False, (None, None, None)),
    ],
)
def test_a_matmul_rate_is_of_the_format_that_was_measured(
    tflops: dict[str, float], points: bool, expected: tuple[float | None, ...]
) -> None:
    """Or of its 16-bit twin, where nothing is said of that; never of a format of another size."""
    rates = {"tflops": tflops} | ({"matmul_points": [(512, 300.0)]} if points else {})
    device = build_device("a", 1.0, **rates)
    found = [device.matmul_tflops(512, dtype) for dtype in ("bfloat16", "float16", "float32")]
    assert found == list(expected)


def test_the_digest_is_of_what_was_measured(tmp_path: Path) -> None:
    one = read(tmp_path, GOOD)
    assert read(tmp_path, "# a comment\n" + GOOD).digest() == one.digest()
    assert read(tmp_path, GOOD.replace("15.2", "15.3")).digest() != one.digest()


def test_scratch_is_laid_out_by_kind_unless_it_is_said_and_counts_in_the_digest_then(
    tmp_path: Path,
) -> None:
    topology = read(tmp_path, GOOD)
    said = {layout: topology.devices[0].model_copy(update={"scratch": layout})
            for layout in (None, "block", "chunk")}  # fmt: skip
    assert {layout: device.layout for layout, device in said.items()} == {
        None: "chunk", "block": "block", "chunk": "chunk"}  # fmt: skip
    assert said[None].model_copy(update={"kind": "cpu"}).layout == "block"
    assert "scratch" not in said[None].model_dump()
    digests = {topology.model_copy(update={"devices": (device, *topology.devices[1:])}).digest()
               for device in said.values()}  # fmt: skip
    assert len(digests) == 3


def test_the_digest_does_not_depend_on_the_order_of_rows(tmp_path: Path) -> None:
    head, links = GOOD.split("links:\n")
    first, second, *rest = links.splitlines(keepends=True)
    turned = (
        head + "links:\n" + "".join((second, first, *rest)).replace("gpu0, gpu1]", "gpu1, gpu0]")
    )
    assert turned != GOOD
    assert read(tmp_path, turned).digest() == read(tmp_path, GOOD).digest()
