"""Small models, topologies and asks for tests. Sizes are bytes; GIB and MIB are integers."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from typing import Any

from plancc.ir.ask import Ask
from plancc.ir.layers import Block, DenseMlp, Layer, Mixer
from plancc.ir.manifest import ModelManifest, ModelShape
from plancc.ir.topology import Device, Host, Link, Topology

KIB, MIB, GIB = 2**10, 2**20, 2**30


def gib(amount: float) -> int:
    """Whole bytes of so many GiB, rounded down as the documents round."""
    return int(amount * GIB)


def build_layer(
    weight_bytes: int,
    *,
    kv: int = 0,
    window: int | None = None,
    state: int = 0,
    kv_from: int | None = None,
    mlp_bytes: int = 0,
    workspace: int = 0,
    kind: str | None = None,
    **mixer: Any,
) -> Layer:
    """A layer by bytes: `weight_bytes` in all, of which `mlp_bytes` are an MLP that can be cut."""
    kind = kind or ("attention" if kv or mixer or kv_from is not None else "other")
    own_kv = {} if kv_from is not None or mixer else {"kv_bytes_per_token": kv}
    return Layer(
        mixer=Mixer.model_validate(
            {"kind": kind, "weight_bytes": weight_bytes - mlp_bytes, "window": window}
            | own_kv
            | mixer
        ),
        mlp=DenseMlp(kind="swiglu", weight_bytes=mlp_bytes) if mlp_bytes else None,
        kv_from=kv_from,
        state_bytes_per_slot=state,
        workspace_bytes=workspace,
    )


def build_model(
    layers: Iterable[Layer],
    *,
    embed: int = 0,
    head: int = 0,
    tied: bool = False,
    blocks: Sequence[Block] = (),
    hidden_size: int = 64,
    **fields: Any,
) -> ModelShape:
    """A bytes-only model. `embed` and `head` are their bytes (0: no such block), on first, last."""
    ends = []
    if embed:
        ends.append(Block(name="embed", weight_bytes=embed, place="first"))
    if head:
        tied_to = "embed" if tied else None
        ends.append(Block(name="head", weight_bytes=head, place="last", tied_to=tied_to))
    values: dict[str, Any] = {
        "name": "toy",
        "dtype": "bfloat16",
        "hidden_size": hidden_size,
        "max_context": 131072,
        "layers": tuple(layers),
        "blocks": (*ends, *blocks),
    }
    return ModelShape(**(values | fields))


def build_manifest(model: ModelShape, **fields: Any) -> ModelManifest:
    """The same model as a manifest, without weights unless given."""
    shape = {name: getattr(model, name) for name in ModelShape.model_fields}
    return ModelManifest(**(shape | fields))


def llama_8b() -> ModelShape:
    """Llama-3.1-8B with its geometry: 32 layers, untied head."""
    layer = Layer(
        mixer=Mixer(
            kind="attention",
            weight_bytes=83902464,
            num_heads=32,
            num_kv_heads=8,
            head_dim=128,
        ),
        mlp=DenseMlp(kind="swiglu", weight_bytes=352321536, intermediate_size=14336),
    )
    return build_model(
        [layer] * 32,
        embed=1050673152,
        head=1050681344,
        hidden_size=4096,
        name="Llama-3.1-8B",
        family="llama",
        vocab_size=128256,
        geometry={"norm_eps": 1e-5, "rope": {"default": {"theta": 500000.0}}},
    )


def build_device(name: str, free: float | int, *, gb_s: float = 500.0, **fields: Any) -> Device:
    """A device with `free` bytes (an int) or GiB (a float)."""
    size = free if isinstance(free, int) else gib(free)
    values = {
        "name": name,
        "host": "h0",
        "kind": "cuda",
        "total_bytes": size,
        "free_bytes": size,
        "read_gb_s": gb_s,
    }
    return Device.model_validate(values | fields)


def build_topology(
    devices: Sequence[Device],
    *,
    latency_us: float = 20.0,
    gb_s: float = 12.0,
    mode: str = "staged",
    links: Mapping[tuple[str, str], Mapping[str, Any]] | None = None,
    **fields: Any,
) -> Topology:
    """Every ordered pair linked alike, but for what `links` says of a pair."""
    rows = []
    special = dict(links or {})
    pairs = list(permutations([device.name for device in devices], 2))
    for pair in pairs + [pair for pair in special if pair not in pairs]:
        row = {"mode": mode, "latency_us": latency_us, "bandwidth_gb_s": gb_s}
        row |= special.get(pair, {})
        rows.append(Link.model_validate({"from": pair[0], "to": pair[1]} | row))
    hosts = sorted({device.host for device in devices})
    values = {
        "name": "toy",
        "hosts": tuple(Host(name=host, address="127.0.0.1") for host in hosts),
        "devices": tuple(devices),
        "links": tuple(rows),
    }
    return Topology(**(values | fields))


def build_ask(model: ModelShape, **flags: Any) -> Ask:
    """An ask with the model's defaults filled in, as `place` expects it."""
    return Ask(**flags).filled(model.max_context, model.dtype)
