"""How one shape differs from another, in as few words as tell it."""

from plancc.compiler.free_choice import layout_words
from plancc.compiler.placement.placement import PlacedStage

Stages = tuple[PlacedStage, ...]


def difference(old: Stages, new: Stages) -> str | None:
    """The new shape: what moved, where the devices stay; else all of it. None: the same."""
    if old == new:
        return None
    counts = [len({name for stage in stages for name in stage.devices}) for stages in (old, new)]
    if counts[0] != counts[1]:
        return f"on {counts[1]} device{'s' if counts[1] > 1 else ''}: {layout_words(new)}"
    if [stage.devices for stage in old] != [stage.devices for stage in new]:
        return layout_words(new)
    return "same devices, " + ", ".join(_cuts(old, new) + _mixers(old, new) + _rest(old, new))


def _cuts(old: Stages, new: Stages) -> list[str]:
    cuts = [(one.layers[0], two.layers[0]) for one, two in zip(old, new, strict=True)]
    moved = [f"{one} -> {two}" for one, two in cuts if one != two]
    return [f"cut {', '.join(moved)}"] if moved else []


def _mixers(old: Stages, new: Stages) -> list[str]:
    return [f"mixer {one.mixer} -> {two.mixer}" for one, two in zip(old, new, strict=True)
            if one.mixer != two.mixer]  # fmt: skip


def _rest(old: Stages, new: Stages) -> list[str]:
    """Shares of the tiles, and blocks that went to another stage."""
    tiles = [f"tiles {_tiles(one)} -> {_tiles(two)}" for one, two in zip(old, new, strict=True)
             if len(one.devices) > 1 and one.tiles != two.tiles]  # fmt: skip
    blocks = [f"{name} in stage {number}" for number, (one, two)
              in enumerate(zip(old, new, strict=True))
              for name in two.blocks if name not in one.blocks]  # fmt: skip
    return tiles + blocks


def _tiles(stage: PlacedStage) -> str:
    return "/".join(str(end - first) for first, end in stage.tiles)
