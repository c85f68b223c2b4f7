"""What a plan's TP groups must keep (ir/groups.py says what they are); part of ir.legality."""

from collections import Counter
from collections.abc import Iterator

from plancc.ir.groups import exchange_pairs, partial_row_bytes, share_roots
from plancc.ir.layers import DenseMlp, Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Plan, Stage

Problems = Iterator[str]


def group_problems(model: ModelShape, stages: tuple[Stage, ...]) -> Problems:
    """Layers that a group cannot cut among its ranks. Heads are never cut, so they never matter."""
    for index, stage in enumerate(stages):
        if len(stage.ranks) == 1:
            continue
        layers = range(stage.layers[0], min(stage.layers[1], len(model.layers)))
        wrong = {layer: reason for layer in layers
                 if (reason := _why_uncut(model.layers[layer], len(stage.ranks)))}  # fmt: skip
        for layer, reason in wrong.items():
            where = f"stage[{index}].layers: layer {layer}"
            yield f"{where} is in a group of {len(stage.ranks)}: {reason}"
        counts = {layer: num_tiles_of(model, layer) for layer in layers}
        for layer, count in counts.items():
            if not wrong and count != counts[layers[0]]:
                yield (
                    f"stage[{index}].layers: layers of a group have the same tiles: layer "
                    f"{layers[0]} has {counts[layers[0]]}, layer {layer} has {count}"
                )


def _why_uncut(layer: Layer, num_ranks: int) -> str | None:
    if not isinstance(layer.mlp, DenseMlp):
        return f"expected a dense MLP, found {layer.mlp.kind if layer.mlp else 'none'}"
    if layer.mlp.intermediate_size is None:
        return "its MLP has no intermediate_size"
    if layer.mlp.num_tiles < num_ranks:
        return f"its MLP has {layer.mlp.num_tiles} tile(s), fewer than ranks"
    return None


def num_tiles_of(model: ModelShape, index: int) -> int:
    """Tiles of a layer's MLP; 1 where it is never cut, or where there is no such layer."""
    mlp = model.layers[index].mlp if index < len(model.layers) else None
    return mlp.num_tiles if isinstance(mlp, DenseMlp) else 1


def partial_link_problems(plan: Plan) -> Problems:
    """Each rank of a group sends each other what it sums, over one link, as wide as its roots."""
    wanted: dict[tuple[int, int], int] = {}
    first = 0
    for stage in plan.stages:
        roots = share_roots([rank.mlp_tiles for rank in stage.ranks])
        for source, target in exchange_pairs(stage.mixer, len(stage.ranks)):
            row = partial_row_bytes(plan.model, roots[source])
            wanted[first + source, first + target] = row
        first += len(stage.ranks)
    found = Counter((link.from_, link.to) for link in plan.links if link.payload == "partial")
    for pair in sorted(wanted.keys() | found.keys()):
        if found[pair] != (pair in wanted):
            yield (
                f"links: expected {int(pair in wanted)} of partial rows from rank {pair[0]} to "
                f"{pair[1]}, found {found[pair]}"
            )
    for index, link in enumerate(plan.links):
        row = wanted.get((link.from_, link.to), link.bytes_per_row)
        if link.payload == "partial" and link.bytes_per_row != row:
            yield f"links[{index}].bytes_per_row: expected {row}, found {link.bytes_per_row}"
