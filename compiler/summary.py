"""A plan in three lines, and as the numbers behind them."""

from typing import Any

from plancc.compiler.pins import flags_of, row_of_pins
from plancc.ir.plan import Plan
from plancc.ir.units import format_bytes, format_ns


def summary_data(plan: Plan) -> dict[str, Any]:
    """The same answer for programs."""
    proof, prefill = plan.provenance.solver, plan.predicted.prefill
    return {
        "digest": plan.digest,
        "stages": [
            {"devices": [rank.device for rank in stage.ranks], "layers": list(stage.layers),
             "blocks": list(stage.blocks)} for stage in plan.stages
        ],
        "context": plan.runtime.context,
        "slots": plan.runtime.slots,
        "objective": proof.objective,
        "workload": plan.ask.workload.model_dump() if plan.ask.workload else None,
        "status": proof.status,
        "value": proof.value,
        "bound": proof.bound,
        "decode_step_ns": plan.predicted.decode.step_ns,
        "prefill_ns": prefill.total_ns if prefill else None,
        "pins": pins_data(plan),
    }  # fmt: skip


def summary_lines(plan: Plan, output: str | None) -> tuple[str, ...]:
    """Where it runs, how full, how fast and how sure."""
    tightest = min(plan.devices, key=lambda device: device.ledger.free_after)
    where = " | ".join(
        f"{'+'.join(rank.device for rank in stage.ranks)} layers {layer_range(stage.layers)}"
        for stage in plan.stages
    )
    decode = plan.predicted.decode
    return (
        f"{'wrote ' + output if output not in (None, '-') else 'plan'} {plan.digest[:12]}: {where}",
        f"tightest: {tightest.name}, {format_bytes(tightest.ledger.total)} of "
        f"{format_bytes(tightest.budget_bytes)}, {format_bytes(tightest.ledger.free_after)} free",
        f"predicted: {_objective_words(plan)}{format_ns(decode.step_ns)} a token "
        f"({decode.tokens_per_s:.1f} tok/s) at context {plan.runtime.context}; {proof_words(plan)}",
    )


def has_idle_rows(plan: Plan) -> bool:
    """Whether steps have room for more rows than any prompt, or all slots, can have."""
    run = plan.runtime
    return run.prefill_chunk > max(run.context, run.slots)


def idle_rows_sentence(plan: Plan) -> str:
    run = plan.runtime
    return (f"a prefill chunk of {run.prefill_chunk} rows is longer than the context of "
            f"{run.context}, and the rest of it takes room for nothing: --prefill-chunk "
            f"{run.context} does the same")  # fmt: skip


def _objective_words(plan: Plan) -> str:
    """What was optimised, where that is not a token of one stream; a context is told anyway."""
    prefill = plan.predicted.prefill
    if plan.ask.objective == "prefill" and prefill is not None:
        return (f"{format_ns(prefill.total_ns)} a prompt of {prefill.prompt} tokens "
                f"({prefill.tokens_per_s:.0f} tok/s); ")  # fmt: skip
    if plan.ask.objective in ("throughput", "workload"):
        return f"{value_words(plan, plan.provenance.solver.value)}; "
    return ""


def value_words(plan: Plan, value: int) -> str:
    """What the objective is worth: tokens, a time, or '14.2 s a request of 2000 + 500 tokens'."""
    if plan.ask.objective == "context":
        return f"{value} tokens"
    if plan.ask.objective == "throughput":
        slots = plan.runtime.slots
        rate = f"{slots * 1e9 / max(1, value):.1f} tok/s in all"
        return f"{format_ns(value)} a round of {count_words(slots, 'stream')}, {rate}"
    work = plan.ask.workload
    return f"{format_ns(value)} {work.words}" if work else format_ns(value)


def pins_data(plan: Plan) -> dict[str, Any] | None:
    """What the ask's pins cost, by number; None where nothing was pinned or it was not solved.

    Values are of the objective; `free` is the choice without the pins, None where it is the same.
    """
    row = row_of_pins(plan)
    if row is None or row.value is None:
        return None
    value = plan.provenance.solver.value
    return {"flags": list(flags_of(row)), "value": value, "free_value": row.value,
            "costs": value - row.value, "free": row.note}  # fmt: skip


def proof_words(plan: Plan) -> str:
    """'proven optimal', or how far from it at most."""
    proof = plan.provenance.solver
    if proof.status == "optimal":
        return f"{proof.objective} proven optimal"
    return f"{proof.objective} feasible, gap {100 * proof.gap:.1f} % (not proven optimal)"


def layer_range(layers: tuple[int, int]) -> str:
    """'0..20' for layers [0, 21)."""
    first, last = layers[0], layers[1] - 1
    return str(first) if first == last else f"{first}..{last}"


def count_words(number: int, noun: str) -> str:
    """'1 stage', '2 stages'"""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
