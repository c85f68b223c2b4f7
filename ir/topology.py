"""topo.yaml: what the machines are, as measured. Format plancc.topology/1 (design.md section 4)."""

from collections.abc import Sequence
from itertools import pairwise, permutations
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from plancc.ir.buffers import Layout
from plancc.ir.canonical import sha256_of
from plancc.ir.curve import Curve, Number, Points
from plancc.ir.document import Frozen, parse_document, read_yaml
from plancc.ir.dtype import DType
from plancc.ir.exchange import Exchange
from plancc.ir.units import Bytes, PositiveBytes

TOPOLOGY_FORMAT = "plancc.topology/1"
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$")]
_TWINS = {"bfloat16": "float16", "float16": "bfloat16"}
_LATER = ("scratch", "wire_bytes", "attention_tflops", "row_block")  # fields that came later
LinkMode = Literal["local", "p2p", "staged", "network"]


class Host(Frozen):
    name: Name
    address: str


class Device(Frozen):
    """One device. `kind` is a name for people and for the executor, and says how scratch is laid
    out where `scratch` does not; the compiler asks it nothing else.

    wire_bytes: taken besides where each device has a process of its own that reaches the others'.
    read_points: (bytes of one weight-streaming kernel, us). Points win over the scalar read_gb_s.
    matmul_points: (rows, TFLOP/s) in one format, see `points_of`; they win over its tflops.
    attention_tflops: of a prompt's attention, where that is slower than matrix products.
    row_block: a prompt's products are of whole blocks of so many rows; of any number where unsaid.
    """

    name: Name
    host: Name
    kind: str
    uuid: str | None = None
    total_bytes: PositiveBytes
    free_bytes: PositiveBytes
    reserve_bytes: Bytes = 0
    overhead_bytes: Bytes = 0
    wire_bytes: Bytes = 0
    read_gb_s: Number | None = None
    read_points: Points | None = None
    tflops: dict[DType, Number] = {}
    matmul_points: Points | None = None
    attention_tflops: Number | None = None
    row_block: Annotated[int, Field(ge=1)] | None = None
    launch_us: Annotated[float, Field(ge=0)] = 0.0
    threads: Annotated[int, Field(ge=1)] | None = None
    dtypes: tuple[DType, ...] = ("bfloat16", "float16", "float32")
    scratch: Layout | None = None

    @model_serializer(mode="wrap")
    def _without_absent(self, fields: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A file from before a field has the digest that it had."""
        data: dict[str, Any] = fields(self)
        return {key: value for key, value in data.items()
                if value or key not in _LATER}  # fmt: skip

    @model_validator(mode="after")
    def _numbers_agree(self) -> Self:
        if self.free_bytes > self.total_bytes:
            raise ValueError(f"free_bytes must be at most total_bytes {self.total_bytes}, "
                             f"found {self.free_bytes}")  # fmt: skip
        if self.read_gb_s is None and self.read_points is None:
            raise ValueError("expected read_gb_s or read_points, found neither")
        return self

    @property
    def layout(self) -> Layout:
        """How a rank on it lays out scratch (ir/buffers.py)."""
        return self.scratch or ("block" if self.kind == "cpu" else "chunk")

    @property
    def budget_bytes(self) -> int:
        """free - reserve: what a plan may fill, overhead included. May be negative."""
        return self.free_bytes - self.reserve_bytes

    def read_curve(self) -> Curve:
        """Time of one kernel that streams so many bytes of weights, launch not included."""
        if self.read_points:
            return Curve(((0.0, 0.0), *self.read_points))
        assert self.read_gb_s is not None
        return Curve.from_rate(self.read_gb_s)

    def matmul_tflops(self, rows: int, dtype: str) -> float | None:
        """TFLOP/s of a matrix product of so many rows; None when the topology does not say. What is
        said of one 16-bit format counts for the other one, of which nothing is said."""
        if points := self.points_of(dtype):
            return _rate_at(points, rows)
        return self.tflops.get(self._said(dtype))  # type: ignore[call-overload,no-any-return]

    def computed_rows(self, rows: int) -> int:
        """Rows of a prompt's products, for so many that count."""
        block = self.row_block or 1
        return -(-rows // block) * block

    def points_of(self, dtype: str) -> Points | None:
        """matmul_points where they are of this format: that of the highest tflops, as planprobe
        writes them, or any where tflops names none."""
        best = max(self.tflops.values(), default=None)
        is_said = self.tflops.get(self._said(dtype)) == best  # type: ignore[call-overload]
        return self.matmul_points if is_said else None

    def _said(self, dtype: str) -> str:
        return dtype if dtype in self.tflops else _TWINS.get(dtype, dtype)


def _rate_at(points: Points, rows: int) -> float:
    """Linear between points; held flat outside, since a rate does not grow for ever."""
    if rows <= points[0][0]:
        return points[0][1] * rows / points[0][0]
    for (x0, y0), (x1, y1) in pairwise(points):
        if rows <= x1:
            return y0 + (y1 - y0) * (rows - x0) / (x1 - x0)
    return points[-1][1]


class Link(Frozen):
    """One direction between two devices. points: (bytes, us) win over the scalars."""

    from_: Annotated[str, Field(alias="from")]
    to: str
    mode: LinkMode
    latency_us: Number | None = None
    bandwidth_gb_s: Number | None = None
    trunk: str | None = None
    points: Points | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _is_measured(self) -> Self:
        if self.points is None and (self.latency_us is None or self.bandwidth_gb_s is None):
            raise ValueError("expected points, or latency_us and bandwidth_gb_s; found neither")
        return self

    def curve(self) -> Curve:
        if self.points:
            return Curve(self.points)
        assert self.bandwidth_gb_s is not None
        assert self.latency_us is not None
        return Curve.from_rate(self.bandwidth_gb_s, self.latency_us)


class Topology(Frozen):
    format: Literal["plancc.topology/1"] = "plancc.topology/1"
    name: Annotated[str, Field(min_length=1)]
    hosts: Annotated[tuple[Host, ...], Field(min_length=1)]
    devices: Annotated[tuple[Device, ...], Field(min_length=1)]
    links: tuple[Link, ...] = ()
    exchanges: tuple[Exchange, ...] = ()

    @model_validator(mode="after")
    def _names_are_single(self) -> Self:
        for what, names in (
            ("hosts", [host.name for host in self.hosts]),
            ("devices", [device.name for device in self.devices]),
            ("devices uuid", [device.uuid for device in self.devices if device.uuid]),
        ):
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"{what}: expected each once, found {name!r} twice")
        hosts = {host.name for host in self.hosts}
        for device in self.devices:
            if device.host not in hosts:
                raise ValueError(f"devices.{device.name}.host: expected one of {sorted(hosts)}, "
                                 f"found {device.host!r}")  # fmt: skip
        return self

    @model_validator(mode="after")
    def _every_pair_is_measured_once(self) -> Self:
        names = [device.name for device in self.devices]
        pairs = [(link.from_, link.to) for link in self.links]
        for pair in pairs:
            for name in pair:
                if name not in names:
                    raise ValueError(f"links {pair[0]}->{pair[1]}: expected a device of this "
                                     f"file, found {name!r}")  # fmt: skip
            if pairs.count(pair) > 1:
                raise ValueError(f"links: expected {pair[0]}->{pair[1]} once, found it twice")
        for pair in permutations(names, 2):
            if pair not in pairs:
                raise ValueError(f"links: expected a row {pair[0]}->{pair[1]}, found none "
                                 f"(each direction is measured, never mirrored)")  # fmt: skip
        for exchange in self.exchanges:
            unknown = sorted(set(exchange.group) - set(names))
            if unknown:
                raise ValueError(f"exchanges: no device {unknown[0]!r} found in this file")
        return self

    def device(self, name: str) -> Device | None:
        return next((device for device in self.devices if device.name == name), None)

    def opened_bytes(self, device: Device, workers: Literal["host", "device"]) -> int:
        """What is taken of a device that has a rank, before the rank: its overhead, and wires where
        processes of one device each reach each other's (modes p2p and staged)."""
        reaches = any(device.name in (link.from_, link.to) and link.mode in ("p2p", "staged")
                      for link in self.links)  # fmt: skip
        has_wires = workers == "device" and reaches
        return device.overhead_bytes + (device.wire_bytes if has_wires else 0)

    def link(self, source: str, target: str) -> Link | None:
        """The measured row; None for a device to itself where no row was written."""
        pair = (source, target)
        return next((link for link in self.links if (link.from_, link.to) == pair), None)

    def exchange(self, names: Sequence[str]) -> Exchange | None:
        """The measured exchange of exactly these devices, in whatever order they were written."""
        wanted = sorted(names)
        return next((row for row in self.exchanges if sorted(row.group) == wanted), None)

    def digest(self) -> str:
        """Of what the file says, in whatever order it lists hosts, devices, links and exchanges."""
        return sha256_of(self._by_name().model_dump(mode="json", by_alias=True))

    def _by_name(self) -> Self:
        rows = [row.model_copy(update={"group": tuple(sorted(row.group))})
                for row in self.exchanges]  # fmt: skip
        return self.model_copy(
            update={
                "hosts": tuple(sorted(self.hosts, key=lambda host: host.name)),
                "devices": tuple(sorted(self.devices, key=lambda device: device.name)),
                "links": tuple(sorted(self.links, key=lambda link: (link.from_, link.to))),
                "exchanges": tuple(sorted(rows, key=lambda row: row.group)),
            }
        )


def read_topology(path: Path) -> Topology:
    """The topology in a YAML file. Raises BadInput naming file, field, found and expected."""
    return parse_document(Topology, read_yaml(path, "topology"), str(path), TOPOLOGY_FORMAT)
