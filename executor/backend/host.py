"""What ranks whose rows lie in this process's memory have in common: nothing is ever under way."""

import time
from collections.abc import Sequence
from typing import Any

import torch

from plancc.executor.backend.api import Wire
from plancc.executor.links import LocalLink
from plancc.executor.step import Step


class HostRank:
    """The parts of RankModel that need no device."""

    stamps_are_free = True

    def begin(self, step: Step) -> None:
        """Nothing has to be told before `run`."""

    def read(self, rows: torch.Tensor) -> torch.Tensor:
        return rows

    def draw(self, logits: torch.Tensor) -> None:
        """The host draws."""

    def now(self) -> int:
        return time.monotonic_ns()

    def wait(self) -> None:
        """Nothing is under way."""

    def peak_bytes(self) -> None:
        """The host's memory is not counted by rank."""

    def device_name(self) -> None:
        """The machine has a name, which others tell."""

    def set_clock(self) -> None:
        """The clock is the host's."""


class HostLinks:
    """The parts of Backend that are about links, for such ranks."""

    def link(
        self, source: Any, target: Any, *, shape: tuple[int, ...], dtype: torch.dtype,
        is_staged: bool, in_place: bool,
    ) -> LocalLink:  # fmt: skip
        """Zeros, so that the pages are there before the first step."""
        return LocalLink(torch.zeros(shape, dtype=dtype), shape[0])

    def wire(self, model: Any, **asked: Any) -> Wire:
        """Rows of such ranks go by gloo, and a plan that says otherwise has been refused."""
        raise AssertionError(f"no wire for {model}")

    def recorder(self, models: Sequence[Any], links: Sequence[Any]) -> None:
        """Nothing is won by launching a step as one."""
