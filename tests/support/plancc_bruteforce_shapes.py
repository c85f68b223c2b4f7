"""Every way to line devices up as stages, and every way to cut layers and tiles."""

from collections.abc import Iterator
from itertools import combinations, pairwise

from plancc_bruteforce_bytes import Group

from plancc.ir.ask import Ask
from plancc.ir.layers import DenseMlp
from plancc.ir.manifest import ModelShape
from plancc.ir.tiles import Span
from plancc.ir.topology import Topology

MAX_RANKS = 4


def lineups(model: ModelShape, topology: Topology, ask: Ask) -> Iterator[tuple[Group, ...]]:
    """Stages in order, each with its devices in rank order. No sums are made here.

    A replicated group in the middle is listed with each lead; only its first by name is the shape
    where no block lies on it (`is_led_by_name`).
    """
    names = ask.devices or tuple(sorted(device.name for device in topology.devices))
    able = tuple(name for name in names if model.dtype in _dtypes(topology, name))
    if ask.devices and able != names:  # refused: what was named cannot run this model
        return
    names = able
    most = ask.max_devices or len(names)
    if len(set(names)) < len(names):  # seats: all of them, one a stage
        if len(set(names)) <= most:
            yield tuple(Group((name,), "single") for name in names)
        return
    rows = _in_order(names, most) if ask.devices else _in_any_order(names, most)
    for row in rows:
        sizes = {len(devices) for devices in row}
        if len(row) > len(model.layers) or (ask.stage_layers and len(row) != len(ask.stage_layers)):
            continue
        if ask.tp in ("off", 1) and sizes != {1}:
            continue
        if ask.tp not in ("off", "auto") and sizes != {ask.tp}:
            continue
        if all(_may_group(topology, devices) for devices in row):
            yield from _with_mixers(row)


def _dtypes(topology: Topology, name: str) -> tuple[str, ...]:
    device = topology.device(name)
    assert device is not None
    return device.dtypes


def _in_order(names: tuple[str, ...], most: int) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Any of the names, in their order, in runs; the first of a run leads it."""
    for count in range(1, min(len(names), most) + 1):
        for used in combinations(names, count):
            for inner in range(count):
                for cuts in combinations(range(1, count), inner):
                    ends = (0, *cuts, count)
                    yield tuple(used[a:b] for a, b in pairwise(ends))


def _in_any_order(names: tuple[str, ...], most: int) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Disjoint sets of names, one a stage, each with every lead; the others by name."""
    yield from _extend((), names, most)


def _extend(
    row: tuple[tuple[str, ...], ...], rest: tuple[str, ...], most: int
) -> Iterator[tuple[tuple[str, ...], ...]]:
    if row:
        yield row
    for count in range(1, min(len(rest), most, MAX_RANKS) + 1):
        for chosen in combinations(rest, count):
            left = tuple(name for name in rest if name not in chosen)
            for lead in chosen:
                others = tuple(name for name in chosen if name != lead)
                yield from _extend((*row, (lead, *others)), left, most - count)


def _may_group(topology: Topology, devices: tuple[str, ...]) -> bool:
    if len(devices) == 1:
        return True
    if len({device.kind for device in topology.devices if device.name in devices}) > 1:
        return False
    hosts = {device.host for device in topology.devices if device.name in devices}
    measured = any(sorted(row.group) == sorted(devices) for row in topology.exchanges)
    return len(devices) <= MAX_RANKS and (len(hosts) == 1 or measured)


def _with_mixers(row: tuple[tuple[str, ...], ...]) -> Iterator[tuple[Group, ...]]:
    if not row:
        yield ()
        return
    mixers = ("single",) if len(row[0]) == 1 else ("replicated", "owned")
    for rest in _with_mixers(row[1:]):
        for mixer in mixers:
            yield (Group(row[0], mixer), *rest)


def is_led_by_name(lineup: tuple[Group, ...], homes: tuple[int, ...], ask: Ask) -> bool:
    """Whether replicated groups without a block, neither first nor last, begin by name."""
    middle = range(1, len(lineup) - 1)
    return ask.devices is not None or all(
        lineup[s].mixer != "replicated" or s in homes or lineup[s].devices[0] == min(lineup[s][0])
        for s in middle
    )


def legal_cuts(model: ModelShape) -> tuple[int, ...]:
    """Layers before which a stage may begin: no layer is parted from the one whose KV it reads."""
    kept = [(layer.kv_from, index) for index, layer in enumerate(model.layers)
            if layer.kv_from is not None]  # fmt: skip
    return tuple(k for k in range(1, len(model.layers))
                 if not any(source < k <= index for source, index in kept))  # fmt: skip


def tile_runs(model: ModelShape, layers: Span, ranks: int) -> tuple[tuple[Span, ...], ...]:
    """Every deal of a stage's tiles to its ranks; one empty deal for a single device."""
    if ranks == 1:
        return ((),)
    counts = set()
    for layer in model.layers[slice(*layers)]:
        is_cut = isinstance(layer.mlp, DenseMlp) and layer.mlp.intermediate_size is not None
        counts.add(layer.mlp.num_tiles if is_cut else 0)
    if len(counts) != 1 or min(counts) < ranks:
        return ()
    (tiles,) = counts
    return tuple(
        tuple(pairwise((0, *cuts, tiles))) for cuts in combinations(range(1, tiles), ranks - 1)
    )
