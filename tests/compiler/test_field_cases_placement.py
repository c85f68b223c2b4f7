"""Situations from the field, with their numbers: what fits where."""

import pytest
from plancc_builders import GIB, MIB, build_device, build_layer, build_model, build_topology, gib
from plancc_cuts import (
    IN_ORDER,
    cuts_that_fit,
    has_room,
    ledgers_of,
    never_worse_when_free,
    placed,
    refused,
    stages_of,
)

from plancc.ir.errors import BadInput
from plancc.ir.layers import Block, Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Topology

SMALL = 8  # hidden size: hop buffers of 16 KiB do not disturb whole-token figures


def two(free_a: float, free_b: float, overhead: float = 0.0, **fields: object) -> Topology:
    more = {"overhead_bytes": gib(overhead)} | fields
    return build_topology([build_device("A", free_a, **more), build_device("B", free_b, **more)])


def even(count: int, size: float, ends: tuple[float, float] = (0, 0), kv: int = 0) -> ModelShape:
    """`count` layers of `size` GiB, with embed and head of so many GiB."""
    layers = [build_layer(gib(size), kv=kv)] * count
    return build_model(layers, embed=gib(ends[0]), head=gib(ends[1]), hidden_size=SMALL)


def fat_first() -> ModelShape:
    layers = [build_layer(gib(0.42), kv=4096)] * 48 + [build_layer(gib(0.20))] * 32
    return build_model(layers, embed=GIB, head=GIB, hidden_size=SMALL)


def test_each_layers_own_weights_and_kv_decide_the_cut() -> None:
    """C01: neither counts nor weights alone find 27..30."""
    model, machine = fat_first(), two(22.5, 22.5, 0.8)
    assert cuts_that_fit(model, machine, context=65536) == [27, 28, 29, 30]
    flags = IN_ORDER | {"devices": ("A", "B"), "context": 65536}
    placement = placed(model, machine, **flags)
    assert placement.stages[1].layers[0] in range(27, 31)
    for ledger in ledgers_of(model, machine, placement, **flags).values():
        assert ledger.total == sum(ledger.parts().values())
        assert ledger.free_after == gib(22.5) - ledger.total >= 0
    never_worse_when_free(model, machine, context=65536)


def kv_heavy() -> ModelShape:
    return even(32, 0.1125, (0.1, 0.2), kv=12288)


@pytest.mark.parametrize("context", [32768, 49152])
def test_one_device_is_preferred_while_weights_and_kv_fit_it(context: int) -> None:
    """C02 (a)"""
    placement = placed(kv_heavy(), two(23.6, 23.6, 0.8), context=context)
    assert len(placement.stages) == 1


@pytest.mark.parametrize(
    ("context", "cuts"),
    [(65536, range(6, 27)), (98304, range(14, 19)), (110592, [16]), (114688, []), (131072, [])],
)
def test_kv_grows_with_the_context_and_narrows_the_cuts(context: int, cuts: range) -> None:
    """C02 (a)"""
    assert cuts_that_fit(kv_heavy(), two(23.6, 23.6, 0.8), context=context) == list(cuts)
    if cuts:
        assert not has_room(kv_heavy(), two(23.6, 23.6, 0.8), context=context, max_devices=1)
        never_worse_when_free(kv_heavy(), two(23.6, 23.6, 0.8), context=context)


@pytest.mark.parametrize("context", [114688, 131072])
def test_a_context_that_is_too_long_is_told_the_longest_that_fits(context: int) -> None:
    """C02 (a): 113595 with cut 16, to the token."""
    machine, flags = two(23.6, 23.6, 0.8), IN_ORDER | {"devices": ("A", "B")}
    error = refused(kv_heavy(), machine, context=context, **flags)
    assert "--context 113595" in str(error)
    assert error.report["largest"]["context"] == 113595
    assert cuts_that_fit(kv_heavy(), machine, context=113595) == [16]
    assert cuts_that_fit(kv_heavy(), machine, context=113596) == []


def test_slots_multiply_the_kv_of_a_context_that_is_per_slot() -> None:
    """C02 (b): 4 slots need 31.8 GiB, one needs 19.8."""
    model = even(32, 15.0 / 32, kv=4096)
    machine = build_topology([build_device("A", 23.0, overhead_bytes=gib(0.8))])
    one = placed(model, machine, context=32768, slots=1)
    assert ledgers_of(model, machine, one, context=32768)["A"].kv == 4 * GIB
    row = refused(model, machine, context=32768, slots=4).report["devices"][0]
    assert row["need"]["kv"] == 16 * GIB
    assert row["need_bytes"] == pytest.approx(gib(31.8), abs=MIB)


def test_a_sliding_window_bounds_the_kv_of_its_layers() -> None:
    """C03: 2.8 GiB of KV, not 27.5."""
    window = build_layer(gib(14.5 / 30), window=1024, num_kv_heads=8, head_dim=256)
    full = build_layer(gib(14.5 / 30), num_kv_heads=2, head_dim=512)
    layers = ([window] * 5 + [full]) * 5
    model = build_model(layers, embed=gib(0.45), head=gib(0.45), hidden_size=SMALL)
    machine = build_topology([build_device("A", 22.5, overhead_bytes=gib(0.8))])
    flags = {"context": 131072, "prefill_chunk": 512}
    kv = ledgers_of(model, machine, placed(model, machine, **flags), **flags)["A"].kv
    assert kv == 5 * 131072 * 4096 + 25 * 1536 * 8192
    assert kv / GIB == pytest.approx(2.8, abs=0.05)


def hybrid(*, state: float = 0.0156, kv_everywhere: bool = False) -> ModelShape:
    """141 B a token, 4 slots of 262144: 0.1377 GiB of KV in each attention layer."""
    attention = build_layer(gib(0.6), kv=141)
    recurrent = build_layer(gib(0.6), state=gib(state), kv=141 if kv_everywhere else 0)
    layers = [attention if i % 4 == 3 else recurrent for i in range(48)]
    return build_model(layers, embed=gib(0.6), head=gib(0.6), hidden_size=SMALL, max_context=262144)


HYBRID = {"context": 262144, "slots": 4}


@pytest.mark.parametrize(
    ("model", "machine", "cuts"),
    [
        (hybrid(), two(19.4, 19.4, 2.25), [24]),
        (hybrid(state=0.0), two(19.4, 19.4, 2.25), [23, 24, 25, 26]),
        (hybrid(), two(19.4, 19.4, 0.1), list(range(21, 28))),
        (hybrid(kv_everywhere=True), two(19.4, 19.4, 2.25), []),
        (hybrid(), two(19.1, 19.1, 2.25), []),
    ],
    ids=["as it is", "without state", "overhead 0.1", "KV on all layers", "budget 19.1"],
)
def test_state_and_overhead_and_kv_all_count(
    model: ModelShape, machine: Topology, cuts: list[int]
) -> None:
    """C05"""
    assert cuts_that_fit(model, machine, **HYBRID) == cuts


def test_the_ledger_of_a_hybrid_model_tells_its_parts_apart() -> None:
    """C05: 19.2 GiB on each device."""
    model, machine = hybrid(), two(19.4, 19.4, 2.25)
    flags = IN_ORDER | HYBRID | {"devices": ("A", "B")}
    ledgers = ledgers_of(model, machine, placed(model, machine, **flags), **flags)
    for ledger in ledgers.values():
        assert ledger.total / GIB == pytest.approx(19.2, abs=0.01)
        assert ledger.weights == 24 * gib(0.6)
        assert ledger.state == 4 * 18 * gib(0.0156)
        assert ledger.kv == 6 * 4 * 262144 * 141
        assert ledger.overhead == gib(2.25)


@pytest.mark.parametrize(
    ("layers", "context", "kv"),
    [
        ([build_layer(MIB, num_heads=32, num_kv_heads=8, head_dim=128)] * 36, 40960, 5.625 * GIB),
        ([build_layer(MIB, kv=1152)] * 47, 8192, 423 * MIB),
        ([build_layer(MIB, k_dim=576, v_dim=512), build_layer(MIB, k_dim=256, v_dim=256)], 100,
         100 * 2 * (1088 + 512)),
    ],
    ids=["head_dim is a field", "latent cache", "K and V of unlike width"],
)  # fmt: skip
def test_kv_bytes_follow_the_geometry_of_each_layer(
    layers: list[Layer], context: int, kv: float
) -> None:
    """C06"""
    model = build_model(layers, hidden_size=2560)
    machine = build_topology([build_device("A", 22.5)])
    placement = placed(model, machine, context=context)
    assert ledgers_of(model, machine, placement, context=context)["A"].kv == kv


def tied() -> ModelShape:
    vocabulary = 151936 * 2560 * 2
    layers = [build_layer(gib(0.19))] * 36
    return build_model(layers, embed=vocabulary, head=vocabulary, tied=True, hidden_size=SMALL)


@pytest.mark.parametrize(
    ("free", "last", "first"),
    [(4.6, range(16, 21), range(12, 21)), (4.3, [18], range(14, 19)), (4.1, [], range(15, 18))],
)
def test_a_tied_head_away_from_its_embedding_costs_a_second_copy(
    free: float, last: range, first: range
) -> None:
    """C07: with the head last; one that runs beside the embedding is counted once."""
    machine = two(free, free)
    assert cuts_that_fit(tied(), machine) == list(last)
    assert cuts_that_fit(tied(), machine, head="first") == list(first)
    assert has_room(tied(), machine)


def test_one_device_holds_a_tied_matrix_once() -> None:
    """C07"""
    model, machine = tied(), two(16.0, 16.0)
    (ledger,) = ledgers_of(model, machine, placed(model, machine)).values()
    assert ledger.blocks == 151936 * 2560 * 2


def test_a_free_block_lies_where_the_cut_leaves_room() -> None:
    """C10: never with the even cut, which would put 10.74 of 10.6 GiB on A."""
    model, machine = with_aux(), two(11.2, 11.2, 0.6)
    assert cuts_that_fit(model, machine) == [21, 22, 23, 25, 26, 27]
    never_worse_when_free(model, machine)


@pytest.mark.parametrize(("home", "cuts"), [("A", [21, 22, 23]), ("B", [25, 26, 27])])
def test_a_pinned_block_is_obeyed_and_the_layers_move_around_it(home: str, cuts: list[int]) -> None:
    """C10"""
    model, machine, flags = with_aux(), two(11.2, 11.2, 0.6), {"pin": {"aux": home}}
    assert cuts_that_fit(model, machine, **flags) == cuts
    flags = {**IN_ORDER, **flags, "devices": ("A", "B")}
    placement = placed(model, machine, **flags)
    (holder,) = [stage for stage in placement.stages if "aux" in stage.blocks]
    assert holder.devices == (home,)
    blocks = ledgers_of(model, machine, placement, **flags)[home].blocks
    assert blocks == gib(0.3) + gib(0.82) + gib(0.5)


def test_a_block_pinned_to_no_device_is_bad_input() -> None:
    """C10"""
    with pytest.raises(BadInput, match=r"--pin aux=C: expected one of A, B"):
        placed(with_aux(), two(11.2, 11.2, 0.6), pin={"aux": "C"})


def with_aux() -> ModelShape:
    aux = Block(name="aux", weight_bytes=gib(0.82), workspace_bytes=gib(0.5))
    layers = [build_layer(gib(0.38))] * 48
    return build_model(layers, embed=gib(0.3), head=gib(0.3), blocks=[aux], hidden_size=SMALL)


def test_stages_of_listed_devices_name_them_in_order() -> None:
    """C01: what the cut lists rest on."""
    flags = IN_ORDER | {"devices": ("B", "A"), "context": 65536}
    names = [name for name, _, _ in stages_of(placed(fat_first(), two(22.5, 22.5, 0.8), **flags))]
    assert names == ["B", "A"]
