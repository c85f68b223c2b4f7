"""Placements by one word each, and models by a few numbers: what benchmarks on cards are about.

2      two stages                    tp2     a group of two, attention and KV on both
3u     three uneven stages           tp2uo   uneven shares, the mixers on the first rank
2h     two, the head on the first    2xtp2   two stages, each a group of two
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from plancc_group_plans import cpu_topology, group_plan, stage

from plancc.compiler.frontends.architectures import read_architecture
from plancc.compiler.placement.placement import PlacedStage
from plancc.ir.layers import DenseMlp
from plancc.ir.manifest import ModelManifest, ModelShape
from plancc.ir.plan import Plan

_WORD = re.compile(r"(?:(?P<stages>\d+)|(?:(?P<of>\d+)x)?tp(?P<ranks>\d+))(?P<flags>[uoh]*)")


@dataclass(frozen=True)
class Shape:
    """Stages of ranks. Seats are numbered through; seat i is device `cpu<i>` of a plan."""

    word: str
    stages: tuple[PlacedStage, ...]
    head: Literal["first", "last"] = "last"

    @property
    def num_ranks(self) -> int:
        """Of the largest stage."""
        return max(len(item.devices) for item in self.stages)

    def is_like(self, other: "Shape") -> bool:
        return (self.stages, self.head) == (other.stages, other.head)


def shape_of(word: str, model: ModelShape) -> Shape:
    """Raises ValueError for a word that means no shape of this model."""
    found = _WORD.fullmatch(word)
    if found is None:
        raise ValueError(f"shape {word!r}: expected words like 2, 3u, 2h, tp2, tp2uo, 2xtp2")
    num_stages, num_ranks = int(found["stages"] or found["of"] or 1), int(found["ranks"] or 1)
    flags, tiles = found["flags"], num_tiles(model)
    if not 1 <= num_stages <= len(model.layers) or not 1 <= num_ranks <= tiles:
        raise ValueError(f"shape {word}: {model.name} has {len(model.layers)} layers of {tiles} "
                         f"tiles")  # fmt: skip
    cuts = borders(len(model.layers), num_stages, is_even="u" not in flags or num_ranks > 1)
    shares = borders(tiles, num_ranks, is_even="u" not in flags)[1:-1]
    mixer: Any = "single" if num_ranks == 1 else "owned" if "o" in flags else "replicated"
    stages = tuple(
        stage(span, *(f"cpu{index * num_ranks + rank}" for rank in range(num_ranks)),
              tiles=shares, mixer=mixer)
        for index, span in enumerate(pairwise(cuts))
    )  # fmt: skip
    return Shape(word, stages, "first" if "h" in flags else "last")


def borders(total: int, parts: int, *, is_even: bool) -> list[int]:
    """0 .. total in so many parts; uneven ones grow."""
    power = 1.0 if is_even else 1.5
    return [max(i, round(total * (i / parts) ** power)) for i in range(parts)] + [total]


def num_tiles(model: ModelShape) -> int:
    """Of every MLP: those of the first layer."""
    mlp = model.layers[0].mlp
    assert isinstance(mlp, DenseMlp)
    return mlp.num_tiles


def seated_shape(word: str, stages: Sequence[PlacedStage], devices: Sequence[str]) -> Shape:
    """Of stages that the compiler placed: seats by the number that their device has in `devices`,
    each device in one of them."""
    placed = tuple(
        stage(item.layers, *(f"cpu{devices.index(name)}" for name in item.devices),
              tiles=[first for first, _ in item.tiles[1:]], mixer=item.mixer)
        for item in stages
    )  # fmt: skip
    is_first = "head" in stages[0].blocks and len(stages) > 1
    return Shape(word, placed, "first" if is_first else "last")


def shape_plan(manifest: ModelManifest, shape: Shape, **ask: Any) -> Plan:
    """On CPU devices by its seats, some of which it may leave out; for `on_cards`."""
    names = [name for item in shape.stages for name in item.devices]
    topology = cpu_topology(1 + max(map(seat_number, names)))
    return group_plan(manifest, shape.stages, head=shape.head, topology=topology, **ask)


def seat_number(name: str) -> int:
    return int(name.removeprefix("cpu"))


def cards_of(plan: Plan, num_cards: int, *, is_swapped: bool = False) -> list[int]:
    """The number of each device's card: seats are dealt in order, or from the last card on."""
    numbers = [seat_number(device.name) % num_cards for device in plan.devices]
    return [num_cards - 1 - number for number in numbers] if is_swapped else numbers


def manifest_of_config(
    config: Mapping[str, Any],
    name: str,
    *,
    num_layers: int | None = None,
    window: int | None = None,
) -> ModelManifest:
    """`num_layers`: fewer than the config has. `window`: of every second layer, from the first
    on, as in gpt-oss; the others see all keys."""
    reading = read_architecture(dict(config), where="config.json", name=name, tied=None)
    shape = reading.shape
    layers = shape.layers[:num_layers]
    if window is not None:
        layers = tuple(
            layer.model_copy(update={"mixer": layer.mixer.model_copy(update={"window": window})})
            if index % 2 == 0 else layer
            for index, layer in enumerate(layers)
        )  # fmt: skip
    data = shape.model_copy(update={"layers": layers}).model_dump()
    return ModelManifest.model_validate(data | {"format": "plancc.model/1"})
