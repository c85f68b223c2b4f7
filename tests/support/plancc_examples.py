"""One small llama on three unequal devices: the example that compiler tests share."""

import json
from pathlib import Path
from typing import Any

import yaml
from plancc_builders import build_device, build_manifest, build_topology

from plancc.compiler.api import compile
from plancc.ir.ask import Ask
from plancc.ir.manifest import ModelManifest, ModelShape
from plancc.ir.plan import Plan
from plancc.ir.topology import Topology

KIB = 2**10
HIDDEN, INNER, VOCAB, NUM_LAYERS = 64, 192, 512, 6


def tiny_manifest(**fields: Any) -> ModelManifest:
    """Six layers in float32, tied head, with an index of one tensor."""
    mixer = {
        "kind": "attention", "weight_bytes": 4 * HIDDEN * (64 + 32 + 32 + 64 + 2),
        "num_heads": 4, "num_kv_heads": 2, "head_dim": 16,
    }  # fmt: skip
    mlp = {"kind": "swiglu", "weight_bytes": 4 * 3 * HIDDEN * INNER, "intermediate_size": INNER}
    matrix = 4 * VOCAB * HIDDEN
    shape = ModelShape.model_validate(
        {
            "name": "tiny", "family": "llama", "dtype": "float32", "hidden_size": HIDDEN,
            "vocab_size": VOCAB, "max_context": 256,
            "geometry": {"norm_eps": 1e-5, "rope": {"default": {"theta": 10000.0}}},
            "layers": [{"repeat": NUM_LAYERS, "pattern": [{"mixer": mixer, "mlp": mlp}]}],
            "blocks": [
                {"name": "embed", "weight_bytes": matrix, "place": "first"},
                {"name": "head", "weight_bytes": matrix + 4 * HIDDEN, "place": "last",
                 "tied_to": "embed"},
            ],
        }
    )  # fmt: skip
    tensor = {
        "name": "model.norm.weight", "dtype": "F32", "shape": [HIDDEN], "sha256": "a" * 64,
        "file": "model.safetensors", "offset": 8, "bytes": 4 * HIDDEN,
    }  # fmt: skip
    index = {"files": [], "tensors": [tensor]}
    return build_manifest(shape, **{"weights": index, "source": "weights/tiny", **fields})


def three_devices(**fields: Any) -> Topology:
    """Unequal room and speed; d2 is a process of its own, the others share one."""
    rates = {"tflops": {"float32": 1.0}, "launch_us": 2.0, "overhead_bytes": 10 * KIB}
    return build_topology(
        [
            build_device("d0", 1004 * KIB, gb_s=8.0, **rates),
            build_device("d1", 964 * KIB, gb_s=5.0, reserve_bytes=20 * KIB, **rates),
            build_device("d2", 2600 * KIB, gb_s=1.0, threads=1, **rates),
        ],
        name="three",
        **fields,
    )


def tiny_ask(**flags: Any) -> Ask:
    return Ask(**{"context": 64, "prefill_chunk": 16, **flags})


def tiny_plan(**flags: Any) -> Plan:
    """A compiled plan of the example: two devices are needed, d0 and d1 unless asked otherwise."""
    return compile(tiny_manifest(), three_devices(), tiny_ask(**flags))


def write_documents(folder: Path) -> tuple[Path, Path]:
    """model.yaml and topo.yaml of the example in a folder."""
    model, topo = folder / "model.yaml", folder / "topo.yaml"
    manifest = json.loads(tiny_manifest().model_dump_json())
    model.write_text(yaml.safe_dump({"format": "plancc.model/1", **manifest}, sort_keys=False))
    topology = three_devices().model_dump(mode="json", by_alias=True)
    topo.write_text(yaml.safe_dump(topology, sort_keys=False))
    return model, topo
