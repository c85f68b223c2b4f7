"""From a plan to this process's ranks: models opened, links made, nothing loaded yet."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from plancc.executor.backend.api import RankModel
from plancc.executor.backends import BACKENDS, backend_of
from plancc.executor.comm import GlooInlet, GlooOutlet, Group, WatchedInlet
from plancc.executor.links import Inlet, LocalLink, Outlet
from plancc.executor.pulse import Pulse
from plancc.executor.rank import OnLogits, OnReport, Rank
from plancc.executor.ranks import LocalRanks
from plancc.executor.seats import Seat, seats_of, steps_in_flight, worker_named
from plancc.executor.step_codec import body_words_of
from plancc.ir.plan import Plan, PlanLink
from plancc.ir.sizes import kv_bytes_per_token_of, step_rows


@dataclass(frozen=True)
class OpenSeat:
    """A rank whose memory is taken, before it has links."""

    seat: Seat
    model: RankModel


def open_models(
    plan: Plan, seats: tuple[Seat, ...], backends: Mapping[str, str] = BACKENDS
) -> tuple[OpenSeat, ...]:
    """Allocate weights, KV and scratch of each seat, in rank order."""
    return tuple(
        OpenSeat(
            seat,
            backend_of(seat.kind, backends).open(
                model=plan.model,
                runtime=plan.runtime,
                layers=seat.layers,
                blocks=seat.blocks,
                tiles=seat.tiles,
                threads=worker_named(plan, seat.worker).threads or 1,
            ),
        )
        for seat in seats
    )


def link_up(
    plan: Plan,
    opened: tuple[OpenSeat, ...],
    group: Group | None,
    pulse: Pulse,
    *,
    on_logits: OnLogits,
    on_report: OnReport,
) -> LocalRanks:
    """The ranks of this process with their links; `group` is None where no link leaves it."""
    news = threading.Event()
    ends = _Ends(plan, {item.seat.rank for item in opened}, group, news)
    steps = frozenset(i for i, link in enumerate(plan.links) if link.payload == "step")
    ranks = [
        Rank(
            seat=item.seat,
            model=item.model,
            inlets=ends.inlets(item.seat.rank),
            outlets=ends.outlets(item.seat.rank),
            step_links=steps,
            kv_layers=tuple(
                layer
                for layer in range(*item.seat.layers)
                if kv_bytes_per_token_of(plan.model.layers[layer]) != 0
            ),
            pulse=pulse,
            on_logits=on_logits,
            on_report=on_report,
        )
        for item in opened
    ]
    return LocalRanks(ranks, pulse, news)


class _Ends:
    """Both ends of the links that touch this process."""

    def __init__(
        self, plan: Plan, mine: set[int], group: Group | None, news: threading.Event
    ) -> None:
        self._plan, self._mine, self._group, self._news = plan, mine, group, news
        order = {worker.name: index for index, worker in enumerate(plan.runtime.workers)}
        self._home = {seat.rank: order[seat.worker] for seat in seats_of(plan)}
        self._max_rows = step_rows(plan.runtime.slots, plan.runtime.prefill_chunk)
        self._local = {
            index: LocalLink(self._rows(link), self._slots(link))
            for index, link in enumerate(plan.links)
            if {link.from_, link.to} <= mine
        }

    def inlets(self, rank: int) -> Mapping[int, Inlet]:
        links = enumerate(self._plan.links)
        return {index: self._inlet(index, link) for index, link in links if link.to == rank}

    def outlets(self, rank: int) -> Mapping[int, Outlet]:
        links = enumerate(self._plan.links)
        return {index: self._outlet(index, link) for index, link in links if link.from_ == rank}

    def _inlet(self, index: int, link: PlanLink) -> Inlet:
        if index in self._local:
            return self._local[index]
        assert self._group is not None
        inlet = GlooInlet(
            self._group, self._home[link.from_], index, self._slots(link), self._rows(link),
            self._body(link),
        )  # fmt: skip
        return inlet if len(self._mine) == 1 else WatchedInlet(inlet, self._news)

    def _outlet(self, index: int, link: PlanLink) -> Outlet:
        if index in self._local:
            return self._local[index]
        assert self._group is not None
        return GlooOutlet(
            self._group, self._home[link.to], index, self._slots(link), self._rows(link),
            self._body(link),
        )  # fmt: skip

    def _rows(self, link: PlanLink) -> torch.Tensor | None:
        """Zeros, so that the pages are there before the first step."""
        if link.payload == "step":
            return None
        dtype = getattr(torch, self._plan.runtime.dtype)
        return torch.zeros((link.slots, self._max_rows, self._plan.model.hidden_size), dtype=dtype)

    def _slots(self, link: PlanLink) -> int:
        """Steps are a few bytes: one for each that may be under way."""
        return (
            max(link.slots, steps_in_flight(self._plan)) if link.payload == "step" else link.slots
        )

    def _body(self, link: PlanLink) -> int:
        return body_words_of(self._max_rows, self._max_rows) if link.payload == "step" else 0
