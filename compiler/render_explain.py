"""`plancc explain`: why this plan, on one screen; readable at 80 columns and without colour."""

from collections.abc import Iterator
from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from plancc.compiler.explain import Explanation
from plancc.compiler.pins import is_pin_row
from plancc.compiler.render_show import delta_words, lost_words, plain_table, section_title
from plancc.compiler.render_timeline import timeline
from plancc.compiler.summary import layer_range
from plancc.ir.plan import Alternative, Plan, Stage


def show_explanation(plan: Plan, answer: Explanation, console: Console) -> None:
    """Print the picture, what binds each device, the reasons, what lost, and what would flip."""
    console.print(Group(*_parts(plan, answer, console)))


def _parts(plan: Plan, answer: Explanation, console: Console) -> Iterator[RenderableType]:
    yield plan_header(plan)
    yield section_title("One step", f"decode of one token at context {plan.runtime.context}")
    yield from timeline(plan, answer, console)
    yield section_title("What binds each device")
    yield _bindings(plan, answer)
    yield section_title("Why this shape")
    yield _reasons(answer)
    lost = [item for item in plan.alternatives if item.verdict != "chosen" and not is_pin_row(item)]
    if lost:
        yield section_title("Why no other")
        yield _runners_up(plan, lost)
    if answer.sensitivity is not None:
        from plancc.compiler.render_sensitivity import sensitivity_parts  # it knows the cost model

        yield from sensitivity_parts(answer.sensitivity, console.width)


def plan_header(plan: Plan) -> Text:
    """Which plan it is, in two lines."""
    shape = " | ".join("+".join(rank.device for rank in stage.ranks) for stage in plan.stages)
    return Text.assemble(
        (f"{plan.model.name} on {plan.inputs.topology.name}", "bold"), f": {shape}\n",
        f"plan {plan.digest[:12]}, context {plan.runtime.context}, {plan.runtime.slots} "
        f"slot{'' if plan.runtime.slots == 1 else 's'}, objective {_objective(plan)}",
    )  # fmt: skip


def _objective(plan: Plan) -> str:
    work = plan.ask.workload
    return f"workload: {work.words}" if work else plan.ask.objective


def _bindings(plan: Plan, answer: Explanation) -> Table:
    grouped = any(len(beat.devices) > 1 for beat in answer.beats)
    table = plain_table()
    for name in ("device", "layers", *(["of MLPs"] if grouped else [])):
        table.add_column(name, overflow="fold")
    table.add_column("full", justify="right", no_wrap=True)
    table.add_column("mostly", no_wrap=True)
    table.add_column("reads", justify="right", no_wrap=True)
    table.add_column("bound by", overflow="fold")
    for binding in answer.bindings:
        beats = [answer.beats[number] for number in binding.stages]
        shares = [", ".join(_share(plan.stages[number], binding.device)
                            for number in binding.stages)]  # fmt: skip
        table.add_row(
            binding.device,
            ", ".join(layer_range(beat.layers) for beat in beats),
            *(shares if grouped else []),
            f"{100 * binding.used:.1f} %",
            f"{binding.largest} {100 * binding.largest_share:.0f} %",
            f"{binding.gb_s:.0f} GB/s",
            binding.words,
        )
    return table


def _share(stage: Stage, device: str) -> str:
    """Tiles of every MLP that a rank of a group has, of how many: '7/16'."""
    tiles = {rank.device: rank.mlp_tiles for rank in stage.ranks}[device]
    return (
        f"{tiles[1] - tiles[0]}/{stage.ranks[-1].mlp_tiles[1]}" if len(stage.ranks) > 1 else "all"
    )


def _reasons(answer: Explanation) -> Table:
    table = plain_table()
    table.show_header = False
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for what, sentence in answer.reasons:
        table.add_row(what, sentence)
    return table


def _runners_up(plan: Plan, lost: list[Alternative]) -> Table:
    table = plain_table()
    table.add_column("shape", overflow="fold")
    table.add_column("verdict", overflow="fold")
    table.add_column("against this plan", justify="right", no_wrap=True)
    for item in lost:
        table.add_row(item.shape, lost_words(plan, item), _against(plan, item))
    return table


def _against(plan: Plan, item: Alternative) -> str:
    """How much slower: of the plan's own value, or of its step at the largest context."""
    chosen = plan.provenance.solver.value
    if plan.ask.objective == "context":
        chosen = plan.predicted.decode.step_ns
    if item.value is None or not chosen:
        return ""
    return delta_words(item.value - chosen, chosen)


def explanation_html(plan: Plan, answer: Explanation, width: int = 120) -> str:
    """The same screen as one HTML page that needs no other file."""
    from rich.terminal_theme import MONOKAI

    console = Console(record=True, width=width, file=StringIO(), force_terminal=True,
                      highlight=False)  # fmt: skip
    show_explanation(plan, answer, console)
    return console.export_html(theme=MONOKAI, inline_styles=True)
