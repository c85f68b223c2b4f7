"""What would change the plan: every cut moved by a layer, and every number moved by a little.

A moved layer is priced; a changed number is solved anew, with the ask as it was. Nothing is random
and no clock is read: the same plan and topology give the same answer.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from plancc.compiler.explain_changed import changed
from plancc.compiler.explain_difference import difference
from plancc.compiler.explain_moves import Move, moves_of
from plancc.compiler.explain_price import lack, placement_of, worth
from plancc.compiler.explain_variants import Part, Variant, most_promising, variants
from plancc.compiler.placement.placement import Placement
from plancc.ir.errors import DoesNotFit
from plancc.ir.plan import Plan
from plancc.ir.topology import Topology

SLOWEST, SOLVES = 0.25, 6
MOST_SLOW_SOLVES = 8


@dataclass(frozen=True)
class Effect:
    """One change: what this plan would then be worth, and what the best would be.

    Values are ns (for `context` of a decode step). `kept_value` is None where the plan as it is
    would not fit: `device` lacks `short_bytes`. `value` is None where nothing fits. `flips_to`
    says what the best shape then is, where it is another one.
    """

    change: str
    kept_value: int | None
    value: int | None
    context: int | None  # for the objective `context`: the tokens that then fit
    device: str | None
    short_bytes: int | None
    flips_to: str | None


@dataclass(frozen=True)
class Threshold:
    """The plan stays as long as the rate is above `factor` of what was measured.

    None: it stays even at `SLOWEST` of it.
    """

    what: str
    factor: float | None


@dataclass(frozen=True)
class Sensitivity:
    value: int
    context: int
    moves: tuple[Move, ...]
    effects: tuple[Effect, ...]  # the largest first
    thresholds: tuple[Threshold, ...]
    notes: tuple[str, ...]


Progress = Callable[[int, int], None]
"""Hears how many solves are done, of how many."""


def sensitivity(
    plan: Plan,
    topology: Topology,
    *,
    is_quick: bool = False,
    is_full: bool = False,
    progress: Progress = lambda done, of: None,
) -> Sensitivity:
    """Moves always. Changes are solved unless `is_quick`, or where one takes as long as compiling.

    Where a solve takes seconds only the most promising are, without thresholds, unless `is_full`.
    """
    base = worth(plan.model, topology, plan.ask, placement_of(plan))
    moves = moves_of(plan, topology)
    answer = Sensitivity(base, plan.runtime.context, moves, (), (), ())
    if is_quick:
        return replace(answer, notes=("solves left out: --quick",))
    from plancc.compiler.explain_solve import can_solve, is_light, solve  # slow to import

    question = (plan.model, topology, plan.ask)
    if not can_solve(*question):
        note = "solves left out: with so many devices each takes as long as compiling"
        return replace(answer, notes=(note,))
    return _Trials(plan, topology, solve, progress).run(answer, is_full or is_light(*question))


class _Trials:
    """Solves of one plan's question with one number changed."""

    def __init__(
        self, plan: Plan, topology: Topology, solve: Callable[..., Placement], progress: Progress
    ) -> None:
        self._plan, self._topology, self._solve = plan, topology, solve
        self._placement = placement_of(plan)
        self._progress = progress
        self._done = self._total = 0

    def run(self, answer: Sensitivity, is_full: bool) -> Sensitivity:
        every = variants(self._plan, self._topology)
        tried = every if is_full else most_promising(every, MOST_SLOW_SOLVES)
        self._total = 1 + len(tried) + (2 * SOLVES if is_full else 0)
        fresh = self._count(self._solved(Variant(Part("slots", (), ""), 1)))
        found = [(variant, self._effect(variant)) for variant in tried]
        effects = [(variant, effect) for variant, effect in found if effect is not None]
        limits = _dearest(effects, answer) if is_full else []
        thresholds = tuple(self._threshold(part, flips) for part, flips in limits)
        self._progress(self._total, self._total)
        rows = sorted((effect for _, effect in effects), key=lambda effect: _size(effect, answer))
        left_out = [variant.words for variant in every if variant not in tried]
        notes = [*self._fresh_note(fresh), *_untried(found)]
        if left_out:
            notes.append(f"left out, since a solve takes long (--all): {'; '.join(left_out)}")
        return replace(answer, effects=tuple(rows), thresholds=thresholds, notes=tuple(notes))

    def _fresh_note(self, fresh: Placement | None) -> tuple[str, ...]:
        """A plan that its own question no longer gives was edited, or made by other rules."""
        words = difference(self._placement.stages, fresh.stages) if fresh else None
        return (
            (f"solved anew, the unchanged question gives another shape: {words}",) if words else ()
        )

    def _count(self, found: Placement | None) -> Placement | None:
        self._done += 1
        self._progress(self._done, self._total)
        return found

    def _solved(self, variant: Variant) -> Placement | None:
        """The choice for the changed question; None where nothing fits."""
        question = changed(self._topology, self._plan.ask, self._plan.model, variant)
        assert question is not None
        try:
            return self._solve(self._plan.model, *question)
        except DoesNotFit:
            return None

    def _effect(self, variant: Variant) -> Effect | None:
        """None where the change has no meaning."""
        question = changed(self._topology, self._plan.ask, self._plan.model, variant)
        if question is None:
            self._count(None)
            return None
        topology, ask = question
        model, kept = self._plan.model, self._placement
        if ask.objective != "context" and ask.context is not None:
            kept = replace(kept, context=ask.context)
        missing = lack(model, topology, ask, kept)
        found = self._count(self._solved(variant))
        return Effect(
            change=variant.words,
            kept_value=None if missing else worth(model, topology, ask, kept),
            value=None if found is None else worth(model, topology, ask, found),
            context=found.context if found and ask.objective == "context" else None,
            device=missing[0] if missing else None,
            short_bytes=missing[1] if missing else None,
            flips_to=difference(self._placement.stages, found.stages) if found else None,
        )

    def _threshold(self, part: Part, flips: bool) -> Threshold:
        """Bisect the factor between a rate that flips the plan and one that does not."""
        low, high = (0.9, 1.0) if flips else (SLOWEST, 0.9)
        solves = SOLVES
        if not flips:
            solves -= 1
            if not self._flips(Variant(part, SLOWEST)):
                return Threshold(part.words, None)
        for _ in range(solves):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if self._flips(Variant(part, middle)) else (low, middle)
        return Threshold(part.words, round((low * high) ** 0.5, 2))

    def _flips(self, variant: Variant) -> bool:
        found = self._count(self._solved(variant))
        return found is None or found.stages != self._placement.stages


def _untried(found: list[tuple[Variant, Effect | None]]) -> tuple[str, ...]:
    return tuple(f"{variant.words} not tried: the model ends before" for variant, effect in found
                 if effect is None)  # fmt: skip


def _size(effect: Effect, answer: Sensitivity) -> tuple[float, float]:
    """To sort by: what fits nothing first, then tokens of context, then ns, the largest first."""
    if effect.value is None:
        return (-float("inf"), 0)
    tokens = 0 if effect.context is None else abs(effect.context - answer.context)
    return (-tokens, -abs(effect.value - answer.value))


def _dearest(effects: list[tuple[Variant, Effect]], answer: Sensitivity) -> list[tuple[Part, bool]]:
    """The link and the device's rate whose slowing costs most, and whether that flips the plan."""
    chosen = []
    for kinds in (("link",), ("read", "matmul")):
        rows = [(variant, effect) for variant, effect in effects
                if variant.part.kind in kinds and variant.factor < 1]  # fmt: skip
        if rows:
            variant, effect = min(rows, key=lambda row: _size(row[1], answer))
            chosen.append((variant.part, effect.value is None or effect.flips_to is not None))
    return chosen
