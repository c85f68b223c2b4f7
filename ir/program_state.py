"""Where a rank stands in its program and what rows it holds, as the walk of programs sees it."""

from dataclasses import dataclass, field
from typing import Literal

from plancc.ir.groups import Mixer, holders
from plancc.ir.instruction import Instruction
from plancc.ir.plan import Program

LOGITS = "logits"
STEP = "step"


@dataclass(frozen=True)
class Inside:
    """Rows of a layer that is not done: normed for its MLP, or a share's partial rows."""

    kind: Literal["normed", "partial"]
    layer: int


Rows = int | str | Inside | None  # layers done so far, or LOGITS; None: this rank holds no rows


@dataclass
class RankState:
    """`group`: the ranks of its stage. `is_posted`: its rows of the exchange it waits for left."""

    program: Program
    layers: tuple[int, int]
    mixer: Mixer
    group: tuple[int, ...]
    knows_step: bool
    rows: Rows = None
    at: int = 0
    held: set[int] = field(default_factory=set)
    is_posted: bool = False

    @property
    def where(self) -> str:
        return f"programs[{self.program.rank}].instructions[{self.at}]"

    @property
    def next(self) -> Instruction | None:
        done = self.at >= len(self.program.instructions)
        return None if done else self.program.instructions[self.at]

    @property
    def is_lead(self) -> bool:
        return self.program.rank == self.group[0]

    @property
    def holds_rows(self) -> bool:
        return self.program.rank - self.group[0] in holders(self.mixer, len(self.group))


def named(rows: Rows) -> str:
    """The rows in words."""
    if isinstance(rows, Inside):
        return f"{rows.kind} rows of layer {rows.layer}"
    if rows is None:
        return "no rows"
    return f"rows after layer {rows - 1}" if isinstance(rows, int) else rows
