"""Can the text that a plan gives differ from another plan's? Numerics do not know placement."""

from collections.abc import Iterator
from dataclasses import dataclass

from plancc.ir.plan import Plan

# Fields of the model that say what is computed; its name, its blocks' places and bytes do not.
_COMPUTED = ("family", "dtype", "hidden_size", "vocab_size", "geometry")


@dataclass(frozen=True)
class Answers:
    """`reasons` name what may change the text; with none, and `is_known`, the bits are equal."""

    reasons: tuple[str, ...]
    is_known: bool
    up_to_tokens: int | None = None

    def words(self) -> str:
        if self.reasons:
            return "answers may change: " + "; ".join(self.reasons)
        if not self.is_known:
            return "cannot tell whether answers change: no plan names its weights"
        limit = f", up to {self.up_to_tokens} tokens" if self.up_to_tokens else ""
        return f"same answers, bit for bit{limit}"


def compare_answers(old: Plan, new: Plan) -> Answers:
    """Same weights, model, dtypes and kernels give the same bits, wherever layers run."""
    contexts = {old.runtime.context, new.runtime.context}
    return Answers(
        reasons=tuple(_reasons(old, new)),
        is_known=old.weights is not None and new.weights is not None,
        up_to_tokens=min(contexts) if len(contexts) > 1 else None,
    )


def _reasons(old: Plan, new: Plan) -> Iterator[str]:
    before, after = (plan.weights and plan.weights.sha256 for plan in (old, new))
    if before != after:
        shown = [item[:12] if item else "none" for item in (before, after)]
        yield f"weights {shown[0]} -> {shown[1]}"
    for name in _COMPUTED:
        one, two = getattr(old.model, name), getattr(new.model, name)
        if one != two:
            plain = isinstance(one, str | int) and isinstance(two, str | int)
            yield f"model {name} {one} -> {two}" if plain else f"model {name}"
    if old.model.layers != new.model.layers:
        yield "model layers"
    if old.model.has_tied_head != new.model.has_tied_head:
        yield "model head tied"
    for name in ("kv_dtype",):
        one, two = getattr(old.runtime, name), getattr(new.runtime, name)
        if one != two:
            yield f"{name} {one} -> {two}"
    for family in dict.fromkeys([*old.runtime.kernels, *new.runtime.kernels]):
        one, two = old.runtime.kernels.get(family), new.runtime.kernels.get(family)
        if one != two:
            yield f"kernel of {family} {one} -> {two}"
