"""Does the plan do what was asked, and is its proof one? Every flag that binds is looked at."""

from collections.abc import Iterator, Sequence
from fractions import Fraction

from plancc.compiler.check_groups import group_problems
from plancc.compiler.check_memory import room_left
from plancc.ir.plan import Plan, Proof
from plancc.ir.topology import Topology

_ROUNDING = 1e-6


def ask_problems(plan: Plan, topology: Topology) -> Iterator[str]:
    yield from _device_problems(plan)
    yield from _cut_problems(plan)
    yield from group_problems(plan, topology)
    yield from _block_problems(plan)
    yield from _proof_problems(plan)
    if plan.ask.objective == "context":
        yield from _context_problems(plan, topology)


def _device_problems(plan: Plan) -> Iterator[str]:
    ask, names = plan.ask, [rank.device for stage in plan.stages for rank in stage.ranks]
    if ask.devices is not None and not _is_subsequence(names, ask.devices):
        yield f"stages: --devices {','.join(ask.devices)} was asked, found {','.join(names)}"
    elif ask.devices is None:
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"stages: device {name} has {names.count(name)} seats, which was not asked"
    if ask.max_devices is not None and len(set(names)) > ask.max_devices:
        yield f"stages: --max-devices {ask.max_devices} was asked, found {len(set(names))}"


def _is_subsequence(names: Sequence[str], order: Sequence[str]) -> bool:
    rest = iter(order)
    return all(name in rest for name in names)


def _cut_problems(plan: Plan) -> Iterator[str]:
    counts = tuple(stage.layers[1] - stage.layers[0] for stage in plan.stages)
    if plan.ask.stage_layers is not None and counts != plan.ask.stage_layers:
        asked = ",".join(map(str, plan.ask.stage_layers))
        yield f"stages: --stage-layers {asked} was asked, found {','.join(map(str, counts))}"


def _block_problems(plan: Plan) -> Iterator[str]:
    last = len(plan.stages) - 1
    homes = {name: index for index, stage in enumerate(plan.stages) for name in stage.blocks}
    for block in plan.model.blocks:
        if block.name not in homes:
            continue
        index = homes[block.name]
        device = plan.stages[index].ranks[0].device
        where = f"stage[{index}].blocks: {block.name}"
        wanted = plan.ask.pin.get(block.name)
        place = block.place if block.name != "head" or plan.ask.head == "auto" else plan.ask.head
        if wanted is not None and wanted != device:
            yield f"{where} is pinned to {wanted}, found on {device}"
        elif wanted is not None or place == "any":
            continue
        elif block.name == "head" and plan.ask.head == "auto":
            if index not in (0, last):
                yield f"{where} must lie in the first or the last stage"
        elif place in ("first", "last"):
            if index != (0 if place == "first" else last):
                yield f"{where} must lie in the {place} stage, found in stage {index}"
        elif place != device:
            yield f"{where} must lie on {place}, found on {device}"


def _proof_problems(plan: Plan) -> Iterator[str]:
    """What a proof says of itself; that its bounds are true, only solving again could tell."""
    proof, where = plan.provenance.solver, "provenance.solver"
    gaps = [_gap(proof.value, proof.bound), _gap(proof.best, proof.best_bound)]
    if all(abs(gap - proof.gap) > _ROUNDING for gap in gaps):
        yield f"{where}.gap: values and bounds give {gaps[0]:.6g} (chosen) and {gaps[1]:.6g} " \
              f"(best), found {proof.gap}"  # fmt: skip
    if proof.status == "optimal":
        pairs = (("value", proof.value, proof.bound), ("best", proof.best, proof.best_bound))
        for name, value, bound in pairs:
            if value != bound:
                yield f"{where}.status: optimal, but {name} {value} is not its bound {bound}"
    elif not plan.ask.accept_gap:
        yield f"{where}.status: feasible only, and --accept-gap was not asked"
    yield from _margin_problems(plan, proof)
    yield from _alternative_problems(plan)


def _gap(value: int, bound: int) -> float:
    return abs(value - bound) / value if value else 0.0


def _alternative_problems(plan: Plan) -> Iterator[str]:
    """The chosen shape's value; at the largest context shapes are compared by their latency."""
    worths = [plan.provenance.solver.value]
    if plan.ask.objective == "context":
        worths.append(plan.predicted.decode.step_ns)
    for index, item in enumerate(plan.alternatives):
        if item.verdict == "chosen" and item.value not in (None, *worths):
            yield (
                f"alternatives[{index}].value: the chosen shape is worth {worths[-1]}, "
                f"found {item.value}"
            )


def _margin_problems(plan: Plan, proof: Proof) -> Iterator[str]:
    where = "provenance.solver"
    if plan.ask.objective == "context":
        if proof.value < proof.best:
            yield f"{where}.best: {proof.best} tokens fit, the plan has {proof.value}"
        return
    most = int(proof.best * (1 + Fraction(str(plan.ask.margin))))
    if proof.value < proof.best:
        yield f"{where}.best: {proof.best} is not the best, the plan's value is {proof.value}"
    elif proof.value > most and proof.status == "optimal":
        yield f"{where}.value: at most {most} ({proof.best} and the margin), found {proof.value}"


def _context_problems(plan: Plan, topology: Topology) -> Iterator[str]:
    """One token more must not fit in this shape: the largest context was asked."""
    context = plan.runtime.context
    if context >= plan.model.max_context:
        return
    runtime = plan.runtime.model_copy(update={"context": context + 1})
    more = plan.model_copy(update={"runtime": runtime})
    if all(left >= 0 for left in room_left(more, topology).values()):
        yield f"runtime.context: {context + 1} tokens fit this shape too, found {context}"
