"""What differs between two plans, as data: sections of lines, in a fixed order. No text is printed.

The lines are made from the plan documents alone, so that they can say no more than a plan does.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from plancc.compiler.diff_answers import Answers, compare_answers
from plancc.compiler.diff_layers import block_moves, layer_moves, seat_changes
from plancc.ir.plan import Plan, PlanDevice, PrefillTime
from plancc.ir.units import format_bytes, format_ns


@dataclass(frozen=True)
class Section:
    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class PlanDiff:
    """`sections` is empty when nothing but, perhaps, the digest differs."""

    answers: Answers
    sections: tuple[Section, ...]

    @property
    def is_empty(self) -> bool:
        return not self.sections


def diff_plans(old: Plan, new: Plan) -> PlanDiff:
    """Everything that changed from `old` to `new`, in words."""
    makers = (
        ("inputs", _input_lines(old, new)),
        ("asked", _ask_lines(old, new)),
        ("layers", layer_moves(old, new)),
        ("blocks", block_moves(old, new)),
        ("seats", seat_changes(old, new)),
        ("memory", _memory_lines(old, new)),
        ("links", _link_lines(old, new)),
        ("runtime", _runtime_lines(old, new)),
        ("predicted", _time_lines(old, new)),
        ("proof", _proof_lines(old, new)),
    )
    sections = tuple(Section(title, found) for title, lines in makers if (found := tuple(lines)))
    rest = () if sections else tuple(_other_lines(old, new))
    return PlanDiff(
        compare_answers(old, new), (*sections, *([Section("other", rest)] if rest else []))
    )


def change(name: str, before: object, after: object) -> Iterator[str]:
    """'name before -> after', if they differ."""
    if before != after:
        yield f"{name} {_word(before)} -> {_word(after)}"


def _word(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, tuple | list):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return ",".join(f"{key}={item}" for key, item in value.items()) or "none"
    return str(value)


def _input_lines(old: Plan, new: Plan) -> Iterator[str]:
    for what in ("model", "topology"):
        before, after = getattr(old.inputs, what), getattr(new.inputs, what)
        if before.name != after.name:
            yield f"{what} {before.name} -> {after.name}"
        elif before.sha256 != after.sha256:
            yield f"{what} {before.name}: contents changed, {before.sha256[:12]} -> " \
                  f"{after.sha256[:12]}"  # fmt: skip
    yield from change("plancc", old.provenance.plancc, new.provenance.plancc)
    before, after = old.weights, new.weights
    yield from change("weights", before and before.sha256[:12], after and after.sha256[:12])
    yield from change("weights source", before and before.source, after and after.source)


def _ask_lines(old: Plan, new: Plan) -> Iterator[str]:
    for name in type(old.ask).model_fields:
        before, after = getattr(old.ask, name), getattr(new.ask, name)
        if name == "workload":
            before, after = (item and str(item) for item in (before, after))
        yield from change("--" + name.replace("_", "-"), before, after)


def _memory_lines(old: Plan, new: Plan) -> Iterator[str]:
    olds = {device.name: device for device in old.devices}
    news = {device.name: device for device in new.devices}
    for name in dict.fromkeys([*olds, *news]):
        before, after = olds.get(name), news.get(name)
        if before is None or after is None:
            used = after or before
            assert used is not None
            word = "is opened" if before is None else "is no longer used"
            yield f"{name} {word}: {format_bytes(used.ledger.total)} of " \
                  f"{format_bytes(used.budget_bytes)}"  # fmt: skip
            continue
        yield from change(f"{name} host", before.host, after.host)
        yield from change(f"{name} kind", before.kind, after.kind)
        yield from change(f"{name} uuid", before.uuid, after.uuid)
        yield from _bytes(f"{name} budget", before.budget_bytes, after.budget_bytes)
        yield from _ledger_lines(name, before, after)


def _ledger_lines(name: str, before: PlanDevice, after: PlanDevice) -> Iterator[str]:
    """How full it was and is, then which parts made the difference."""
    olds, news = before.ledger.parts(), after.ledger.parts()
    moved = [
        f"{part} {_signed(news[part] - olds[part])}" for part in olds if olds[part] != news[part]
    ]
    if not moved and before.budget_bytes == after.budget_bytes:
        return
    totals = [format_bytes(device.ledger.total) for device in (before, after)]
    left = [format_bytes(device.ledger.free_after) for device in (before, after)]
    yield f"{name} {' -> '.join(totals)}, free {' -> '.join(left)}"
    if moved:
        yield f"  {', '.join(moved)}"


def _signed(delta: int) -> str:
    return ("+" if delta > 0 else "") + format_bytes(delta)


def _bytes(name: str, before: int, after: int) -> Iterator[str]:
    if before != after:
        yield f"{name} {format_bytes(before)} -> {format_bytes(after)} ({_signed(after - before)})"


def _link_lines(old: Plan, new: Plan) -> Iterator[str]:
    before, after = _links(old), _links(new)
    for ends in dict.fromkeys([*before, *after]):
        if ends not in before:
            yield f"{ends} over {after[ends]} is new"
        elif ends not in after:
            yield f"{ends} over {before[ends]} is gone"
        else:
            yield from change(ends, before[ends], after[ends])


def _links(plan: Plan) -> dict[str, str]:
    """Transport and width of the rows that hop; the step messages follow from the stages."""
    names = [program.device for program in plan.programs]
    return {
        f"{names[link.from_]} -> {names[link.to]}:": f"{link.transport}, "
        f"{format_bytes(link.bytes_per_row)} a row, {link.slots} slots"
        for link in plan.links
        if link.payload != "step" and max(link.from_, link.to) < len(names)
    }


def _runtime_lines(old: Plan, new: Plan) -> Iterator[str]:
    for name in ("context", "slots", "page_tokens", "pages", "prefill_chunk", "dtype", "kv_dtype"):
        yield from change(name, getattr(old.runtime, name), getattr(new.runtime, name))
    for family in dict.fromkeys([*old.runtime.kernels, *new.runtime.kernels]):
        kernels = (old.runtime.kernels.get(family), new.runtime.kernels.get(family))
        yield from change(f"kernel of {family}", *kernels)
    yield from change("workers", _workers(old), _workers(new))
    hosts = [{host.name: host.address for host in plan.runtime.hosts} for plan in (old, new)]
    yield from change("hosts", *hosts)
    for name, before in old.runtime.timeouts.model_dump().items():
        yield from change(f"timeout {name}", before, getattr(new.runtime.timeouts, name))


def _workers(plan: Plan) -> dict[str, str]:
    return {
        worker.name: "+".join(worker.devices)
        + (f" (threads: {worker.threads})" if worker.threads else "")
        for worker in plan.runtime.workers
    }


def _time_lines(old: Plan, new: Plan) -> Iterator[str]:
    before, after = old.predicted, new.predicted
    work = new.ask.workload
    if work is not None and work == old.ask.workload:
        one, two = (plan.provenance.solver.value for plan in (old, new))
        yield from _ns("workload", one, two, f" {work.words}")
    yield from _ns("decode", before.decode.step_ns, after.decode.step_ns, " a token")
    yield from _prefill_lines(before.prefill, after.prefill)


def _prefill_lines(one: PrefillTime | None, two: PrefillTime | None) -> Iterator[str]:
    if one is None or two is None:
        yield from change(
            "prefill", one and format_ns(one.total_ns), two and format_ns(two.total_ns)
        )
        return
    yield from change("prefill prompt", one.prompt, two.prompt)
    yield from _ns("prefill", one.total_ns, two.total_ns, f" for {two.prompt} tokens")


def _ns(name: str, before: int, after: int, unit: str) -> Iterator[str]:
    if before != after:
        share = f" ({100 * (after / before - 1):+.1f} %)" if before else ""
        yield f"{name} {format_ns(before)} -> {format_ns(after)}{unit}{share}"


def _proof_lines(old: Plan, new: Plan) -> Iterator[str]:
    before, after = old.provenance.solver, new.provenance.solver
    for name in ("status", "objective", "name", "version"):
        yield from change(name, getattr(before, name), getattr(after, name))
    if before.gap != after.gap:
        yield f"gap {100 * before.gap:.2f} % -> {100 * after.gap:.2f} %"


def _other_lines(old: Plan, new: Plan) -> Iterator[str]:
    """What no section has words for, by its place in the document."""
    before, after = old.data(), new.data()
    for key in before:
        if key != "digest" and before[key] != after[key]:
            yield f"{key} differs, and nothing that has words of its own"
