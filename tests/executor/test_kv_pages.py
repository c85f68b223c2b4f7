"""Page ids come from one allocator: never twice at once, never short of one, freed once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plancc.executor.kv_pages import KvPages

PAGE = 16


def pool(context: int, slots: int) -> KvPages:
    pages = slots * -(-context // PAGE)
    return KvPages(context=context, page_tokens=PAGE, pages=pages, slots=slots)


def test_a_slot_grows_by_a_page_only_when_it_crosses_a_border() -> None:
    pages = pool(64, 1)
    assert pages.grow(0, 1) == ((0, 0, 0),)
    assert pages.grow(0, 16) == ()
    assert pages.grow(0, 17) == ((0, 1, 1),)
    assert pages.grow(0, 64) == ((0, 2, 2), (0, 3, 3))


def test_releasing_twice_gives_back_once() -> None:
    pages = pool(64, 2)
    pages.grow(1, 40)
    assert pages.release(1) == 3
    assert pages.release(1) == 0
    assert pages.num_free == 8


def test_growing_past_the_context_is_a_bug_of_the_caller() -> None:
    with pytest.raises(AssertionError):
        pool(40, 1).grow(0, 49)


@given(
    context=st.integers(1, 70),
    slots=st.integers(1, 4),
    moves=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 70)), max_size=40),
)
def test_every_slot_can_always_grow_to_the_context(
    context: int, slots: int, moves: list[tuple[int, int]]
) -> None:
    pages, held = pool(context, slots), dict[int, dict[int, int]]()
    last_logical, last_page = -(-context // PAGE) - 1, slots * -(-context // PAGE) - 1
    for slot, num_tokens in moves:
        if slot >= slots:
            continue
        if num_tokens == 0:
            assert pages.release(slot) == len(held.pop(slot, {}))
            continue
        for owner, logical, page in pages.grow(slot, min(num_tokens, context)):
            assert owner == slot
            assert all(page not in others.values() for others in held.values())
            held.setdefault(slot, {})[logical] = page
            if page == last_page and context % PAGE:
                assert logical == last_logical, "the short page holds the tail of a slot"
        for owner, logicals in held.items():
            assert sorted(logicals) == list(range(len(logicals))), owner
    assert pages.num_free == slots * -(-context // PAGE) - sum(map(len, held.values()))
