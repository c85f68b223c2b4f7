"""Where layers and blocks were, and where they are: ranges that moved together, in words."""

from collections.abc import Iterator

from plancc.ir.plan import Plan

Move = tuple[str, str]


def layer_moves(old: Plan, new: Plan) -> Iterator[str]:
    """'layers 20..22: gpu0 -> gpu1', neighbours with the same move in one line."""
    before, after = _homes(old), _homes(new)
    if len(before) != len(after):
        yield f"the model has {len(after)} layers, it had {len(before)}"
    start = 0
    for layer in range(1, min(len(before), len(after)) + 1):
        same = layer < min(len(before), len(after)) and (before[layer], after[layer]) == (
            before[start],
            after[start],
        )
        if same:
            continue
        if before[start] != after[start]:
            yield f"{_layers(start, layer)}: {before[start]} -> {after[start]}"
        start = layer


def block_moves(old: Plan, new: Plan) -> Iterator[str]:
    before, after = _block_homes(old), _block_homes(new)
    for name in dict.fromkeys([*before, *after]):
        if name not in after:
            yield f"{name} leaves {before[name]}: left out"
        elif name not in before:
            yield f"{name} is new, on {after[name]}"
        elif before[name] != after[name]:
            yield f"{name}: {before[name]} -> {after[name]}"


def seat_changes(old: Plan, new: Plan) -> Iterator[str]:
    """The order of devices, and how a group cuts its MLPs."""
    before, after = _order(old), _order(new)
    if before != after:
        yield f"stages {before} -> {after}"
    for index, (one, two) in enumerate(zip(old.stages, new.stages, strict=False)):
        if one.mixer != two.mixer:
            yield f"stage {index} mixer {one.mixer} -> {two.mixer}"
        shares = [[rank.mlp_tiles for rank in stage.ranks] for stage in (one, two)]
        if shares[0] != shares[1]:
            yield f"stage {index} tiles {_shares(shares[0])} -> {_shares(shares[1])}"


def _layers(first: int, end: int) -> str:
    return f"layer {first}" if end - first == 1 else f"layers {first}..{end - 1}"


def _homes(plan: Plan) -> list[str]:
    """The devices of each layer; seats of a repeated device are told apart."""
    names = [rank.device for stage in plan.stages for rank in stage.ranks]
    homes: list[str] = []
    seen: dict[str, int] = {}
    for stage in plan.stages:
        parts = []
        for rank in stage.ranks:
            number = seen[rank.device] = seen.get(rank.device, -1) + 1
            parts.append(f"{rank.device}#{number}" if names.count(rank.device) > 1 else rank.device)
        homes.extend(["+".join(parts)] * max(0, stage.layers[1] - stage.layers[0]))
    return homes


def _block_homes(plan: Plan) -> dict[str, str]:
    return {name: stage.ranks[0].device for stage in plan.stages for name in stage.blocks}


def _order(plan: Plan) -> str:
    return " | ".join("+".join(rank.device for rank in stage.ranks) for stage in plan.stages)


def _shares(runs: list[tuple[int, int]]) -> str:
    return " ".join(f"[{first}, {end})" for first, end in runs)
