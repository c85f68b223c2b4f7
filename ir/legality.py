"""Is a plan sound in itself? The compiler's check and planrun's preflight both ask here.

Nothing but the plan is read: no manifest, no topology, no device. Every problem is told at once,
each beginning with the address of what is wrong, such as `stage[1].layers`.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from plancc.ir.group_legality import group_problems, num_tiles_of, partial_link_problems
from plancc.ir.kernel_spec import KERNELS
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Plan, PlanLink, Stage
from plancc.ir.program_walk import walk_programs
from plancc.ir.sizes import LINK_SLOTS, PAGE_TOKENS, hidden_row_bytes

STEP_BYTES_PER_ROW = 8
Problems = Iterator[str]


def plan_problems(plan: Plan) -> tuple[str, ...]:
    """Everything by which the plan contradicts itself; () for a sound one. The digest is apart."""
    shape = (
        *coverage_problems(plan.stages, len(plan.model.layers)),
        *_kv_problems(plan.model, plan.stages),
        *group_problems(plan.model, plan.stages),
        *_rank_problems(plan),
        *_block_problems(plan),
    )
    if shape:  # links and programs mean nothing over stages that are wrong
        return shape
    return (
        *_device_problems(plan),
        *_worker_problems(plan),
        *_runtime_problems(plan),
        *_link_problems(plan),
        *partial_link_problems(plan),
        *walk_programs(plan),
    )


def coverage_problems(stages: Sequence[Stage], num_layers: int) -> Problems:
    """Layers 0..n-1 exactly once, in order, without a gap; names the layers that are not so."""
    homes: dict[int, list[int]] = {layer: [] for layer in range(num_layers)}
    for index, stage in enumerate(stages):
        first, end = stage.layers
        if first >= end:
            yield f"stage[{index}].layers: expected at least one layer, found [{first}, {end})"
        if end > num_layers:
            yield f"stage[{index}].layers: the model ends at {num_layers}, found [{first}, {end})"
        for layer in range(first, min(end, num_layers)):
            homes[layer].append(index)
    if missing := [layer for layer, found in homes.items() if not found]:
        yield f"stages: layers {_ranges(missing)} are in no stage"
    for repeated, places in _repeated(homes):
        yield f"stages: layers {_ranges(repeated)} are in stages {', '.join(map(str, places))}"
    for index, (before, after) in enumerate(pairwise(stages)):
        if after.layers[0] < before.layers[0]:
            yield (
                f"stage[{index + 1}].layers: expected layers after {before.layers[1] - 1}, found "
                f"[{after.layers[0]}, {after.layers[1]})"
            )


def _repeated(homes: dict[int, list[int]]) -> Iterator[tuple[list[int], tuple[int, ...]]]:
    groups: dict[tuple[int, ...], list[int]] = {}
    for layer, found in homes.items():
        if len(found) > 1:
            groups.setdefault(tuple(found), []).append(layer)
    return ((layers, found) for found, layers in groups.items())


def _ranges(layers: Sequence[int]) -> str:
    """'3..5, 8' for [3, 4, 5, 8]."""
    parts: list[list[int]] = []
    for layer in layers:
        if parts and parts[-1][-1] + 1 == layer:
            parts[-1].append(layer)
        else:
            parts.append([layer])
    return ", ".join(f"{p[0]}..{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)


def _kv_problems(model: ModelShape, stages: Sequence[Stage]) -> Problems:
    for index, stage in enumerate(stages):
        for layer in range(stage.layers[0], min(stage.layers[1], len(model.layers))):
            source = model.layers[layer].kv_from
            if source is not None and not stage.layers[0] <= source < stage.layers[1]:
                yield (
                    f"stage[{index}].layers: layer {layer} reads the KV of layer {source}, which "
                    f"is in another stage"
                )


def _rank_problems(plan: Plan) -> Problems:
    known = {device.name for device in plan.devices}
    for index, stage in enumerate(plan.stages):
        where = f"stage[{index}]"
        for number, rank in enumerate(stage.ranks):
            if rank.device not in known:
                yield f"{where}.ranks[{number}].device: {rank.device} is not among the devices"
        if (len(stage.ranks) == 1) != (stage.mixer == "single"):
            yield f"{where}.mixer: {stage.mixer} with {len(stage.ranks)} rank(s)"
        tiles = max((num_tiles_of(plan.model, layer) for layer in range(*stage.layers)), default=1)
        cuts = [0, *(rank.mlp_tiles[1] for rank in stage.ranks)]
        runs = [rank.mlp_tiles for rank in stage.ranks]
        if runs != list(pairwise(cuts)) or cuts[-1] != tiles or any(a >= b for a, b in runs):
            yield f"{where}.ranks.mlp_tiles: expected runs that cover [0, {tiles}), found {runs}"


def _block_problems(plan: Plan) -> Problems:
    placed = Counter(name for stage in plan.stages for name in stage.blocks)
    wanted = {block.name for block in plan.model.blocks} - set(plan.ask.without)
    for name in sorted(wanted - set(placed)):
        yield f"stages: block {name} is in no stage"
    for name, times in placed.items():
        if name not in wanted:
            yield f"stages: block {name} is not of the model, or was left out"
        elif times > 1:
            yield f"stages: block {name} is in {times} stages"
    ends = (0, len(plan.stages) - 1)
    for index, stage in enumerate(plan.stages):
        if "embed" in stage.blocks and index != 0:
            yield f"stage[{index}].blocks: embed is read by the first stage"
        if "head" in stage.blocks and index not in ends:
            yield f"stage[{index}].blocks: head lies in the first or the last stage"


def _device_problems(plan: Plan) -> Problems:
    used = {rank.device for stage in plan.stages for rank in stage.ranks}
    names = [device.name for device in plan.devices]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"devices: {name} is listed {names.count(name)} times"
    for device in plan.devices:
        where, ledger = f"device {device.name}", device.ledger
        if device.name not in used:
            yield f"{where}: no stage runs on it"
        filled = sum(ledger.parts().values())
        if ledger.total != filled:
            yield f"{where} ledger.total: the parts add up to {filled}, found {ledger.total}"
        if ledger.free_after != device.budget_bytes - ledger.total:
            yield (
                f"{where} ledger.free_after: budget - total is "
                f"{device.budget_bytes - ledger.total}, found {ledger.free_after}"
            )
        if ledger.total > device.budget_bytes:
            yield (
                f"{where}: needs {ledger.total} bytes, its budget is {device.budget_bytes}: "
                f"{ledger.total - device.budget_bytes} short"
            )


def _worker_problems(plan: Plan) -> Problems:
    hosts = {device.name: device.host for device in plan.devices}
    homes = Counter(name for worker in plan.runtime.workers for name in worker.devices)
    for name in hosts:
        if homes[name] != 1:
            yield f"runtime.workers: device {name} is in {homes[name]} workers"
    names = Counter(worker.name for worker in plan.runtime.workers)
    for index, worker in enumerate(plan.runtime.workers):
        where = f"runtime.workers[{index}]"
        if names[worker.name] > 1:
            yield f"{where}.name: {worker.name} is the name of {names[worker.name]} workers"
        for name in worker.devices:
            if hosts.get(name) != worker.host:
                yield f"{where}: device {name} is on host {hosts.get(name)}, found {worker.host}"
    known = {host.name for host in plan.runtime.hosts}
    for name in sorted(set(hosts.values()) - known):
        yield f"runtime.hosts: no address of host {name}"


def _runtime_problems(plan: Plan) -> Problems:
    run, ask, model = plan.runtime, plan.ask, plan.model
    pages = run.slots * -(-run.context // PAGE_TOKENS)
    expected: tuple[tuple[str, object, object], ...] = (
        ("slots", ask.slots, run.slots),
        ("page_tokens", PAGE_TOKENS, run.page_tokens),
        ("pages", pages, run.pages),
        ("prefill_chunk", ask.prefill_chunk, run.prefill_chunk),
        ("dtype", model.dtype, run.dtype),
        ("kv_dtype", ask.kv_dtype or model.dtype, run.kv_dtype),
        ("kernels", KERNELS, run.kernels),
    )
    for name, right, found in expected:
        if right != found:
            yield f"runtime.{name}: expected {right}, found {found}"
    if not 1 <= run.context <= model.max_context:
        yield f"runtime.context: expected 1 to {model.max_context}, found {run.context}"
    if ask.objective != "context" and run.context != ask.context:
        yield f"runtime.context: {ask.context} was asked, found {run.context}"


def _link_problems(plan: Plan) -> Problems:
    ranks = [rank.device for stage in plan.stages for rank in stage.ranks]
    homes = {name: worker.name for worker in plan.runtime.workers for name in worker.devices}
    for index, link in enumerate(plan.links):
        where = f"links[{index}]"
        if max(link.from_, link.to) >= len(ranks) or link.from_ == link.to:
            yield f"{where}: no two ranks {link.from_} and {link.to}; there are {len(ranks)}"
            continue
        row = _row_bytes(plan.model, link)
        if row is not None and link.bytes_per_row != row:
            yield f"{where}.bytes_per_row: expected {row}, found {link.bytes_per_row}"
        if link.slots != LINK_SLOTS:
            yield f"{where}.slots: expected {LINK_SLOTS}, found {link.slots}"
        joined = homes.get(ranks[link.from_]) == homes.get(ranks[link.to])
        if joined != (link.transport in ("local", "p2p", "staged")):
            place = "one worker" if joined else "two workers"
            yield f"{where}.transport: {link.transport} between ranks of {place}"


def _row_bytes(model: ModelShape, link: PlanLink) -> int | None:
    if link.payload == "partial":
        return None
    return hidden_row_bytes(model) if link.payload == "hidden" else STEP_BYTES_PER_ROW
