"""One TP group that holds the whole model: priced exactly for every objective."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from plancc.compiler.cost.compute import Work
from plancc.compiler.placement.columns import ColumnSet, column_set
from plancc.compiler.placement.deals import DealTables
from plancc.compiler.placement.placed_units import placed
from plancc.compiler.placement.placement import PlacedStage
from plancc.compiler.placement.problem import INF, Problem
from plancc.compiler.placement.shares import ShareTimes, deal
from plancc.compiler.placement.times import decode_times, prompt_times
from plancc.compiler.placement.unit_choice import MIXER_ORDER, UnitShape, UnitStage
from plancc.compiler.placement.unit_source import UnitSource
from plancc.compiler.placement.units import Unit, units_of

DOES_NOT_FIT, NOT_SEARCHED = "does not fit", "not searched"


@dataclass(frozen=True)
class Whole:
    """All layers on one group: its value, what its tightest rank has left, its deal."""

    unit: Unit
    mode: str
    value: int
    room: int
    deal: int


@dataclass(frozen=True)
class OneStage:
    """Groups of every size that hold the model in one stage."""

    problem: Problem

    @property
    def values(self) -> dict[int, int]:
        """devices -> the best value."""
        best: dict[int, int] = {}
        for whole in self.wholes:
            best[whole.unit.size] = min(best.get(whole.unit.size, whole.value), whole.value)
        return best

    def row(self, *, several: bool) -> tuple[int, int] | str:
        """(value, devices) of the best, or why there is none."""
        if several:
            return f"{NOT_SEARCHED} for --objective {self.problem.ask.objective}"
        best = min(((value, devices) for devices, value in self.values.items()), default=None)
        return best or DOES_NOT_FIT

    def stages(self, devices: int) -> tuple[PlacedStage, ...]:
        """The preferred of the best on so many devices."""
        value = self.values[devices]
        equal = [w for w in self.wholes if w.unit.size == devices and w.value == value]
        chosen = min(equal, key=self._order)
        last, blocks = self.problem.num_layers, (1 << len(self.problem.free_blocks)) - 1
        runs = deal(devices, self._tiles, chosen.deal)
        shape = UnitShape((UnitStage(chosen.unit, 0, last, runs, blocks),), chosen.mode)
        return placed(self.problem, shape)

    def _order(self, whole: Whole) -> tuple[object, ...]:
        names = tuple(self.problem.seats[seat] for seat in whole.unit.seats)
        return (-whole.room, names, self.problem.head_modes.index(whole.mode),
                MIXER_ORDER[whole.unit.mixer], whole.deal)  # fmt: skip

    @property
    def _tiles(self) -> int:
        return int(self._sources[0].rooms.sizes.runs[0, self.problem.num_layers])

    @cached_property
    def wholes(self) -> tuple[Whole, ...]:
        """Every group that holds the whole model, at its best deal."""
        return tuple(whole for source in self._sources for number, unit in enumerate(source.units)
                     if unit.size > 1 and (whole := self._whole(source, number)))  # fmt: skip

    def _whole(self, source: UnitSource, number: int) -> Whole | None:
        blocks = source.block_sets - 1
        found = source.settle(source.whole(number, blocks))
        if not len(found) or found.cost[0] >= INF:
            return None
        value = self._scale * int(found.cost[0])
        return Whole(source.units[number], source.mode, value, int(found.free[0]),
                     int(found.deal[0]))  # fmt: skip

    @cached_property
    def _sources(self) -> list[UnitSource]:
        times = ShareTimes(self.problem, self._work)
        deals = DealTables(times, units_of(self.problem))
        return [UnitSource(self._columns, deals, mode) for mode in self.problem.head_modes]

    @cached_property
    def _work(self) -> Work:
        """The step that is timed: a prompt's chunk, every stream's row, or one row."""
        ask, context, kv = self.problem.ask, self.problem.context, self.problem.kv_dtype
        if ask.objective == "prefill":
            prompt = ask.prompt or 1
            return Work(min(ask.prefill_chunk, prompt), context, kv, prompt)
        return Work(ask.slots if ask.objective == "throughput" else 1, context, kv)

    @cached_property
    def _columns(self) -> ColumnSet:
        timed = prompt_times if self._work.prompt is not None else decode_times
        return column_set(self.problem, timed(self.problem, self._work.rows))

    @cached_property
    def _scale(self) -> int:
        """Beats of one stage: a prompt's chunks, or one."""
        if self._work.prompt is None:
            return 1
        return int(np.ceil(self._work.prompt / self._work.rows))
