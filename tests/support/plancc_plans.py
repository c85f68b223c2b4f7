"""Plans by hand, without the compiler: any cut of a small model over any workers.

    plan = build_plan(manifest, cuts=(0, 3, 7), devices=("cpu0", "cpu1"), workers=...)

Rows follow the convention of the format: hidden links in stage order, then the driver's steps.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plancc_checkpoints import TinyLlama

from plancc.ir.ask import Ask
from plancc.ir.dtype import ITEMSIZE
from plancc.ir.kernel_spec import KERNELS
from plancc.ir.layers import Block, DenseMlp, Layer, Mixer
from plancc.ir.manifest import Geometry, ModelManifest, Rope
from plancc.ir.plan import Plan
from plancc.ir.sizes import LINK_SLOTS, PAGE_TOKENS
from plancc.ir.weight_folder import weight_index

BUDGET = 2**30


def manifest_of(folder: Path, spec: TinyLlama) -> ModelManifest:
    """The manifest of a tiny checkpoint, written down from its spec."""
    item, hidden, inner = ITEMSIZE[spec.dtype], spec.hidden_size, spec.intermediate_size
    queries, keys = spec.num_heads * spec.head_width, spec.num_kv_heads * spec.head_width
    layer = Layer(
        mixer=Mixer(
            kind="attention",
            weight_bytes=(2 * queries * hidden + 2 * keys * hidden + 2 * hidden) * item,
            num_heads=spec.num_heads,
            num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_width,
            window=spec.sliding_window,
        ),
        mlp=DenseMlp(
            kind="swiglu", weight_bytes=3 * hidden * inner * item, intermediate_size=inner
        ),
    )
    matrix = spec.vocab_size * hidden * item
    return ModelManifest(
        name=folder.name,
        family="llama",
        dtype=spec.dtype,
        hidden_size=hidden,
        vocab_size=spec.vocab_size,
        max_context=spec.max_context,
        geometry=Geometry(norm_eps=spec.norm_eps, rope={"default": Rope(theta=spec.rope_theta)}),
        layers=(layer,) * spec.num_layers,
        blocks=(
            Block(name="embed", weight_bytes=matrix, place="first"),
            Block(
                name="head",
                weight_bytes=matrix + hidden * item,
                place="last",
                tied_to="embed" if spec.tied else None,
            ),
        ),
        source=str(folder),
        weights=weight_index(folder),
    )


def build_plan(
    manifest: ModelManifest,
    cuts: Sequence[int],
    *,
    devices: Sequence[str] | None = None,
    workers: Sequence[Sequence[str]] | None = None,
    head: str = "last",
    context: int = 64,
    chunk: int = 16,
    slots: int = 1,
    kind: str = "fake",
    threads: int = 1,
    **timeouts: float,
) -> Plan:
    """Stages [cuts[i], cuts[i + 1]); a worker for each device unless said otherwise."""
    num_stages = len(cuts) - 1
    devices = devices or [f"cpu{stage}" for stage in range(num_stages)]
    workers = workers or [[name] for name in dict.fromkeys(devices)]
    driver = num_stages - 1 if head == "last" else 0
    links = _links(manifest, devices, workers, driver, head)
    data: dict[str, Any] = {
        "format": "plancc.plan/1",
        "digest": "",
        "provenance": {"plancc": "0.1.0", "solver": _PROOF},
        "inputs": {
            "model": {"name": manifest.name, "sha256": manifest.digest()},
            "topology": {"name": "toy", "sha256": "0" * 64},
        },
        "ask": Ask(context=context, slots=slots, prefill_chunk=chunk).filled(
            manifest.max_context, manifest.dtype
        ).model_dump(mode="json"),
        "model": manifest.shape().model_dump(mode="json"),
        "devices": [_device(name, kind) for name in dict.fromkeys(devices)],
        "stages": [
            {
                "layers": [cuts[stage], cuts[stage + 1]],
                "ranks": [{"device": devices[stage], "mlp_tiles": [0, _tiles(manifest)]}],
                "blocks": (["embed"] if stage == 0 else []) + (["head"] if stage == driver else []),
            }
            for stage in range(num_stages)
        ],
        "links": links,
        "programs": [
            {
                "rank": stage,
                "stage": stage,
                "device": devices[stage],
                "instructions": _program(cuts, stage, links, driver),
            }
            for stage in range(num_stages)
        ],
        "runtime": {
            "context": context,
            "slots": slots,
            "page_tokens": PAGE_TOKENS,
            "pages": slots * -(-context // PAGE_TOKENS),
            "prefill_chunk": chunk,
            "dtype": manifest.dtype,
            "kv_dtype": manifest.dtype,
            "kernels": KERNELS,
            "hosts": [{"name": "h0", "address": "127.0.0.1"}],
            "workers": [
                {"name": f"h0.w{i}", "host": "h0", "devices": list(names), "threads": threads}
                for i, names in enumerate(workers)
            ],
            "timeouts": timeouts,
        },
        "weights": {
            "source": manifest.source,
            "format": "safetensors",
            "fingerprint": "sampled",
            "sha256": manifest.weights.digest() if manifest.weights else "0" * 64,
        },
        "predicted": {"decode": _predicted(num_stages)},
    }  # fmt: skip
    plan = Plan.model_validate(data)
    return plan.model_copy(update={"digest": plan.computed_digest()})


def write_plan(plan: Plan, path: Path) -> Path:
    path.write_text(plan.to_json(), encoding="utf-8")
    return path


def _links(
    manifest: ModelManifest, devices: Sequence[str], workers: Sequence[Sequence[str]], driver: int,
    head: str,
) -> list[dict[str, Any]]:  # fmt: skip
    home = {name: index for index, names in enumerate(workers) for name in names}
    last = len(devices) - 1
    pairs = [(stage, stage + 1, "hidden") for stage in range(last)]
    pairs += [(last, 0, "hidden")] if head == "first" and last else []
    pairs += [(driver, rank, "step") for rank in range(last + 1) if rank != driver]
    row = manifest.hidden_size * ITEMSIZE[manifest.dtype]
    return [
        {
            "from": a,
            "to": b,
            "payload": payload,
            "transport": "local" if home[devices[a]] == home[devices[b]] else "gloo",
            "bytes_per_row": row if payload == "hidden" else 8,
            "slots": LINK_SLOTS,
        }
        for a, b, payload in pairs
    ]


def _program(
    cuts: Sequence[int], stage: int, links: list[dict[str, Any]], driver: int
) -> list[dict[str, Any]]:
    rows = list(enumerate(links))
    news = [i for i, row in rows if row["payload"] == "step" and stage in (row["from"], row["to"])]
    came = [i for i, row in rows if row["payload"] == "hidden" and row["to"] == stage]
    goes = [i for i, row in rows if row["payload"] == "hidden" and row["from"] == stage]
    is_driver, returns = stage == driver, bool(came) and stage == driver == 0
    run = {"op": "run", "segment": 0, "layers": [cuts[stage], cuts[stage + 1]]}
    program: list[dict[str, Any]] = [
        {"op": "send" if is_driver else "recv", "link": link} for link in news
    ]
    if not returns:
        program += [{"op": "recv", "link": link} for link in came]
        is_whole = is_driver and not goes
        program += [run | {"embed": stage == 0, "head": is_whole}]
        program += [{"op": "free", "link": link} for link in came]
        program += [{"op": "send", "link": link} for link in goes]
        return program + ([{"op": "sample"}] if is_driver else [])
    program += [run | {"embed": True}, {"op": "send", "link": goes[0]}]
    program += [{"op": "recv", "link": came[0]}]
    program += [{"op": "run", "segment": 1, "layers": [0, 0], "head": True}]
    return [*program, {"op": "free", "link": came[0]}, {"op": "sample"}]


def _tiles(manifest: ModelManifest) -> int:
    mlp = manifest.layers[0].mlp
    return mlp.num_tiles if isinstance(mlp, DenseMlp) else 1


def _device(name: str, kind: str) -> dict[str, Any]:
    parts = ("weights", "kv", "state", "blocks", "hop_buffers", "workspace", "overhead")
    ledger = dict.fromkeys(parts, 0) | {"weights": 2**20, "total": 2**20}
    return {
        "name": name,
        "host": "h0",
        "kind": kind,
        "budget_bytes": BUDGET,
        "ledger": ledger | {"free_after": BUDGET - 2**20},
    }


def _predicted(num_stages: int) -> dict[str, Any]:
    stage = {"compute_ns": 1_000_000, "hop_ns": 100_000}
    return {
        "step_ns": 1_100_000 * num_stages,
        "tokens_per_s": 900.0,
        "stages": [stage] * num_stages,
    }


_PROOF = {
    "name": "by hand", "version": "0", "space": "given", "status": "optimal",
    "objective": "latency", "value": 1, "bound": 1, "best": 1, "best_bound": 1, "gap": 0.0,
}  # fmt: skip
