"""Numbers that say where they stand and when they were sent, through a link between two streams.

Both sides are busy: the source before it sends, the target before it takes and before it looks.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch

from plancc.executor.backend import cuda_link
from plancc.executor.backend.cuda_link import CudaLink
from plancc.executor.row_views import RowViews

KIB, MIB = 2**10, 2**20
WAYS = ("written", "pinned", "pageable")
"""By a kernel that writes the target's memory; through slots of the host's of either kind."""
_MOST_SPINS = 300_000  # 0.2 ms or so
_MULTIPLIER = 2_654_435_761 % 2**31


@dataclass(frozen=True)
class Seat:
    """As much of a rank as a link asks for: a device and a stream of its own."""

    device: torch.device
    stream: torch.cuda.Stream

    @classmethod
    def of(cls, ordinal: int) -> "Seat":
        device = torch.device("cuda", ordinal)
        return cls(device, torch.cuda.Stream(device))

    @contextmanager
    def on_stream(self) -> Iterator[torch.cuda.Stream]:
        with torch.cuda.stream(self.stream):
            yield self.stream


def wrong_numbers(
    source: Seat, target: Seat, way: str, size_bytes: int, times: int, *, waits: bool = True
) -> int:
    """How many numbers of all messages were others than those sent, where they stood.

    waits: False drops what the link orders its streams by, to see that this would be noticed.
    """
    shape = (2, 4, size_bytes // 16)
    with patch.object(cuda_link, "_pinned", _pageable if way == "pageable" else cuda_link._pinned):
        link = CudaLink(source, target, shape=shape, dtype=torch.int32,  # type: ignore[arg-type]
                        is_staged=way != "written", in_place=False)  # fmt: skip
    rows = torch.empty(shape[1:], dtype=torch.int32, device=source.device)
    places = [torch.arange(rows.numel(), dtype=torch.int32, device=seat.device).view(shape[1:])
              for seat in (source, target)]  # fmt: skip
    wrong = torch.zeros((), dtype=torch.int64, device=target.device)
    for seat in (source, target):
        torch.cuda.synchronize(seat.device)
    recorded: Callable[..., Any] = cuda_link._recorded if waits else lambda stream: None
    with patch.object(cuda_link, "_recorded", recorded):
        for number in range(times):
            with source.on_stream():
                torch.cuda._sleep(_MOST_SPINS * (number * 7 % 11) // 10)
                torch.add(places[0] * _MULTIPLIER, number, out=rows)
            link.send_rows(rows)
            with target.on_stream():
                torch.cuda._sleep(_MOST_SPINS * (number * 5 % 13) // 12)
            found = link.take_rows()
            with target.on_stream():
                torch.cuda._sleep(_MOST_SPINS * (number * 3 % 7) // 6)
                wrong += (found != places[1] * _MULTIPLIER + number).sum()
            link.free()
    for seat in (source, target):
        torch.cuda.synchronize(seat.device)
    return int(wrong)


def _pageable(shape: tuple[int, ...], dtype: torch.dtype, source: Any) -> RowViews:
    return RowViews(torch.zeros(shape, dtype=dtype))
