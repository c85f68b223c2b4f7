"""Could a device take more layers? Bytes of the layers beside its own, by the plan's own model."""

from collections.abc import Iterator
from dataclasses import dataclass

from plancc.ir.groups import holders
from plancc.ir.kernel_spec import mixer_reads, mlp_reads
from plancc.ir.layers import DenseMlp, Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Plan, Stage
from plancc.ir.sizes import kv_bytes_per_token, layer_kv_bytes, layer_weight_bytes


@dataclass(frozen=True)
class Extra:
    """Layers [first, end) that a device could take next: as few as a legal cut allows."""

    layers: tuple[int, int]
    size_bytes: int  # on that device
    left_bytes: int  # of its budget then; negative: so many are missing
    more_layers: int  # how many of that neighbour's layers fit, one after another


def legal_cuts(model: ModelShape) -> tuple[bool, ...]:
    """[L + 1] may a stage begin at this layer? Never between a layer and the KV that it reads."""
    legal = [True] * (len(model.layers) + 1)
    for index, layer in enumerate(model.layers):
        if layer.kv_from is not None:
            legal[layer.kv_from + 1 : index + 1] = [False] * (index - layer.kv_from)
    return tuple(legal)


def next_cut(model: ModelShape, cut: int, step: int) -> int | None:
    """The next legal place of a cut to the right (step 1) or left (-1); None beyond the model."""
    legal, at = legal_cuts(model), cut + step
    while 0 < at < len(model.layers) and not legal[at]:
        at += step
    return at if 0 <= at <= len(model.layers) else None


def extras_of(plan: Plan, number: int, device: str) -> Iterator[Extra]:
    """What a device of a stage could take from the stage after it, and from the one before."""
    first, end = plan.stages[number].layers
    if number + 1 < len(plan.stages):
        yield from _extra(plan, number, device, end, plan.stages[number + 1].layers[1])
    if number:
        yield from _extra(plan, number, device, first, plan.stages[number - 1].layers[0])


def _extra(plan: Plan, number: int, device: str, cut: int, limit: int) -> Iterator[Extra]:
    """Pieces from `cut` towards `limit`: the first one, and how many layers fit in all."""
    step = 1 if limit > cut else -1
    room = plan.device(device).ledger.free_after
    piece: tuple[int, int] | None = None
    size = used = taken = 0
    at = cut
    while at != limit:
        target = next_cut(plan.model, at, step)
        if target is None or (target - limit) * step > 0:
            break
        layers = (min(at, target), max(at, target))
        used += sum(held_bytes(plan, plan.stages[number], device, i) for i in range(*layers))
        piece, size = piece or layers, size if piece else used
        if used > room:
            break
        taken, at = taken + layers[1] - layers[0], target
    if piece is not None:
        yield Extra(piece, size, room - size, taken)


def held_bytes(plan: Plan, stage: Stage, device: str, index: int) -> int:
    """Bytes of one more layer on a device of a stage: weights of its share, KV and state."""
    layer, ask = plan.model.layers[index], plan.ask
    rank = [seat.device for seat in stage.ranks].index(device)
    kept = rank in holders(stage.mixer, len(stage.ranks))
    weights = layer_weight_bytes(layer, _share(stage, rank, layer))
    if not kept:
        return weights - layer.mixer.weight_bytes
    cache = layer_kv_bytes(
        plan.model, layer, context=plan.runtime.context, slots=plan.runtime.slots,
        prefill_chunk=ask.prefill_chunk, kv_dtype=plan.runtime.kv_dtype)  # fmt: skip
    return weights + cache + plan.runtime.slots * layer.state_bytes_per_slot


def _share(stage: Stage, rank: int, layer: Layer) -> tuple[int, int] | None:
    """None for a whole MLP, also where the layer's tiles are not those of the stage."""
    tiles = layer.mlp.num_tiles if isinstance(layer.mlp, DenseMlp) else 1
    same = tiles == stage.ranks[-1].mlp_tiles[1]
    return stage.ranks[rank].mlp_tiles if stage.mixer != "single" and same else None


def read_bytes(plan: Plan, number: int) -> float:
    """Bytes that a stage reads for one decode row at the plan's context, all ranks together.

    A mixer that every rank of a group runs counts once: it is the work that is done.
    """
    stage = plan.stages[number]
    total = sum(_layer_reads(plan, index) for index in range(*stage.layers))
    head = plan.model.block("head")
    return total + (head.weight_bytes if head and "head" in stage.blocks else 0)


def _layer_reads(plan: Plan, index: int) -> float:
    layer = plan.model.layers[index]
    source = plan.model.layers[layer.kv_from] if layer.kv_from is not None else layer
    keys = min(plan.runtime.context, layer.mixer.window or plan.runtime.context)
    kv = keys * kv_bytes_per_token(plan.model, source, plan.runtime.kv_dtype)
    mlp = sum(mlp_reads(layer, 1))
    return sum(mixer_reads(layer)) + mlp + kv + 2 * layer.state_bytes_per_slot
