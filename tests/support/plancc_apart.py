"""Plans whose ranks are on cards, each in a process of its own, joined by wires.

On a machine with cards NCCL carries them. Elsewhere `APART` runs the ranks in Triton's interpreter
and gloo carries what NCCL would, all at once and waited for: ranks meet as they do on cards.
"""

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from plancc_builders import build_device, build_topology
from plancc_gpu_plans import Interpreted
from plancc_group_plans import group_plan
from plancc_local_run import Answer
from plancc_plans import write_plan

from plancc.compiler.placement.placement import PlacedStage
from plancc.executor.backends import BACKENDS
from plancc.executor.fleet import Fleet
from plancc.executor.messages import Report
from plancc.executor.request import Outcome, Request, Sampled
from plancc.executor.session import Session
from plancc.executor.step import Step
from plancc.executor.weights import read_weights
from plancc.ir.manifest import ModelManifest
from plancc.ir.plan import Plan

GIB = 2**30
APART = {"cuda": "plancc_apart:Apart"}


class GlooSwap:
    """As NcclSwap, by gloo, over memory of the host."""

    def __init__(self, store: Any, name: str, place: int, size: int) -> None:
        gloo = vars(dist)["ProcessGroupGloo"]
        options = gloo._Options()
        options._devices = [gloo.create_device(hostname="127.0.0.1")]
        self._group = gloo(vars(dist)["PrefixStore"](name, store), place, size, options)

    def __call__(self, sent: list[torch.Tensor], taken: list[torch.Tensor]) -> None:
        works = [self._group.send([rows], place, 0)
                 for place, rows in enumerate(sent) if rows.numel()]  # fmt: skip
        works += [self._group.recv([rows], place, 0)
                  for place, rows in enumerate(taken) if rows.numel()]  # fmt: skip
        for work in works:
            work.wait()


class Relaunched:
    """A Recorder without graphs: a step of a new key is launched twice, as if to record it."""

    def __init__(self) -> None:
        self._keys: set[Hashable] = set()

    def key(self, step: Step) -> Hashable:
        return step.num_rows, step.is_timed

    def run(self, step: Step, launch: Callable[[], torch.Tensor]) -> torch.Tensor:
        if self.key(step) not in self._keys:
            self._keys.add(self.key(step))
            launch()
        return launch()


class Apart(Interpreted):
    """A rank of a process of its own, without a card."""

    def recorder(self, models: Any, links: Any) -> Any:
        return Relaunched()

    def _swap(self, store: Any, name: str, place: int, size: int) -> GlooSwap:
        return GlooSwap(store, name, place, size)


def plan_on_cards(
    manifest: ModelManifest, stages: Sequence[PlacedStage], *, workers: str = "device",
    uuids: Sequence[str] = (), **ask: Any,
) -> Plan:  # fmt: skip
    """Stages of devices gpu0, gpu1 ... that reach each other; as the compiler would join them."""
    count = len({name for stage in stages for name in stage.devices})
    devices = [build_device(f"gpu{i}", 4 * GIB, uuid=uuids[i] if uuids else None)
               for i in range(count)]  # fmt: skip
    topology = build_topology(devices, latency_us=10.0, gb_s=200.0, mode="p2p")
    return group_plan(manifest, stages, topology=topology, workers_rule=workers, **ask)


def answer_of(
    plan: Plan, path: Path, folder: Path, request: Request, *,
    backends: dict[str, str] | None = None, times: int = 1, before: int = 0,
) -> Answer:  # fmt: skip
    """By processes of the plan's workers: the last of so many equal answers. No preflight.

    before: answers to the prompt without its last tokens, of which graphs are made.
    """
    write_plan(plan, path)
    with Fleet(plan, path, read_weights(plan, folder), backends or dict(BACKENDS)) as fleet:
        session = Session(fleet)
        session.bring_up(lambda done: None)
        fields = {"prompt_ids": request.prompt_ids[:-3], "max_tokens": 2}
        shorter = request.model_copy(update=fields)
        for _ in range(before):
            _answer(session, shorter)
        found = [_answer(session, request) for _ in range(times)]
    assert all(one == found[0] for one in found)
    return found[0]


def _answer(session: Session, request: Request) -> Answer:
    *rows, outcome = session.generate(request)
    assert isinstance(outcome, Outcome)
    asked = Report(slot=outcome.slot, num_tokens=outcome.num_tokens, wants_kv=True)
    kv: dict[int, str] = {}
    for report in session.reports(asked).values():
        for layer, digest in report.kv_sha256.items():
            assert kv.setdefault(layer, digest) == digest, f"layer {layer}: ranks differ"
    sampled = tuple(row for row in rows if isinstance(row, Sampled))
    return Answer(sampled, outcome.finish, outcome.num_tokens, kv)
