"""Views of a buffer's slots, each made once: making one takes as long as sending a few rows."""

import torch


class RowViews:
    """Of a buffer [slots, rows, ...]: the first rows of a slot."""

    def __init__(self, buffer: torch.Tensor) -> None:
        self.buffer = buffer
        self._views: dict[tuple[int, int], torch.Tensor] = {}

    def __len__(self) -> int:
        return self.buffer.shape[0]

    def at(self, slot: int, count: int) -> torch.Tensor:
        """[count, ...]"""
        view = self._views.get((slot, count))
        if view is None:
            view = self._views[slot, count] = self.buffer[slot, :count]
        return view
