"""What would change a plan, as tables: cuts moved by a layer, numbers moved by a little."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from plancc.compiler.explain_moves import Move
from plancc.compiler.explain_sensitivity import SLOWEST, Effect, Sensitivity, Threshold
from plancc.compiler.render_show import delta_words, plain_table, section_title
from plancc.ir.units import format_bytes

KEEPS = "same plan"
WIDE = 100
IDLE = 0.001
"""Effects below this share of the value are named, not tabled."""


def sensitivity_parts(answer: Sensitivity, width: int) -> Iterator[RenderableType]:
    """Tables with their titles; none for what was not tried. Narrow screens get shares only."""
    if answer.moves:
        yield section_title("One layer moved", "this plan, edited: nothing else changes")
        yield _moves(answer)
    if answer.effects:
        yield section_title(
            "One number changed", "solved anew, with the same margin; the largest effect first"
        )
        yield _effects(answer, is_narrow=width < WIDE)
    lines = (*map(_threshold, answer.thresholds), *_idle_words(answer), *answer.notes)
    if lines:
        yield Text("\n" + "\n".join(lines))


def _moves(answer: Sensitivity) -> Table:
    table = plain_table()
    table.add_column("layers", overflow="fold")
    table.add_column("costs", justify="right", no_wrap=True)
    table.add_column("or", overflow="fold")
    for move in answer.moves:
        cost = "" if move.delta_ns is None else delta_words(move.delta_ns, answer.value)
        table.add_row(move.words, cost, _failure(move))
    return table


def _failure(move: Move) -> str:
    if move.short_bytes is not None:
        return f"{move.device} is {format_bytes(move.short_bytes)} short"
    return move.note or ""


def _effects(answer: Sensitivity, *, is_narrow: bool) -> RenderableType:
    shown = [effect for effect in answer.effects
             if not (_is_idle(effect, answer) or _is_tie(effect, answer))]  # fmt: skip
    if not shown:
        return Text(f"nothing tried changes as much as {100 * IDLE:g} %: see below")
    table = plain_table()
    table.add_column("change", overflow="fold")
    table.add_column("this plan", justify="right", overflow="fold")
    table.add_column("new choice", justify="right", no_wrap=True)
    table.add_column("which is", overflow="fold")
    for effect in shown:
        values = (_kept(effect, answer.value, is_narrow), _best(effect, answer, is_narrow))
        table.add_row(effect.change, *values, _flip(effect))
    return table


def _is_idle(effect: Effect, answer: Sensitivity) -> bool:
    """Hardly anything changes, neither as the plan is nor by solving anew."""
    return effect.flips_to is None and _is_small(effect, answer)


def _is_tie(effect: Effect, answer: Sensitivity) -> bool:
    """Another shape is chosen, but this one stays as good: headroom or names decide."""
    return effect.flips_to is not None and effect.kept_value == effect.value \
        and _is_small(effect, answer)  # fmt: skip


def _is_small(effect: Effect, answer: Sensitivity) -> bool:
    values, base = (effect.kept_value, effect.value), answer.value
    same = effect.context in (None, answer.context)
    return same and all(value is not None and abs(value - base) < IDLE * base for value in values)


def _idle_words(answer: Sensitivity) -> Iterator[str]:
    ties = [effect.change for effect in answer.effects if _is_tie(effect, answer)]
    idle = [effect.change for effect in answer.effects if _is_idle(effect, answer)]
    if ties:
        yield f"no faster, but headroom or names choose another shape: {'; '.join(ties)}"
    if idle:
        yield f"less than {100 * IDLE:g} %, same plan: {'; '.join(idle)}"


def _kept(effect: Effect, base: int, is_narrow: bool) -> str:
    if effect.kept_value is None:
        assert effect.short_bytes is not None
        return f"{effect.device} {format_bytes(effect.short_bytes)} short"
    return delta_words(effect.kept_value - base, base, is_narrow)


def _best(effect: Effect, answer: Sensitivity, is_narrow: bool) -> str:
    if effect.value is None:
        return "nothing fits"
    if effect.context not in (None, answer.context):
        return f"{effect.context} tokens"
    return delta_words(effect.value - answer.value, answer.value, is_narrow)


def _flip(effect: Effect) -> Text:
    if effect.value is None:
        return Text("no plan", "red")
    return Text(effect.flips_to, "bold") if effect.flips_to else Text(KEEPS, "dim")


def _threshold(found: Threshold) -> str:
    if found.factor is None:
        return f"{found.what}: this plan stays even at {SLOWEST:g} x of what was measured"
    if found.factor >= 0.995:
        return f"{found.what}: another plan is chosen as soon as it is slower"
    return f"{found.what}: another plan is chosen below {found.factor:.2f} x of what was measured"
