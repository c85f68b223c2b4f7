"""From what the passes decided to the plan document: totals, runtime settings, predicted times."""

from plancc.compiler.compilation import Compilation
from plancc.compiler.cost.memory import ledgers
from plancc.compiler.cost.predict import predict
from plancc.compiler.links import used_devices, workers_of
from plancc.compiler.placement.placement import PlacedStage, Placement
from plancc.ir.ask import Ask
from plancc.ir.kernel_spec import KERNELS
from plancc.ir.manifest import ModelManifest
from plancc.ir.plan import (
    HostAddress,
    Input,
    Inputs,
    Ledger,
    Plan,
    PlanDevice,
    PlanWeights,
    Provenance,
    Runtime,
    Stage,
    StageRank,
)
from plancc.ir.sizes import PAGE_TOKENS
from plancc.ir.topology import Device, Topology
from plancc.ir.version import VERSION

UNSTAMPED = ""


def draft_plan(state: Compilation) -> Plan:
    """The whole plan but for its digest."""
    placement, lowered = state.placement, state.lowered
    assert placement is not None
    assert lowered is not None
    model, topology, ask = state.manifest.shape(), state.topology, state.ask
    names = [name for stage in placement.stages for name in stage.devices]
    devices = used_devices(names, topology)
    sums = ledgers(model, topology, ask, placement)
    return Plan(
        digest=UNSTAMPED,
        provenance=Provenance(plancc=VERSION, solver=placement.proof),
        inputs=Inputs(
            model=Input(name=model.name, sha256=state.manifest.digest()),
            topology=Input(name=topology.name, sha256=topology.digest()),
        ),
        ask=ask,
        model=model,
        devices=tuple(_device(device, sums[device.name]) for device in devices),
        stages=tuple(_stage(stage) for stage in placement.stages),
        links=lowered.links,
        programs=lowered.programs,
        runtime=_runtime(state.manifest, topology, ask, placement, devices),
        weights=_weights(state.manifest),
        predicted=predict(model, topology, ask, placement),
        alternatives=placement.alternatives,
    )


def stamp(plan: Plan) -> Plan:
    """The plan with the digest of everything else in it."""
    return plan.model_copy(update={"digest": plan.computed_digest()})


def _device(device: Device, ledger: Ledger) -> PlanDevice:
    return PlanDevice(
        name=device.name,
        host=device.host,
        kind=device.kind,
        uuid=device.uuid,
        budget_bytes=device.budget_bytes,
        reserve_bytes=device.reserve_bytes,
        ledger=ledger,
    )


def _stage(stage: PlacedStage) -> Stage:
    ranks = zip(stage.devices, stage.tiles, strict=True)
    return Stage(
        layers=stage.layers,
        mixer=stage.mixer,
        ranks=tuple(StageRank(device=device, mlp_tiles=tiles) for device, tiles in ranks),
        blocks=stage.blocks,
    )


def _runtime(
    manifest: ModelManifest,
    topology: Topology,
    ask: Ask,
    placement: Placement,
    devices: tuple[Device, ...],
) -> Runtime:
    """Each slot has whole pages, as one allocator hands them out."""
    hosts = {device.host for device in devices}
    return Runtime(
        context=placement.context,
        slots=ask.slots,
        page_tokens=PAGE_TOKENS,
        pages=ask.slots * -(-placement.context // PAGE_TOKENS),
        prefill_chunk=ask.prefill_chunk,
        dtype=manifest.dtype,
        kv_dtype=ask.kv_dtype or manifest.dtype,
        kernels=KERNELS,
        hosts=tuple(
            HostAddress(name=host.name, address=host.address)
            for host in sorted(topology.hosts, key=lambda host: host.name)
            if host.name in hosts
        ),
        workers=workers_of(devices, ask.workers),
    )


def _weights(manifest: ModelManifest) -> PlanWeights | None:
    """An absolute source names this machine, so it stays out of the plan."""
    index = manifest.weights
    if index is None:
        return None
    return PlanWeights(
        source=portable_source(manifest.source),
        format=index.format,
        fingerprint=index.fingerprint,
        sha256=index.digest(),
    )


def portable_source(source: str | None) -> str | None:
    """The manifest's relative source; None for an absolute one, in any system's spelling."""
    if source is None or source.startswith(("/", "\\", "~")) or source[1:2] == ":":
        return None
    return source
