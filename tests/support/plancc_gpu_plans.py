"""Plans whose ranks are on cards, run in this process: in Triton's interpreter, or all on one card.

The backends are named by BACKENDS; a plan made for CPU devices is moved by `on_cards`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from plancc_group_plans import in_one_process

from plancc.executor.backend.cuda import CudaBackend, CudaRank
from plancc.executor.backend.cuda_link import CudaLink
from plancc.ir.plan import Plan, Transport

_SPINS_PER_MS = 1_500_000


class Interpreted(CudaBackend):
    def __init__(self) -> None:
        super().__init__("cpu")


class OneCard(CudaBackend):
    """Every device of the plan is this machine's first card."""

    def __init__(self, *, uses_graphs: bool = True) -> None:
        super().__init__("cuda", uses_graphs=uses_graphs)

    def open(self, **asked: Any) -> CudaRank:
        return super().open(**asked | {"uuid": cards_here()[0]})


class Eager(OneCard):
    def __init__(self) -> None:
        super().__init__(uses_graphs=False)


class Cards(CudaBackend):
    """Every device of the plan is the card of its uuid."""


class EagerCards(CudaBackend):
    def __init__(self) -> None:
        super().__init__(uses_graphs=False)


class Delayed(OneCard):
    """Both copies of every hop end late, and so does who reads what came, each by another time:
    whoever does not wait reads too early, or writes where another still reads."""

    def link(self, *args: Any, **asked: Any) -> CudaLink:
        return _DelayedLink(super().link(*args, **asked))  # type: ignore[return-value]


class DelayedCards(Cards):
    def link(self, *args: Any, **asked: Any) -> CudaLink:
        return _DelayedLink(super().link(*args, **asked))  # type: ignore[return-value]


class _DelayedLink:
    """Sleeps on the source's stream before it sends, on the target's before it takes and before it
    frees: up to 20 ms where rows are many; up to 2 where they are of one decode step of very many,
    which no host launches meanwhile."""

    def __init__(self, link: CudaLink) -> None:
        self._link, self._count, self._spins = link, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    def send_rows(self, rows: torch.Tensor) -> None:
        self._spins = _SPINS_PER_MS if len(rows) > 1 else _SPINS_PER_MS // 10
        self._sleep(self._link._source)
        self._link.send_rows(rows)

    def take_rows(self) -> torch.Tensor:
        self._sleep(self._link._target)
        return self._link.take_rows()

    def free(self) -> None:
        self._sleep(self._link._target)
        self._link.free()

    def _sleep(self, rank: CudaRank) -> None:
        self._count += 1
        with rank.on_stream():
            torch.cuda._sleep(self._spins * (self._count * 8 % 21))


_NAMES = ("Interpreted", "OneCard", "Eager", "Delayed", "Cards", "EagerCards", "DelayedCards")
BACKENDS = {name: {"cuda": f"plancc_gpu_plans:{name}"} for name in _NAMES}


def cards_here() -> list[str]:
    """uuids of this machine's cards."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [f"GPU-{torch.cuda.get_device_properties(i).uuid}".replace("GPU-GPU-", "GPU-")
            for i in range(count)]  # fmt: skip


def on_cards(plan: Plan, transport: Transport = "p2p", cards: Sequence[int] | None = None) -> Plan:
    """The same ranks on devices of kind cuda, in one worker; rows go by the transport.

    Devices are dealt over the cards of this machine, if it has any: in their order, or as `cards`
    says by number, one for each device.
    """
    uuids, cards = cards_here() or [None], cards or range(len(plan.devices))
    devices = tuple(
        device.model_copy(update={"kind": "cuda", "uuid": uuids[card % len(uuids)]})
        for card, device in zip(cards, plan.devices, strict=True)
    )
    return in_one_process(plan, transport).model_copy(update={"devices": devices})
