"""A step under way in a rank."""

from dataclasses import dataclass, field

import torch

from plancc.executor.stamps import Span, Stamp
from plancc.executor.step import Step


@dataclass
class Flight:
    """The next instruction, the rows that the rank holds of the step, and what took how long."""

    step: Step | None
    at: int = 0
    rows: torch.Tensor | None = None
    runs: list[Span] = field(default_factory=list)
    exchanges: list[Span] = field(default_factory=list)
    exchange_from: Stamp | None = None

    @property
    def is_decode(self) -> bool:
        return self.step is not None and self.step.phase == "decode"

    def add_run(self, begin: Stamp | None, end: Stamp | None) -> None:
        if begin is not None and end is not None:
            self.runs.append((begin, end))

    def add_exchange(self, end: Stamp | None) -> None:
        """It began at `exchange_from`."""
        if self.exchange_from is not None and end is not None:
            self.exchanges.append((self.exchange_from, end))
