"""The one allocator of KV pages. It lives at the driver; every rank holds its layers' planes.

A slot of `context` tokens has ceil(context / page_tokens) logical pages. The pool has exactly that
many for every slot, so a slot never fails to grow. Where the context is no whole number of pages
the pool's very last page is short: it can hold the tail of a slot and nothing else, so it is only
ever given out as a slot's last logical page (ir.sizes.kv_pool_rows).
"""

import heapq

Page = tuple[int, int, int]  # slot, logical page, page id: as executor.step.Step says it


class KvPages:
    """Hands out page ids, lowest first, and takes each back once."""

    def __init__(self, *, context: int, page_tokens: int, pages: int, slots: int) -> None:
        self._page_tokens = page_tokens
        self._last_logical = -(-context // page_tokens) - 1
        assert pages == slots * (self._last_logical + 1), "the plan's pages are those of its slots"
        self._short = pages - 1 if context % page_tokens else None
        self._free = list(range(pages if self._short is None else pages - 1))
        self._short_is_free = self._short is not None
        self._held: dict[int, list[int]] = {}

    @property
    def num_free(self) -> int:
        return len(self._free) + int(self._short_is_free)

    def grow(self, slot: int, num_tokens: int) -> tuple[Page, ...]:
        """The pages that a slot is first to touch when it reaches `num_tokens` tokens."""
        held = self._held.setdefault(slot, [])
        wanted = -(-num_tokens // self._page_tokens)
        assert wanted <= self._last_logical + 1, "the context is checked before any step"
        new = []
        while len(held) < wanted:
            logical = len(held)
            held.append(self._take(logical))
            new.append((slot, logical, held[-1]))
        return tuple(new)

    def release(self, slot: int) -> int:
        """Take a slot's pages back; how many. A slot that holds none gives 0: freeing is once."""
        pages = self._held.pop(slot, [])
        for page in pages:
            if page == self._short:
                self._short_is_free = True
            else:
                heapq.heappush(self._free, page)
        return len(pages)

    def _take(self, logical: int) -> int:
        if logical == self._last_logical and self._short_is_free:
            assert self._short is not None
            self._short_is_free = False
            return self._short
        return heapq.heappop(self._free)
