"""--record: what a run computed, to be compared with another run's bit for bit.

JSON lines, equal byte for byte for equal runs of any two plans of one model:

    {"format": "plancc.record/1", "model": NAME, "weights": SHA256, "prompt": [IDS]}
    {"step": I, "position": P, "token": ID, "logits_sha256": HEX}     one for each token drawn
    {"layer": I, "tokens": N, "kv_sha256": HEX}                       one for each layer with KV
    {"finish": "stop" or "length"}

logits_sha256 is of the row's fp32 bytes; kv_sha256 of the K rows, then the V rows, in the order of
positions. A token that ends the answer is recorded too.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plancc.executor.request import Outcome, RankReport, Sampled
from plancc.ir.errors import RunFailed
from plancc.ir.files import write_whole
from plancc.ir.plan import Plan

RECORD_FORMAT = "plancc.record/1"


def record_rows(
    plan: Plan,
    prompt_ids: Sequence[int],
    sampled: Sequence[Sampled],
    outcome: Outcome,
    reports: Mapping[int, RankReport],
) -> Iterable[dict[str, Any]]:
    """The lines of a record, as plain data."""
    assert plan.weights is not None
    yield {
        "format": RECORD_FORMAT,
        "model": plan.model.name,
        "weights": plan.weights.sha256,
        "prompt": list(prompt_ids),
    }
    for step, row in enumerate(sampled):
        yield {
            "step": step,
            "position": row.position,
            "token": row.token,
            "logits_sha256": row.logits_sha256,
        }
    kv = kv_of_layers(reports)
    for layer in sorted(kv):
        yield {"layer": layer, "tokens": outcome.num_tokens, "kv_sha256": kv[layer]}
    yield {"finish": outcome.finish}


def kv_of_layers(reports: Mapping[int, RankReport]) -> dict[int, str]:
    """Digest of each layer's KV. Raises RunFailed where replicas of a layer differ."""
    found: dict[int, tuple[int, str]] = {}
    for rank, report in sorted(reports.items()):
        for layer, text in report.kv_sha256.items():
            first, other = found.setdefault(layer, (rank, text))
            if text != other:
                raise RunFailed(f"layer {layer}: ranks {first} and {rank} of a group must keep the "
                                f"same KV, found {other[:16]} and {text[:16]}")  # fmt: skip
    return {layer: text for layer, (_, text) in found.items()}


def write_record(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    write_whole(path, "".join(json.dumps(row) + "\n" for row in rows))
