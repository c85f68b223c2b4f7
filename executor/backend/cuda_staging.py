"""What a step tells the device: positions, slots and tokens of its rows, and new pages.

It is written into pinned memory, which the device reads without being waited for; a piece of that
memory is used again only after it was read.
"""

import torch

from plancc.executor.backend.cuda_cache import DeviceCache
from plancc.executor.backend.cuda_drawn import DeviceTokens
from plancc.executor.step import Step
from plancc.ir.buffers import CHUNK_NUMBERS
from plancc.kernels.gpu.control import take_control

_PIECES = 4  # steps that the host may be ahead
_ALIGN = 4
_NOBODY = -1  # the position of a row that only fills up


class Staging:
    """On the device: `positions`, `slots` [most rows of decode]; of a prompt in their place `chunk`
    [3], its first position, rows and slot; `token_ids` [rows]."""

    def __init__(
        self, control: torch.Tensor, decode_rows: int, cache: DeviceCache,
        stream: torch.cuda.Stream | None,
    ) -> None:  # fmt: skip
        """control: int32 on the device, for all of them."""
        self._cache, self._decode_rows, self._stream = cache, decode_rows, stream
        self._control, is_cuda = control, stream is not None
        self.positions = self._control[:decode_rows]
        self.slots = self._control[decode_rows : 2 * decode_rows]
        self._before_tokens = max(2 * decode_rows, CHUNK_NUMBERS)
        self.chunk = self._control[:CHUNK_NUMBERS]
        self.token_ids = self._control[self._before_tokens :]
        size = len(self._control) + cache.host_pages.numel()
        size += -size % _ALIGN  # pieces begin alike: one kernel reads them all
        self._host = torch.zeros(_PIECES, size, dtype=torch.int32, pin_memory=is_cuda)
        self._done = [_event() if is_cuda else None for _ in range(_PIECES)]
        self._count = 0

    def send(self, step: Step, num_rows: int) -> None:
        """Enter a step on the device, its decode rows filled up to num_rows."""
        at = self._count % _PIECES
        self._count += 1
        host, done = self._host[at], self._done[at]
        if done is not None:
            done.synchronize()  # of four steps ago: chunks of a long prompt wait here
        length = self._fill(host, step, num_rows)
        tokens = None
        if isinstance(step.fed, DeviceTokens):
            tokens = step.fed.seen_from(self._control.device, self._stream)
        take_control(host[:length], tokens, self._control, first=self._before_tokens)
        self._send_pages(host[len(self._control) :], self._cache.note(step.pages))
        if done is not None:
            done.record(self._stream)

    def _fill(self, host: torch.Tensor, step: Step, num_rows: int) -> int:
        first = self._before_tokens
        if step.phase == "decode":
            fill = num_rows - step.num_rows
            positions = (*step.positions, *(_NOBODY,) * fill)
            host[:num_rows] = torch.tensor(positions, dtype=torch.int32)
            slots = (*step.slots, *(0,) * fill)
            host[self._decode_rows : self._decode_rows + num_rows] = torch.tensor(
                slots, dtype=torch.int32
            )
        else:
            numbers = (step.positions[0], step.num_rows, step.slots[0])
            host[:CHUNK_NUMBERS] = torch.tensor(numbers, dtype=torch.int32)
        if isinstance(step.fed, DeviceTokens):
            return first
        host[first : first + step.num_rows] = torch.tensor(step.ids(), dtype=torch.int32)
        return first + step.num_rows

    def _send_pages(self, host: torch.Tensor, slots: tuple[int, ...]) -> None:
        """Rows of the page table that changed. Of a copy: the next step may change them again."""
        width = self._cache.host_pages.shape[1]
        for slot in slots:
            row = host[slot * width : (slot + 1) * width]
            row.copy_(self._cache.host_pages[slot])
            self._cache.pages[slot].copy_(row, non_blocking=True)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event()  # type: ignore[no-untyped-call]
