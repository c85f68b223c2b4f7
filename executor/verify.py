"""--verify: the same prompts under two plans of one model. Are the bits the same, or how far apart?

Plans that promise the same bits (verify_models.py) must agree whatever their placements: the first
difference is told, or equality. Where they do not, the second plan is fed the tokens of the first,
and what is told is how likely each finds them (perplexity), the KL divergence of its distributions,
and how often both have one top.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plancc.executor.messages import Report
from plancc.executor.record import kv_of_layers
from plancc.executor.request import Outcome, Request, Sampled
from plancc.executor.session import Session
from plancc.ir.plan import Plan

_SHORT_PROMPT = 7
Logits = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class Seen:
    """What a plan made of one prompt."""

    sampled: tuple[Sampled, ...]
    kv: dict[int, str]

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(row.token for row in self.sampled)


@dataclass(frozen=True)
class Difference:
    """The first one: of logits or tokens at a position, or of a layer's KV."""

    prompt: int
    what: str
    position: int | None
    layer: int | None
    found: tuple[str, str]

    def __str__(self) -> str:
        where = f"position {self.position}" if self.layer is None else f"layer {self.layer}"
        one, other = self.found
        return f"prompt {self.prompt}, {where}: {self.what} {one} and {other}"


def made_up_prompts(plans: Sequence[Plan], max_tokens: int) -> tuple[tuple[int, ...], ...]:
    """A short one and one of several chunks, as far as every plan has room beside the answers;
    half of the smallest context where such answers leave none."""
    context = min(plan.runtime.context for plan in plans)
    room = context - max_tokens
    if room < _SHORT_PROMPT:
        room = max(1, context // 2)
    chunk = max(plan.runtime.prefill_chunk for plan in plans)
    vocab_size = min(plan.model.vocab_size or 1 for plan in plans)
    counts = sorted({min(_SHORT_PROMPT, room), min(2 * chunk + 3, room)})
    return tuple(tuple(7919 * (index + 1) % vocab_size for index in range(count))
                 for count in counts)  # fmt: skip


def see(session: Session, request: Request) -> Seen:
    """Run a request and ask for the KV that it left."""
    sampled: list[Sampled] = []
    for item in session.generate(request):
        if isinstance(item, Sampled):
            sampled.append(item)
        elif isinstance(item, Outcome):
            outcome = item
    ask = Report(slot=outcome.slot, num_tokens=outcome.num_tokens, wants_kv=True)
    return Seen(tuple(sampled), kv_of_layers(session.reports(ask)))


def first_difference(one: Sequence[Seen], other: Sequence[Seen]) -> Difference | None:
    """In the order in which things were computed: logits, the token drawn, then KV by layer."""
    for prompt, (a, b) in enumerate(zip(one, other, strict=True)):
        for left, right in zip(a.sampled, b.sampled, strict=False):
            at = left.position
            if left.logits_sha256 != right.logits_sha256:
                found = (str(left.logits_sha256)[:16], str(right.logits_sha256)[:16])
                return Difference(prompt, "logits", at, None, found)
            if left.token != right.token:
                return Difference(prompt, "tokens", at, None, (str(left.token), str(right.token)))
        if len(a.sampled) != len(b.sampled):
            longer = max(a.sampled, b.sampled, key=len)
            at = longer[min(len(a.sampled), len(b.sampled))].position
            found = (str(len(a.sampled)), str(len(b.sampled)))
            return Difference(prompt, "numbers of tokens", at, None, found)
        for layer in sorted(a.kv.keys() | b.kv.keys()):
            found = (a.kv.get(layer, "none")[:16], b.kv.get(layer, "none")[:16])
            if a.kv.get(layer) != b.kv.get(layer):
                return Difference(prompt, "KV", None, layer, found)
    return None


def read_logits(path: Path, vocab_size: int) -> Logits:
    """[steps, vocab_size] as the driver appended them."""
    return np.fromfile(path, np.float32).reshape(-1, vocab_size)


def distance(one: Logits, other: Logits, tokens: Sequence[int]) -> dict[str, float]:
    """Over the steps: perplexity of the tokens under each, KL(one || other) in nats, and the share
    of steps with the same top token. Each row of one stands beside the same step of the other."""
    assert one.shape == other.shape, f"logits of {one.shape} and {other.shape}"
    assert len(one) == len(tokens), f"{len(one)} rows of logits for {len(tokens)} tokens"
    rows = np.arange(len(tokens))
    logs = [_log_softmax(logits) for logits in (one, other)]
    p = np.exp(logs[0])
    return {
        "perplexity": float(np.exp(-logs[0][rows, list(tokens)].mean())),
        "other_perplexity": float(np.exp(-logs[1][rows, list(tokens)].mean())),
        "kl_divergence": float((p * (logs[0] - logs[1])).sum(axis=1).mean()),
        "top1_agreement": float((logs[0].argmax(axis=1) == logs[1].argmax(axis=1)).mean()),
    }


def _log_softmax(logits: Logits) -> np.ndarray[Any, np.dtype[np.float64]]:
    x = logits.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    shifted: np.ndarray[Any, np.dtype[np.float64]] = x - np.log(
        np.exp(x).sum(axis=1, keepdims=True)
    )
    return shifted


def verdict(
    one: Sequence[Seen], other: Sequence[Seen], difference: Difference | None
) -> dict[str, Any]:
    """Plain data of an exact comparison."""
    first = None
    if difference is not None:
        first = {key: value for key, value in vars(difference).items() if value is not None}
    return {
        "exact": True,
        "equal": difference is None,
        "prompts": len(one),
        "tokens": sum(len(seen.sampled) for seen in one),
        "kv_layers": len(one[0].kv),
        "first_difference": json.loads(json.dumps(first)),
    }


def words(data: dict[str, Any], difference: Difference | None) -> str:
    """One line for people."""
    if not data["exact"]:
        return (
            f"not compared by bits ({'; '.join(data['because'])}): perplexity of the first plan's "
            f"{data['tokens']} tokens {data['perplexity']:.4f} and {data['other_perplexity']:.4f}, "
            f"KL divergence {data['kl_divergence']:.3g} nats, same top token in "
            f"{100 * data['top1_agreement']:.1f} % of steps"
        )
    if difference is None:
        return (
            f"equal: logits and tokens of {data['tokens']} steps of {data['prompts']} prompt(s), "
            f"and the KV of {data['kv_layers']} layers, by sha256"
        )
    return f"different: {difference}"
