"""The compiler for Python users: one function, no file touched.

plan = compile(read_manifest(path), read_topology(path), Ask(context=8192))
path.write_text(plan.to_json())
"""

from collections.abc import Callable
from dataclasses import replace

from plancc.compiler.compilation import Compilation
from plancc.compiler.freeze import stamp
from plancc.compiler.pipeline import run_pipeline
from plancc.ir.ask import Ask
from plancc.ir.errors import BadInput
from plancc.ir.manifest import ModelManifest
from plancc.ir.plan import Plan
from plancc.ir.topology import Topology

NEEDED_BLOCKS = ("embed", "head")


def compile(manifest: ModelManifest, topology: Topology, ask: Ask | None = None) -> Plan:
    """The plan for a model on a topology: the same input gives the same bytes, everywhere.

    Raises BadInput (an ask that names what does not exist, or numbers that are missing), DoesNotFit
    (no placement holds the model; the message has the numbers), GapLeft (a plan was found, its
    optimum not proven, and the ask does not accept a gap).
    """
    plan = compile_passes(manifest, topology, ask or Ask()).plan
    assert plan is not None
    return plan


def compile_passes(
    manifest: ModelManifest,
    topology: Topology,
    ask: Ask,
    *,
    stop_after: str | None = None,
    observe: Callable[[str, Compilation], None] = lambda name, state: None,
) -> Compilation:
    """`compile`, seen from inside: what there is after a pass, and a look at it after each."""
    _names_exist(manifest, ask)
    filled = ask.filled(manifest.max_context, manifest.dtype)
    _lengths_agree(manifest, filled)
    question = Compilation(manifest=manifest, topology=topology, ask=filled)
    state = run_pipeline(question, stop_after=stop_after, observe=observe)
    return state if stop_after else with_free_choice(state)


def with_free_choice(state: Compilation) -> Compilation:
    """The same with what the ask's pins cost, as one more row of alternatives; see free_choice."""
    from plancc.compiler.free_choice import free_row

    plan, placement = state.plan, state.placement
    assert plan is not None
    assert placement is not None
    row = free_row(plan.model, state.topology, state.ask, placement.stages)
    if row is None:
        return state
    rows = (*plan.alternatives, row)
    return replace(state, plan=stamp(plan.model_copy(update={"alternatives": rows})))


def _names_exist(manifest: ModelManifest, ask: Ask) -> None:
    known = [block.name for block in manifest.blocks]
    for name in ask.without:
        if name not in known:
            raise BadInput(f"--without {name}: {manifest.name} has blocks {', '.join(known)}")
        if name in NEEDED_BLOCKS:
            raise BadInput(f"--without {name}: {manifest.name} cannot run without it")
    for name in ask.pin:
        if name not in known:
            raise BadInput(
                f"--pin {name}={ask.pin[name]}: {manifest.name} has blocks {', '.join(known)}"
            )


def _lengths_agree(manifest: ModelManifest, ask: Ask) -> None:
    assert ask.context is not None
    assert ask.prompt is not None
    if ask.context > manifest.max_context:
        raise BadInput(
            f"--context {ask.context}: {manifest.name} goes up to {manifest.max_context}"
        )
    work = ask.workload
    if work is not None and work.prompt + work.output > ask.context:
        raise BadInput(f"--workload {work}: {work.prompt + work.output} tokens are more than the "
                       f"context, {ask.context}")  # fmt: skip
    if ask.prompt > ask.context:
        raise BadInput(f"--prompt {ask.prompt}: longer than the context, {ask.context}")
