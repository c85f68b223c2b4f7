"""400 budgets of a 70B shape: a fit is found wherever a contiguous cut in the given order has one.

The budgets are those on which other planners were measured: 2 to 4 cards that together have 0.99 to
1.12 times the model. 332 of them can hold it, by every cut.
"""

import random
from functools import cache
from itertools import combinations

import pytest
from plancc_builders import build_device, build_layer, build_model, build_topology
from plancc_cuts import IN_ORDER, has_room, ledgers_of, placed

from plancc.ir.errors import DoesNotFit
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Topology

HIDDEN, INNER, LAYERS, VOCAB = 8192, 28672, 80, 128256
ATTENTION = 2 * HIDDEN * HIDDEN + 2 * HIDDEN * 1024  # 64 heads, 8 of them keep KV
LAYER_BYTES = 2 * (ATTENTION + 3 * HIDDEN * INNER + 2 * HIDDEN)
END_BYTES = 2 * VOCAB * HIDDEN
NORM_BYTES = 2 * HIDDEN
TOTAL_BYTES = LAYERS * LAYER_BYTES + 2 * END_BYTES + NORM_BYTES

Caps = tuple[int, ...]


@cache
def budgets() -> tuple[Caps, ...]:
    rng = random.Random(0)
    rows = []
    for _ in range(400):
        count = rng.choice([2, 3, 4])
        slack = rng.uniform(0.99, 1.12)
        weights = [rng.choice([8, 12, 16, 24, 32, 40, 48, 80]) for _ in range(count)]
        rows.append(tuple(int(w / sum(weights) * TOTAL_BYTES * slack) for w in weights))
    return tuple(rows)


def has_cut(caps: Caps) -> bool:
    """By the most layers that each chain of cards can hold, ends counted: no code of the solver."""
    for count in range(1, len(caps) + 1):
        for cards in combinations(caps, count):
            rooms = list(cards)
            rooms[0] -= END_BYTES
            rooms[-1] -= END_BYTES + NORM_BYTES
            held = [room // LAYER_BYTES for room in rooms]
            if min(held) >= 1 and sum(held) >= LAYERS:
                return True
    return False


@cache
def model() -> ModelShape:
    layers = [build_layer(LAYER_BYTES)] * LAYERS
    # a hidden row of one element: the published sweep knows no hop buffers
    return build_model(layers, embed=END_BYTES, head=END_BYTES + NORM_BYTES, hidden_size=1)


def machine(caps: Caps) -> Topology:
    return build_topology([build_device(f"c{i}", cap) for i, cap in enumerate(caps)])


def flags(caps: Caps) -> dict[str, object]:
    """A chunk of one row keeps hop buffers at 4 bytes."""
    names = tuple(f"c{i}" for i in range(len(caps)))
    return {**IN_ORDER, "devices": names, "context": 1, "prefill_chunk": 1}


def test_the_shape_is_the_published_one() -> None:
    assert LAYER_BYTES / 2**30 == pytest.approx(1.594, abs=0.001)
    assert TOTAL_BYTES / 2**30 == pytest.approx(131.417, abs=0.001)


def test_no_fit_is_missed_and_none_is_false_in_400_budgets() -> None:
    expected = [has_cut(caps) for caps in budgets()]
    found = [has_room(model(), machine(caps), **flags(caps)) for caps in budgets()]
    assert sum(expected) == 332
    assert found == expected


@pytest.mark.parametrize("index", range(7, 400, 33))
def test_a_placement_is_found_or_refused_as_the_cuts_say(index: int) -> None:
    caps = budgets()[index]
    asked = flags(caps)
    if not has_cut(caps):
        with pytest.raises(DoesNotFit):
            placed(model(), machine(caps), **asked)
        return
    placement = placed(model(), machine(caps), **asked)
    ledgers = ledgers_of(model(), machine(caps), placement, **asked)
    assert min(ledger.free_after for ledger in ledgers.values()) >= 0
    assert sum(ledger.weights for ledger in ledgers.values()) == LAYERS * LAYER_BYTES
