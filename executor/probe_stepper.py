"""A rank of a made-up model and the step that it is asked for again and again."""

import time
from dataclasses import dataclass, replace
from math import ceil

import torch

from plancc.executor.backend.api import RankModel
from plancc.executor.step import Step
from plancc.ir.instruction import Run
from plancc.ir.sizes import PAGE_TOKENS

_DRAWN_ROWS, _STD = 512, 0.02


@dataclass(frozen=True)
class Stepper:
    """A rank and the one step that it is asked for again and again."""

    rank: RankModel
    run: Run
    step: Step
    hidden: torch.Tensor

    def us(self, count: int = 1) -> float:
        """Of one of `count` steps that follow each other on the device."""
        begin = time.monotonic_ns()
        for _ in range(count):
            self.rank.run(self.run, self.step, self.hidden)
        self.rank.wait()
        return (time.monotonic_ns() - begin) / 1e3 / count


def fill(weights: torch.Tensor) -> None:
    """Write ones into a norm's gains; random numbers into a matrix [rows, columns], of some rows
    again and again, since to draw all takes a CPU longer than to step.

    Tensor cores that multiply equal numbers take less power, and run an H200 a seventh faster.
    Pages of the host that were never written would all be one page.
    """
    if weights.dim() == 1:
        weights.fill_(1.0)
        return
    drawn = torch.empty_like(weights[:_DRAWN_ROWS]).normal_(std=_STD)
    for first in range(0, len(weights), len(drawn)):
        part = weights[first : first + len(drawn)]
        part.copy_(drawn[: len(part)])


def begun(stepper: Stepper, step: Step) -> Stepper:
    stepper.rank.begin(step)
    return replace(stepper, step=step)


def first_step(rows: int, *, wants_logits: bool) -> Step:
    """One decode row, or a prompt of more."""
    if rows > 1:
        return prompt_step(rows, 0, wants_logits=wants_logits)
    return Step("decode", (0,), (0,), (0,), ((0, 0, 0),), wants_logits)


def prompt_step(rows: int, first: int, *, wants_logits: bool = False) -> Step:
    """With the pages that rows before it did not touch."""
    begin, end = (ceil(tokens / PAGE_TOKENS) for tokens in (first, first + rows))
    pages = tuple((0, page, page) for page in range(begin, end))
    return Step("prompt", (0,), (first,), (0,) * rows, pages, wants_logits)
