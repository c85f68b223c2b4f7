"""The sentences of an explanation: what binds a device, the proof, the margin, the pins."""

from collections.abc import Iterator

from plancc.compiler.cost.beats import prompt_beats
from plancc.compiler.explain_beats import busy_ns, slowest_stage
from plancc.compiler.pins import flags_of, pins_of, pins_said, row_of_pins
from plancc.ir.ask import Workload
from plancc.ir.plan import Alternative, Plan
from plancc.ir.units import format_bytes, format_ns


def reasons(plan: Plan) -> Iterator[tuple[str, str]]:
    """(about what, sentence): slowest stage, proof, margin, pins."""
    yield "time", _time_words(plan)
    yield "proof", proof_sentence(plan)
    yield "margin", margin_sentence(plan)
    pins = pins_sentence(plan)
    if pins is not None:
        yield "pins", pins


def _time_words(plan: Plan) -> str:
    if plan.ask.objective == "prefill" and plan.predicted.prefill is not None:
        return _prompt_words(plan)
    if plan.ask.workload is not None:
        return f"{_request_words(plan, plan.ask.workload)}; {_token_words(plan)}"
    return _token_words(plan)


def _token_words(plan: Plan) -> str:
    times, step = plan.predicted.decode.stages, max(1, plan.predicted.decode.step_ns)
    kinds = {
        "computing": sum(time.compute_ns for time in times),
        "exchanging within groups": sum(time.exchange_ns for time in times),
        "hopping between stages": sum(time.hop_ns for time in times),
    }
    shares = ", ".join(f"{_percent(ns / step)} {what}" for what, ns in kinds.items() if ns)
    words = f"a token takes {format_ns(step)}: {shares}"
    if len(times) > 1:
        slowest = slowest_stage(plan)
        busy = _percent(busy_ns(times[slowest]) / step)
        words += f"; {busy} in the slowest stage, {slowest} ({_names(plan, slowest)})"
    if plan.ask.objective == "throughput":
        words += (f"; with {plan.runtime.slots} slots every stream advances a token in "
                  f"{format_ns(plan.provenance.solver.value)}")  # fmt: skip
    return words


def _request_words(plan: Plan, work: Workload) -> str:
    """The value, and its two parts where the predicted prompt is the workload's."""
    value, prefill = plan.provenance.solver.value, plan.predicted.prefill
    words = f"{format_ns(value)} {work.words}"
    if prefill is None or prefill.prompt != work.prompt:
        return words
    turn = (value - prefill.total_ns) // work.output
    return (f"{words}: {format_ns(prefill.total_ns)} for its prompt, {work.output} x "
            f"{format_ns(turn)} for its tokens")  # fmt: skip


def _prompt_words(plan: Plan) -> str:
    prefill = plan.predicted.prefill
    assert prefill is not None
    beats = prompt_beats(prefill.chunks, [stage.ranks[0].device for stage in plan.stages])
    slowest = slowest_stage(plan)
    return (f"{prefill.prompt} prompt tokens take {format_ns(prefill.total_ns)}: {beats} beats of "
            f"{format_ns(prefill.total_ns // beats)}; the slowest stage is {slowest} "
            f"({_names(plan, slowest)})")  # fmt: skip


def _names(plan: Plan, number: int) -> str:
    return "+".join(rank.device for rank in plan.stages[number].ranks)


def _percent(share: float) -> str:
    if share >= 0.9995:
        return "all"
    return f"{100 * share:.1f} %" if share >= 0.0005 else "< 0.1 %"


def proof_sentence(plan: Plan) -> str:
    """What was proven, over which shapes, by what."""
    proof = plan.provenance.solver
    by = f"{proof.name} {proof.version}"
    if proof.status != "optimal":
        return f"not proven: at most {_percent(proof.gap)} could be won ({by}), of {proof.space}"
    if proof.objective == "context":
        return f"one token more fits on no shape ({by}), of {proof.space}"
    what = "no shape is faster" if proof.value == proof.best else "no shape of as few devices is "\
        f"faster, and none at all than {format_ns(proof.best)}"  # fmt: skip
    return f"{what} (proven by {by}), of {proof.space}"


def margin_sentence(plan: Plan) -> str:
    """What the margin did to the choice."""
    proof, margin = plan.provenance.solver, 100 * plan.ask.margin
    if proof.objective == "context":
        return "none for --objective context: the longest context wins"
    if proof.value > proof.best:
        cost = _percent(proof.value / proof.best - 1)
        return (f"the fastest shape{_fastest(plan)} takes {format_ns(proof.best)}; this one costs "
                f"+{cost}, within the {margin:g} % margin, and is smaller")  # fmt: skip
    if len(plan.devices) == 1:
        return "did nothing: the fastest shape has one device already"
    if margin == 0:
        return "none was given: the fastest shape wins"
    return f"none of fewer devices is within {margin:g} % of it"


def _fastest(plan: Plan) -> str:
    best = plan.provenance.solver.best
    row = next((row for row in plan.alternatives if row.value == best), None)
    return f" ({row.shape})" if row else ""


def pins_sentence(plan: Plan) -> str | None:
    """What the ask's pins cost against the choice without them; None where nothing is pinned."""
    pins, row = pins_of(plan.ask), row_of_pins(plan)
    if not pins:
        return None
    if row is None or row.value is None:
        return f"{pins_said(plan.ask)}: the choice without was not solved; explain --topo does"
    flags = flags_of(row)
    said, verb = pins_said(plan.ask, flags), "costs" if len(flags) == 1 else "cost"
    if row.verdict == "chosen":
        return f"{said} {verb} nothing: without, the choice is the same"
    return f"{said} {verb} {_pin_cost(plan, row)}; with, {_tightest(plan)}"


def _pin_cost(plan: Plan, row: Alternative) -> str:
    proof = plan.provenance.solver
    assert row.value is not None
    delta = proof.value - row.value
    share = f"{100 * delta / max(1, row.value):+.1f} %"
    if proof.objective == "context":
        return f"{-delta} tokens ({share}): without, {row.value} fit, as {row.note}"
    if delta == 0:
        return f"no time: without, it would be {row.note}"
    cost = f"{'+' if delta > 0 else '-'}{format_ns(abs(delta))} ({share})"
    why = " (smaller, within the margin)" if delta < 0 else ""
    return f"{cost}: without, {format_ns(row.value)} as {row.note}{why}"


def _tightest(plan: Plan) -> str:
    device = min(plan.devices, key=lambda device: device.ledger.free_after)
    return f"{device.name} keeps {format_bytes(device.ledger.free_after)}"
