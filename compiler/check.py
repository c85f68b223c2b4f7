"""Judge a plan from three files alone: is it what its manifest and topology allow and predict?

Recomputes everything with its own code. It may use ir/, and must never import what decided the
plan (placement, cost, freeze), so that a shared mistake cannot hide.
"""

from collections.abc import Iterator

from plancc.compiler.check_ask import ask_problems
from plancc.compiler.check_memory import memory_problems
from plancc.compiler.check_runtime import runtime_problems
from plancc.compiler.check_time import time_problems
from plancc.ir.legality import plan_problems
from plancc.ir.manifest import ModelManifest
from plancc.ir.plan import Plan
from plancc.ir.topology import Topology


def check_plan(plan: Plan, manifest: ModelManifest, topology: Topology) -> tuple[str, ...]:
    """Every problem, each beginning with the address of what is wrong; () for a sound plan."""
    edited = digest_problem(plan)
    return (*([edited] if edited else []), *content_problems(plan, manifest, topology))


def digest_problem(plan: Plan) -> str | None:
    """What an edit by hand leaves behind, or None."""
    content = plan.computed_digest()
    if plan.digest == content:
        return None
    return f"digest: plan was edited: digest says {plan.digest}, content is {content}"


def content_problems(plan: Plan, manifest: ModelManifest, topology: Topology) -> tuple[str, ...]:
    """All problems but those of the digest.

    Sums are only made where the shape they are sums of is sound and on known devices.
    """
    inputs = tuple(_input_problems(plan, manifest, topology))
    shape = (*plan_problems(plan), *_unknown_devices(plan, topology))
    broken = any(not problem.startswith(("device ", "runtime", "links")) for problem in shape)
    if broken or any(problem.startswith("model") for problem in inputs):
        return (*inputs, *shape)
    return (
        *inputs,
        *shape,
        *ask_problems(plan, topology),
        *memory_problems(plan, topology),
        *time_problems(plan, topology),
        *runtime_problems(plan, topology),
    )


def _input_problems(plan: Plan, manifest: ModelManifest, topology: Topology) -> Iterator[str]:
    if plan.model != manifest.shape():
        yield f"model: {', '.join(_different_fields(plan, manifest))} differ from the manifest"
    found = (
        ("model", plan.inputs.model, manifest.name, manifest.digest()),
        ("topology", plan.inputs.topology, topology.name, topology.digest()),
    )
    for name, given, expected, digest in found:
        if given.name != expected:
            yield f"inputs.{name}.name: the file says {expected}, found {given.name}"
        if given.sha256 != digest:
            yield f"inputs.{name}.sha256: the file has {digest}, found {given.sha256}"
    yield from _weight_problems(plan, manifest)


def _different_fields(plan: Plan, manifest: ModelManifest) -> list[str]:
    shape = manifest.shape()
    names = type(plan.model).model_fields
    return [name for name in names if getattr(plan.model, name) != getattr(shape, name)]


def _weight_problems(plan: Plan, manifest: ModelManifest) -> Iterator[str]:
    weights, index = plan.weights, manifest.weights
    if weights is None or index is None:
        if (weights is None) != (index is None):
            yield f"weights: the manifest has {'no' if index is None else 'an'} index, the plan " \
                  f"has {'none' if weights is None else 'one'}"  # fmt: skip
        return
    source = manifest.source
    pairs = (
        ("format", index.format, weights.format),
        ("fingerprint", index.fingerprint, weights.fingerprint),
        ("sha256", index.digest(), weights.sha256),
    )
    for name, expected, found in pairs:
        if expected != found:
            yield f"weights.{name}: the manifest's index says {expected}, found {found}"
    if weights.source not in (None, source):
        yield f"weights.source: the manifest says {source}, found {weights.source}"


def _unknown_devices(plan: Plan, topology: Topology) -> Iterator[str]:
    for stage_index, stage in enumerate(plan.stages):
        for rank_index, rank in enumerate(stage.ranks):
            if topology.device(rank.device) is None:
                yield (
                    f"stage[{stage_index}].ranks[{rank_index}].device: {rank.device} is not in "
                    f"topology {topology.name}"
                )
