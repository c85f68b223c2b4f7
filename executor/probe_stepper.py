"""A rank of a made-up model and the step that it is asked for again and again."""

import time
from dataclasses import dataclass, replace
from math import ceil

import torch

from plancc.executor.backend.api import RankModel
from plancc.executor.step import Step
from plancc.ir.instruction import Run
from plancc.ir.sizes import PAGE_TOKENS


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
