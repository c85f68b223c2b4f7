"""From a plan to this process's ranks: models opened, links made, nothing loaded yet."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from plancc.executor.backend.api import Backend, RankModel, Recorder
from plancc.executor.backends import BACKENDS, backend_of
from plancc.executor.comm import Group
from plancc.executor.link_ends import LinkEnds
from plancc.executor.pulse import Pulse
from plancc.executor.rank import OnLogits, OnReport, Rank
from plancc.executor.ranks import LocalRanks
from plancc.executor.seats import Seat, seats_of, worker_named
from plancc.executor.tail import Tail
from plancc.executor.wires import tail_of
from plancc.ir.plan import Plan
from plancc.ir.sizes import kv_bytes_per_token_of


@dataclass(frozen=True)
class OpenSeat:
    """A rank whose memory is taken, before it has links."""

    seat: Seat
    model: RankModel
    backend: Backend


def open_models(
    plan: Plan, seats: tuple[Seat, ...], backends: Mapping[str, str] = BACKENDS
) -> tuple[OpenSeat, ...]:
    """Allocate weights, KV and scratch of each seat, in rank order."""
    kinds = {seat.kind: backend_of(seat.kind, backends) for seat in seats}
    return tuple(
        OpenSeat(seat, _open(plan, seat, kinds[seat.kind]), kinds[seat.kind]) for seat in seats
    )


def _open(plan: Plan, seat: Seat, backend: Backend) -> RankModel:
    """A backend that has no groups serves plans without them."""
    group = {"group": seat.group} if seat.group else {}
    return backend.open(
        model=plan.model,
        runtime=plan.runtime,
        layers=seat.layers,
        blocks=seat.blocks,
        tiles=seat.tiles,
        threads=worker_named(plan, seat.worker).threads or 1,
        uuid=plan.device(seat.device).uuid,
        **group,
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
    ends = LinkEnds(plan, {item.seat.rank: item for item in opened}, group, news)
    steps = frozenset(i for i, link in enumerate(plan.links) if link.payload == "step")
    ranks = [
        Rank(
            seat=item.seat,
            model=item.model,
            inlets=ends.inlets(item.seat.rank),
            outlets=ends.outlets(item.seat.rank),
            step_links=steps,
            kv_layers=_kv_layers(plan, item.seat),
            pulse=pulse,
            on_logits=on_logits,
            on_report=on_report,
            exchanger=ends.exchanger(item.seat),
        )
        for item in opened
    ]
    recorder = _recorder(plan, opened, ends)
    all_here = len(opened) == len(seats_of(plan))
    if not all_here:
        for rank, item in zip(ranks, opened, strict=True):
            rank.tail = _tail(plan, rank, item.backend)
    return LocalRanks(ranks, pulse, news, recorder, are_all_here=all_here)


def _recorder(plan: Plan, opened: tuple[OpenSeat, ...], ends: LinkEnds) -> Recorder | None:
    """Where all ranks are here, on devices of one kind."""
    if len(opened) < len(seats_of(plan)) or len({item.seat.kind for item in opened}) > 1:
        return None
    return opened[0].backend.recorder([item.model for item in opened], ends.row_links)


def _tail(plan: Plan, rank: Rank, backend: Backend) -> Tail | None:
    """Where the rank's rows all go by wires, on a device that has steps launched as one."""
    first = tail_of(plan, rank.seat)
    recorder = backend.recorder([rank.model], ()) if first is not None else None
    return Tail(rank, recorder, first) if recorder is not None and first is not None else None


def _kv_layers(plan: Plan, seat: Seat) -> tuple[int, ...]:
    if seat.group and not seat.group.holds_rows:
        return ()
    kept = (layer for layer in range(*seat.layers)
            if kv_bytes_per_token_of(plan.model.layers[layer]) != 0)  # fmt: skip
    return tuple(kept)
