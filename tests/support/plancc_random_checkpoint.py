"""Random checkpoints of any llama's shape, as large as it is, written as fast as the disk takes it.

    python tests/support/plancc_random_checkpoint.py MODEL OUT [--seed 0] [--dtype bfloat16]
        [--as-llama]

MODEL is a manifest with geometry, the stem of one in plans/models (llama-3.1-8b, smollm2-135m,
mistral-small-24b, llama-3.3-70b ...), llama-8b or tiny. Of families that planrun does not run
(qwen3-8b, gemma-3-27b ...) --as-llama writes a llama of the same sizes. OUT becomes a model folder
that `plancc manifest` reads: config, toy tokenizer, shards of at most 5 GB, index.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import RawIOBase
from math import prod
from pathlib import Path
from typing import Any

from plancc_as_llama import as_llama, check_family
from plancc_checkpoints import CODES, TinyLlama, config_of, generation_config_of, write_json
from plancc_random_numbers import RandomNumbers
from plancc_toy_tokenizer import write_tokenizer

from plancc.compiler.frontends.architectures import read_architecture
from plancc.ir.dtype import ITEMSIZE
from plancc.ir.errors import BadInput
from plancc.ir.layers import DenseMlp
from plancc.ir.manifest import ModelShape, read_manifest
from plancc.ir.tensors import rank_pieces

ROOT = Path(__file__).resolve().parents[2]
SHARD_BYTES = 5 * 10**9
THREADS = 4
Shapes = Mapping[str, tuple[int, ...]]
_ALIASES = {"llama-8b": "llama-3.1-8b"}


@dataclass(frozen=True)
class Written:
    """What was written and how long it took, the page cache included."""

    folder: Path
    size_bytes: int
    num_shards: int
    seconds: float

    @property
    def gb_s(self) -> float:
        return self.size_bytes / self.seconds / 1e9


def shape_named(name: str, dtype: str | None = None, *, is_llama: bool = False) -> ModelShape:
    """The shape that MODEL means; is_llama: one of its sizes. Raises BadInput, also where a
    checkpoint cannot say it."""
    if name == "tiny":
        config = config_of(TinyLlama())
    else:
        shape = _manifest_named(name)
        config = config_of_shape(as_llama(shape) if is_llama else shape)
    if dtype:
        config["torch_dtype"] = dtype
    return read_architecture(config, where=name, name=name).shape


def write_random_checkpoint(
    folder: Path, shape: ModelShape, seed: int = 0, shard_bytes: int = SHARD_BYTES
) -> Written:
    """Write a model folder of that shape. The same arguments give the same bytes.

    Raises BadInput for a shape that config.json cannot say, and where the folder has files.
    """
    config = config_of_shape(shape)
    if folder.exists() and any(folder.iterdir()):
        raise BadInput(f"{folder}: expected a new or empty folder, found files in it")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", generation_config_of(TinyLlama()))
    write_tokenizer(folder, config["vocab_size"])
    start = time.monotonic()
    shards = _shards(tensor_shapes(shape), ITEMSIZE[shape.dtype], shard_bytes)
    _write_shards(folder, shards, _numbers(seed, shape), shape.dtype)
    size = sum(prod(s) for shard in shards.values() for s in shard.values()) * ITEMSIZE[shape.dtype]
    if len(shards) > 1:
        weight_map = {name: file for file, shard in shards.items() for name in shard}
        index = {"metadata": {"total_size": size}, "weight_map": weight_map}
        write_json(folder / "model.safetensors.index.json", index)
    return Written(folder, size, len(shards), time.monotonic() - start)


def _numbers(seed: int, shape: ModelShape) -> RandomNumbers:
    return RandomNumbers(seed, shape.dtype, max(map(prod, tensor_shapes(shape).values())))


def tensor_shapes(shape: ModelShape) -> dict[str, tuple[int, ...]]:
    """Every tensor of the model by name, in the order of loading; a tied head is none."""
    pieces = rank_pieces(shape, (0, len(shape.layers)), blocks=("embed", "head"))
    return {piece.spec.name: piece.spec.shape for piece in pieces}


def config_of_shape(shape: ModelShape) -> dict[str, Any]:
    """config.json of that shape. Raises BadInput where it would be read as another one."""
    check_family(shape)
    tensor_shapes(shape)  # says which layers have tensors
    mixer, mlp = shape.layers[0].mixer, shape.layers[0].mlp
    assert isinstance(mlp, DenseMlp), "rank_pieces has refused others"
    if shape.geometry is None or list(shape.geometry.rope) != ["default"]:
        raise BadInput(f"{shape.name}: expected a geometry with one rope, found none or several")
    rope = shape.geometry.rope["default"]
    config: dict[str, Any] = {
        "architectures": ["MistralForCausalLM" if mixer.window else "LlamaForCausalLM"],
        "model_type": "mistral" if mixer.window else "llama",
        "hidden_size": shape.hidden_size,
        "intermediate_size": mlp.intermediate_size,
        "num_hidden_layers": len(shape.layers),
        "num_attention_heads": mixer.num_heads,
        "num_key_value_heads": mixer.num_kv_heads,
        "head_dim": mixer.head_dim,
        "hidden_act": "silu",
        "vocab_size": shape.vocab_size,
        "max_position_embeddings": shape.max_context,
        "rms_norm_eps": shape.geometry.norm_eps,
        "tie_word_embeddings": shape.has_tied_head,
        "attention_bias": mixer.q_bias,
        "mlp_bias": shape.geometry.mlp_bias,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "torch_dtype": shape.dtype,
        "rope_theta": rope.theta,
        "rope_scaling": _scaling(rope.scaling),
    }
    if mixer.window:
        config["sliding_window"] = mixer.window
    _same_shape(shape, config)
    return config


def _scaling(scaling: Any) -> dict[str, Any] | None:
    if scaling is None:
        return None
    data = scaling.model_dump(exclude_none=True)
    names = {"kind": "rope_type", "original_context": "original_max_position_embeddings"}
    return {names.get(key, key): value for key, value in data.items()}


def _same_shape(shape: ModelShape, config: Mapping[str, Any]) -> None:
    read = read_architecture(config, where=shape.name, name=shape.name).shape
    mine, found = (tensor_shapes(model) for model in (shape, read))
    fields = ("hidden_size", "vocab_size", "geometry", "max_context", "has_tied_head")
    wrong = [name for name in fields if getattr(read, name) != getattr(shape, name)]
    wrong += [f"tensor {name}" for name in mine if found.get(name) != mine[name]]
    if wrong or len(mine) != len(found):
        raise BadInput(f"{shape.name}: a llama's config.json cannot say its {wrong[:3]}")


def _manifest_named(name: str) -> ModelShape:
    path = Path(name)
    if path.suffix != ".yaml":
        path = ROOT / "plans" / "models" / f"{_ALIASES.get(name, name)}.yaml"
    return read_manifest(path).shape()


def _shards(
    shapes: Shapes, itemsize: int, shard_bytes: int
) -> dict[str, dict[str, tuple[int, ...]]]:
    """Tensors by file, in order, a new file where the next one would grow over the limit."""
    groups: list[dict[str, tuple[int, ...]]] = []
    size = shard_bytes
    for name, shape in shapes.items():
        num_bytes = prod(shape) * itemsize
        if size + num_bytes > shard_bytes:
            groups.append({})
            size = 0
        groups[-1][name] = shape
        size += num_bytes
    if len(groups) == 1:
        return {"model.safetensors": groups[0]}
    count = len(groups)
    return {f"model-{i + 1:05d}-of-{count:05d}.safetensors": g for i, g in enumerate(groups)}


def _write_shards(
    folder: Path, shards: Mapping[str, Shapes], numbers: RandomNumbers, dtype: str
) -> None:
    """A thread for each file: two that write into one wait for each other in the kernel."""
    with ThreadPoolExecutor(THREADS) as pool:
        jobs = [
            pool.submit(_write_shard, folder / file, shapes, numbers, dtype)
            for file, shapes in shards.items()
        ]
        for job in jobs:
            job.result()


def _write_shard(path: Path, shapes: Shapes, numbers: RandomNumbers, dtype: str) -> None:
    with path.open("wb", buffering=0) as file:
        _write(file, _header(shapes, dtype))
        for name, shape in shapes.items():
            for part in numbers.parts(name, shape):
                _write(file, part)


def _header(shapes: Shapes, dtype: str) -> bytes:
    """The header, padded to 8 bytes, of tensors that lie one after the other."""
    rows: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    size = 0
    for name, shape in shapes.items():
        end = size + prod(shape) * ITEMSIZE[dtype]
        rows[name] = {"dtype": CODES[dtype], "shape": list(shape), "data_offsets": [size, end]}
        size = end
    text = json.dumps(rows, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _write(file: RawIOBase, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a random checkpoint of a llama's shape.")
    parser.add_argument("model", help="a manifest, a name of plans/models, llama-8b or tiny")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=sorted(ITEMSIZE))
    parser.add_argument("--as-llama", action="store_true", help="a llama of the model's sizes")
    flags = parser.parse_args()
    try:
        shape = shape_named(flags.model, flags.dtype, is_llama=flags.as_llama)
        done = write_random_checkpoint(flags.out, shape, flags.seed)
    except BadInput as error:
        sys.exit(f"error: {error}")
    print(f"{done.folder}: {done.size_bytes / 1e9:.2f} GB in {done.num_shards} shard(s), "
          f"{done.seconds:.1f} s, {done.gb_s:.2f} GB/s")  # fmt: skip


if __name__ == "__main__":
    main()
