"""Prompts as graphs, frozen as on a card: what an eager rank answers, whatever came before."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are made

import pytest
import torch
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_frozen import FROZEN_BACKENDS, frozen_graphs
from plancc_gpu_plans import on_cards
from plancc_group_plans import group_plan, stage
from plancc_local_run import Answer, LocalRun
from plancc_plans import manifest_of

from plancc.compiler.placement.placement import PlacedStage
from plancc.executor.backend import cuda_graphs
from plancc.executor.backend.cuda_graphs import StepGraphs
from plancc.executor.request import Request
from plancc.executor.step import Step
from plancc.ir.plan import Transport
from plancc.kernels.gpu.launch import IS_INTERPRETED

pytestmark = pytest.mark.skipif(not IS_INTERPRETED, reason="kernels were made for a card before")

# Small enough for the interpreter: three tiles of one column.
SPEC = TinyLlama(num_layers=1, hidden_size=16, intermediate_size=3, vocab_size=40, num_heads=1,
                 num_kv_heads=1, sliding_window=9)  # fmt: skip
POISONED = ("incoming", "hidden", "gained", "qkv", "attended", "activated", "angles")


@dataclass(frozen=True)
class Case:
    """Prompts of some lengths, one after the other. Of one layer, so that a group's partial rows
    lie in the other slot the next time."""

    stages: tuple[PlacedStage, ...]
    transport: Transport = "staged"
    chunk: int = 6
    lengths: tuple[int, ...] = (5, 3, 8, 16)

    @property
    def num_layers(self) -> int:
        return self.stages[-1].layers[1]

    @property
    def alone(self) -> "Case":
        return replace(self, stages=(stage((0, self.num_layers), "cpu0"),))


CASES = {
    "a rank, of one block and two": Case((stage((0, 1), "cpu0"),), "local", 40, (43, 3, 45, 38)),
    "a group": Case((stage((0, 1), "cpu0", "cpu1", tiles=(1,), mixer="replicated"),)),
    "a group with an owner": Case(
        (stage((0, 1), "cpu0", "cpu1", "cpu2", tiles=(1, 2), mixer="owned"),)
    ),
    "two stages": Case((stage((0, 1), "cpu0"), stage((1, 2), "cpu1")), "p2p"),
}
ONE_STAGE = [name for name, case in CASES.items() if len(case.stages) == 1]
Folders = dict[int, Path]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Checkpoints, by the number of layers."""
    path = tmp_path_factory.mktemp("prompts")
    return {count: write_checkpoint(path / str(count), replace(SPEC, num_layers=count))
            for count in (1, 2)}  # fmt: skip


@pytest.fixture(scope="module")
def eager(folders: Folders) -> Callable[[Case], list[Answer]]:
    """Answers of a rank that makes no graphs, in the same chunks: in the interpreter a product's
    bits depend on where in a block a row is."""
    found: dict[tuple[int, tuple[int, ...]], list[Answer]] = {}

    def of(case: Case) -> list[Answer]:
        key = (case.num_layers, case.lengths)
        if key not in found:
            found[key] = answers(case.alone, "eager", folders)
        return found[key]

    return of


def answers(case: Case, backend: str, folders: Folders) -> list[Answer]:
    """All but the first one, which is given up once it has a token."""
    run = opened(case, backend, folders)
    first, *others = (tuple((3 * i + n) % 40 for i in range(n)) for n in case.lengths)
    rows = run.engine.generate(Request(prompt_ids=first, max_tokens=9))
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    return [*(run.answer(prompt, 1) for prompt in others[:-1]), run.answer(others[-1], 2)]


def opened(case: Case, backend: str, folders: Folders) -> LocalRun:
    """What is in rows that only fill up is no number."""
    folder = folders[case.num_layers]
    manifest = manifest_of(folder, replace(SPEC, num_layers=case.num_layers))
    plan = group_plan(manifest, case.stages, context=56, prefill_chunk=case.chunk)
    run = LocalRun(on_cards(plan, case.transport), folder, FROZEN_BACKENDS[backend])
    for rank in run.ranks.ranks:
        buffers = rank.model._scratch.tensors  # type: ignore[attr-defined]
        for name in buffers.keys() & POISONED:
            buffers[name].fill_(float("nan"))
    return run


@pytest.mark.parametrize("name", [name for name in CASES if "rank" not in name])
def test_frozen_segments_answer_what_an_eager_rank_answers(
    name: str, folders: Folders, eager: Callable[[Case], list[Answer]]
) -> None:
    expected = eager(CASES[name])
    with frozen_graphs() as graphs:
        assert answers(CASES[name], "segments", folders) == expected
    assert max(graph.num_replays for graph in graphs) > 1, "each was replayed as it was captured"


@pytest.mark.parametrize("name", ONE_STAGE)
def test_frozen_chunks_of_all_ranks_answer_what_an_eager_rank_answers(
    name: str, folders: Folders, eager: Callable[[Case], list[Answer]]
) -> None:
    expected = eager(CASES[name])
    with frozen_graphs() as graphs:
        assert answers(CASES[name], "steps", folders) == expected
    assert max(graph.num_replays for graph in graphs) > 0


class Counted:
    """Steps of one rank of a thousand layers. Launches are words that tell which step they were
    made for: an upper case letter is a chunk of so many blocks, a digit a row of decode."""

    def __init__(self) -> None:
        rank: Any = SimpleNamespace(
            has_head=True, num_layers=1000, graphs=SimpleNamespace(is_paused=False),
            filled=lambda num_rows: -(-num_rows // 4), reach=lambda position: position // 10,
            on_stream=nullcontext, wait=lambda: None,
        )  # fmt: skip
        self.graphs = StepGraphs([rank], [])
        self.launched: list[str] = []
        self.number = 0

    def ask(self, steps: str) -> list[str]:
        """What is launched of those steps; what is captured is not."""
        before = len(self.launched)
        for name in steps:
            self.graphs.run(self._step(name), self._word(f"{name}{self.number}"))
            self.number += 1
        return self.launched[before:]

    def _step(self, name: str) -> Step:
        if name.isdigit():
            return Step("decode", (0,), (int(name),), (1,), ())
        rows = 4 * (ord(name) - ord("A") + 1) - self.number % 4
        return Step("prompt", (0,), (self.number,), (1,) * rows, ())

    def _word(self, word: str) -> Any:
        def launch() -> torch.Tensor:
            self.launched.append(word)
            return torch.empty(0)

        return launch


@pytest.fixture
def counted() -> Any:
    """Captured launches are the same once more."""

    def captured(launch: Any) -> Any:
        graph = made.launched
        made.launched = []
        launch()
        (word,), made.launched = made.launched, graph
        return lambda: made.launched.append(word)

    made = Counted()
    with patch.object(cuda_graphs, "_captured", captured):
        yield made


def test_a_chunk_is_launched_then_recorded_then_replayed(counted: Counted) -> None:
    assert counted.ask("AABAAB") == ["A0", "A1", "B2", "A1", "A1", "B5"]


def test_a_step_of_decode_is_recorded_as_it_comes(counted: Counted) -> None:
    assert counted.ask("1213") == ["10", "10", "10", "10"]


def test_the_chunk_that_was_not_used_for_longest_makes_room(counted: Counted) -> None:
    """There is room for two; steps of decode take none."""
    assert counted.ask("1AABBA") == ["10", "A1", "A2", "B3", "B4", "A2"]
    assert counted.ask("CC1") == ["C6", "C7", "10"]
    assert counted.ask("AB") == ["A2", "B10"], "B was gone, and is recorded anew"
    assert counted.ask("AC") == ["A2", "C12"]
