"""Where a position's K and V lie: planes [rows, num_kv_heads, head_dim], in pages of rows.

A slot keeps the last `capacity` positions of a layer: position p is row p % capacity of the slot,
that is row r % page_tokens of the page that the slot's table names for r // page_tokens.
"""

from typing import Any

from plancc.kernels.address import load_i64
from plancc.kernels.compile import kernel


@kernel
def row_of(step: Any, layer: Any, slot: Any, position: Any) -> Any:
    """The row of a slot's position in the layer's planes."""
    index = position % layer.capacity
    page = index // step.page_tokens
    first = load_i64(layer.pages, slot * layer.pages_per_slot + page) * step.page_tokens
    return first + index - page * step.page_tokens


@kernel
def page_of(step: Any, layer: Any, position: Any) -> Any:
    """(logical page, row in it) of a position: where a walk begins."""
    index = position % layer.capacity
    page = index // step.page_tokens
    return page, index - page * step.page_tokens


@kernel
def run_at(step: Any, layer: Any, slot: Any, page: Any, offset: Any, most: Any) -> Any:
    """(row, count): rows that follow each other from there on, `most` or those left in the page.

    The next run begins at row 0 of `page_after`. A walk of many keys divides only once.
    """
    first = load_i64(layer.pages, slot * layer.pages_per_slot + page) * step.page_tokens
    left = min(step.page_tokens, layer.capacity - page * step.page_tokens) - offset
    return first + offset, min(most, left)


@kernel
def page_after(step: Any, layer: Any, page: Any) -> Any:
    """The logical page after one, the first after the last."""
    return page + 1 if (page + 1) * step.page_tokens < layer.capacity else 0


@kernel
def first_seen(layer: Any, position: Any) -> Any:
    """The first position that a row at `position` attends to."""
    return max(0, position - layer.window + 1) if layer.window > 0 else 0
