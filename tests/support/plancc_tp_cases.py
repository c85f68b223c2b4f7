"""Small questions about TP groups: layers whose MLP can be cut, and what an answer looks like."""

from typing import Any

from plancc_builders import (
    KIB,
    build_device,
    build_manifest,
    build_model,
    build_topology,
    gib,
)

from plancc.compiler.api import compile
from plancc.compiler.check import check_plan
from plancc.compiler.placement.placement import Placement
from plancc.ir.ask import Ask
from plancc.ir.exchange import Exchange
from plancc.ir.layers import DenseMlp, Layer, Mixer
from plancc.ir.legality import plan_problems
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Plan
from plancc.ir.topology import Topology


def cut_layer(
    mixer: int, mlp: int, *, inner: int = 16384, group: int = 1, tiles: int | None = None,
    kv: int = 0, **fields: Any,
) -> Layer:  # fmt: skip
    """A layer of so many bytes of mixer and of MLP; the MLP can be cut in 16 tiles unless said."""
    parts = Mixer(kind="attention", weight_bytes=mixer, kv_bytes_per_token=kv)
    dense = DenseMlp(kind="swiglu", weight_bytes=mlp, intermediate_size=inner, group=group,
                     tiles=tiles)  # fmt: skip
    return Layer.model_validate({"mixer": parts, "mlp": dense} | fields)


def cut_model(count: int, mixer: int, mlp: int, hidden_size: int = 64, **fields: Any) -> ModelShape:
    """`count` layers alike. Fields of a layer and of the model go where they belong."""
    of_model = {name: fields.pop(name) for name in ("embed", "head", "blocks") if name in fields}
    return build_model([cut_layer(mixer, mlp, **fields)] * count, hidden_size=hidden_size,
                       **of_model)  # fmt: skip


def cut_bytes(
    count: int, size: float, mlp_share: float, hidden_size: int, **fields: Any
) -> ModelShape:
    """Layers of `size` GiB, of which so large a part is MLP."""
    mlp = int(gib(size) * mlp_share)
    return cut_model(count, gib(size) - mlp, mlp, hidden_size, **fields)


def forms_of(placement: Placement) -> list[tuple[str, tuple[str, ...], tuple[int, int]]]:
    """(mixer, devices in rank order, layers) of every stage."""
    return [(stage.mixer, stage.devices, stage.layers) for stage in placement.stages]


def counts_of(placement: Placement) -> list[tuple[int, ...]]:
    """Tiles of each rank, stage by stage."""
    return [tuple(end - first for first, end in stage.tiles) for stage in placement.stages]


def sound_plan(model: ModelShape, topology: Topology, **flags: Any) -> Plan:
    """The compiled plan, which the executor's law and the checker find nothing wrong with."""
    manifest = build_manifest(model)
    plan = compile(manifest, topology, Ask(**flags))
    assert plan_problems(plan) == ()
    assert check_plan(plan, manifest, topology) == ()
    return plan


def values_of(placement: Placement | Plan) -> dict[str, int]:
    """Predicted ns of every shape that was timed, by its name."""
    return {row.shape: row.value for row in placement.alternatives if row.value is not None}


def four_devices(free: int = 1500) -> Topology:
    """Unequal rates, a measured exchange, a trunk; links so fast that groups pay for a toy."""
    rates = {"tflops": {"float32": 1.0}, "overhead_bytes": 10 * KIB}
    devices = [build_device(f"d{i}", free * KIB, gb_s=8.0 - i % 3, threads=1, **rates)
               for i in range(4)]  # fmt: skip
    trunk = {pair: {"trunk": "bus"} for pair in (("d2", "d3"), ("d3", "d2"))}
    measured = Exchange(group=("d1", "d0"), points=((256.0, 0.5), (65536.0, 4.0)))
    return build_topology(devices, name="four", links=trunk, latency_us=0.3, gb_s=40.0,
                          exchanges=(measured,))  # fmt: skip
