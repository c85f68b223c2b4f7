"""Plans with TP groups, made by the passes from given shapes: examples that tests share."""

from typing import Any

from plancc_bruteforce import Candidate
from plancc_bruteforce_bytes import Group
from plancc_builders import build_device, build_topology
from plancc_examples import KIB, NUM_LAYERS, tiny_ask, tiny_manifest
from plancc_shape_words import lowered_plan

from plancc.ir.exchange import Exchange
from plancc.ir.manifest import ModelManifest
from plancc.ir.plan import Plan
from plancc.ir.topology import Topology

TILES = 16
TWO_GROUPS = Candidate(
    groups=(Group(("d0", "d1"), "replicated"), Group(("d2", "d3"), "owned")),
    cuts=(0, 3, NUM_LAYERS),
    tiles=(((0, 8), (8, TILES)), ((0, 12), (12, TILES))),
    head="last",
    homes=(),
)
"""Layers 0..2 replicated on d0 and d1, 3..5 owned by d2, which d3 helps with a quarter."""


def many_devices(count: int = 4, **fields: Any) -> Topology:
    """Unequal rates, one host; the exchange of d0 and d1 was measured, d2 and d3 share a trunk."""
    rates = {"tflops": {"float32": 1.0}, "launch_us": 2.0, "overhead_bytes": 10 * KIB}
    devices = [
        build_device(f"d{i}", 4000 * KIB, gb_s=8.0 - i % 3, threads=1, **rates)
        for i in range(count)
    ]
    measured = (Exchange(group=("d1", "d0"), points=((256.0, 9.0), (65536.0, 20.0))),)
    trunk = {pair: {"trunk": "bus"} for pair in (("d2", "d3"), ("d3", "d2"))}
    values: dict[str, Any] = {"name": "many", "links": trunk, "exchanges": measured}
    return build_topology(devices, **(values | fields))


def group_plan(
    shape: Candidate = TWO_GROUPS,
    topology: Topology | None = None,
    manifest: ModelManifest | None = None,
    **flags: Any,
) -> Plan:
    """The tiny llama in a given shape; its proof says that this shape is the best."""
    manifest, topology = manifest or tiny_manifest(), topology or many_devices()
    ask = tiny_ask(**flags).filled(manifest.max_context, manifest.dtype)
    return lowered_plan(manifest, topology, ask, shape)
