"""A plan as plain lines, one fact a line: what `git diff` compares when a plan is under review.

.gitattributes      *.plan.json diff=plancc
once a clone        git config diff.plancc.textconv "plancc show --textconv"
"""

from collections.abc import Iterator

from plancc.compiler.summary import layer_range, proof_words
from plancc.ir.plan import Plan, PlanLink, StageTime
from plancc.ir.units import format_bytes, format_ns


def text_lines(plan: Plan) -> Iterator[str]:
    """The same plan always gives the same lines; sections are parted by an empty one."""
    for title, lines in (
        ("inputs", _inputs(plan)),
        ("ask", _ask(plan)),
        ("stages", _stages(plan)),
        ("devices", _devices(plan)),
        ("links", _links(plan)),
        ("runtime", _runtime(plan)),
        ("predicted", _predicted(plan)),
        ("why not", _alternatives(plan)),
    ):
        yield title
        yield from (f"  {line}" for line in lines)
        yield ""
    yield f"digest {plan.digest}"


def _inputs(plan: Plan) -> Iterator[str]:
    yield f"model {plan.inputs.model.name} {plan.inputs.model.sha256}"
    yield f"topology {plan.inputs.topology.name} {plan.inputs.topology.sha256}"
    weights = plan.weights
    yield f"weights {weights.sha256 if weights else 'none'}"


def _ask(plan: Plan) -> Iterator[str]:
    for name, value in plan.ask.model_dump(mode="json").items():
        if value not in (None, [], {}, False):
            yield f"{name} {value}"


def _stages(plan: Plan) -> Iterator[str]:
    for index, stage in enumerate(plan.stages):
        blocks = f", {', '.join(stage.blocks)}" if stage.blocks else ""
        devices = "+".join(rank.device for rank in stage.ranks)
        yield f"{index} {devices}: layers {layer_range(stage.layers)}{blocks}"
        if len(stage.ranks) > 1:
            yield f"  mixer {stage.mixer}"
            for rank in stage.ranks:
                first, end = rank.mlp_tiles
                yield f"  {rank.device} MLP tiles {first}..{end - 1} ({end - first})"


def _devices(plan: Plan) -> Iterator[str]:
    for device in plan.devices:
        yield f"{device.name} ({device.kind} on {device.host})"
        yield f"  budget {format_bytes(device.budget_bytes)}"
        for part, size in device.ledger.parts().items():
            if size:
                yield f"  {part} {format_bytes(size)}"
        yield f"  free {format_bytes(device.ledger.free_after)}"


def _links(plan: Plan) -> Iterator[str]:
    for link in plan.links:
        yield f"{link_ends(plan, link)} {link.payload} over {link.transport}, " \
              f"{link.bytes_per_row} bytes a row, {link.slots} slots"  # fmt: skip


def link_ends(plan: Plan, link: PlanLink) -> str:
    names = [rank.device for stage in plan.stages for rank in stage.ranks]
    known = [names[i] if i < len(names) else f"rank {i}" for i in (link.from_, link.to)]
    return " -> ".join(known)


def _runtime(plan: Plan) -> Iterator[str]:
    for name, value in plan.runtime.model_dump(mode="json").items():
        if name not in ("kernels", "workers", "hosts", "timeouts"):
            yield f"{name} {value}"
    yield from (f"kernel {family} {name}" for family, name in plan.runtime.kernels.items())
    for worker in plan.runtime.workers:
        threads = f", threads: {worker.threads}" if worker.threads else ""
        yield f"worker {worker.name} {'+'.join(worker.devices)}{threads}"


def _predicted(plan: Plan) -> Iterator[str]:
    decode, prefill = plan.predicted.decode, plan.predicted.prefill
    yield f"decode {format_ns(decode.step_ns)} a token, {decode.tokens_per_s:.1f} tok/s"
    yield from _stage_times(decode.stages)
    if prefill:
        yield f"prefill {format_ns(prefill.total_ns)} for {prefill.prompt} tokens"
        yield from _stage_times(prefill.stages)
    yield proof_words(plan)


def _stage_times(stages: tuple[StageTime, ...]) -> Iterator[str]:
    for index, time in enumerate(stages):
        yield f"  stage {index} {format_ns(time.compute_ns)}, hop {format_ns(time.hop_ns)}"


def _alternatives(plan: Plan) -> Iterator[str]:
    for item in plan.alternatives:
        value = "" if item.value is None else f" {item.value}"
        short = "" if item.short_bytes is None else f" {format_bytes(item.short_bytes)} short"
        yield f"{item.shape}: {item.verdict}{value}{short}"
