"""Questions that name what is not there, and flags that are obeyed."""

import pytest
from plancc_builders import GIB, MIB, build_device, build_layer, build_model, build_topology, gib
from plancc_cuts import ledgers_of, placed, refused, stages_of

from plancc.ir.errors import BadInput
from plancc.ir.layers import Block
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Topology


def toy(count: int = 6, **fields: object) -> ModelShape:
    layers = [build_layer(100 * MIB, kv=1024)] * count
    values = {"embed": 10 * MIB, "head": 10 * MIB} | fields
    return build_model(layers, hidden_size=8, **values)


def pair(a: float = 4.0, b: float = 4.0, **fields: object) -> Topology:
    return build_topology([build_device("A", a, **fields), build_device("B", b, **fields)])


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"devices": ("A", "C")}, r"--devices C: toy has A, B"),
        ({"pin": {"vision": "A"}}, r"--pin vision=A: toy has blocks embed, head"),
        ({"pin": {"head": "C"}}, r"--pin head=C: expected one of A, B"),
        ({"without": ("vision",)}, r"--without vision: toy has blocks embed, head"),
        ({"stage_layers": (3, 4)}, r"--stage-layers 3,4: adds up to 7, toy has 6 layers"),
        ({"stage_layers": (2, 2, 2)}, r"--stage-layers 2,2,2: 3 stages, found 2 device"),
        ({"stage_layers": (3, 3), "max_devices": 1}, r"2 stages, --max-devices allows 1"),
        ({"context": 131073}, r"--context 131073: toy was made for at most 131072 tokens"),
        ({"tp": 2}, r"--tp 2: layer 0 of toy has no MLP to cut"),
        ({"objective": "prefill"}, r"--objective prefill: device A has no tflops for bfloat16"),
        ({"kv_dtype": "float32"}, r"--kv-dtype float32: toy is bfloat16 and gives KV as bytes"),
        ({"devices": ("A", "A"), "stage_layers": (6,)}, r"1 stages, --devices names 2 seats"),
    ],
)
def test_a_question_about_what_is_not_there_is_bad_input(
    flags: dict[str, object], said: str
) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        placed(toy(), pair(), **flags)
    assert caught.value.exit_code == 2


def test_a_dtype_that_no_device_has_is_bad_input() -> None:
    """A V100 has no bfloat16, and no other dtype is chosen silently."""
    cards = pair(dtypes=("float16", "float32"))
    with pytest.raises(BadInput, match=r"device A: toy is bfloat16, found float16, float32"):
        placed(toy(), cards)
    assert stages_of(placed(toy(dtype="float16"), cards)) == [("A", 0, 6)]


def test_devices_without_the_dtype_are_left_out_unless_they_are_asked_for() -> None:
    old = build_device("A", 4.0, gb_s=900.0, dtypes=("float16", "float32"))
    mixed = build_topology([old, build_device("B", 4.0)])
    assert stages_of(placed(toy(), mixed)) == [("B", 0, 6)]
    with pytest.raises(BadInput, match=r"device A: toy is bfloat16"):
        placed(toy(), mixed, devices=("A", "B"))


def test_a_block_of_the_manifest_must_name_a_device_that_is_there() -> None:
    vision = Block(name="vision", weight_bytes=MIB, place="gpu7")
    with pytest.raises(BadInput, match=r"block vision: its place 'gpu7'"):
        placed(toy(blocks=[vision]), pair())


def test_every_seat_of_a_repeated_device_is_used_and_the_budget_is_shared() -> None:
    model, one = toy(), build_topology([build_device("cpu0", 1.0, overhead_bytes=50 * MIB)])
    flags = {"devices": ("cpu0", "cpu0"), "context": 1024}
    placement = placed(model, one, **flags)
    assert [name for name, _, _ in stages_of(placement)] == ["cpu0", "cpu0"]
    assert stages_of(placement)[-1][2] == 6
    (ledger,) = ledgers_of(model, one, placement, **flags).values()
    assert ledger.weights == 600 * MIB
    assert ledger.overhead == 50 * MIB
    hop = 2 * 512 * 16
    assert ledger.hop_buffers == hop


def test_seats_of_one_device_take_the_asked_layers() -> None:
    one = build_topology([build_device("cpu0", 1.0)])
    flags = {"devices": ("cpu0", "cpu0", "cpu0"), "stage_layers": (1, 2, 3), "context": 64}
    assert stages_of(placed(toy(), one, **flags)) == [
        ("cpu0", 0, 1), ("cpu0", 1, 3), ("cpu0", 3, 6)]  # fmt: skip


def test_seats_of_one_device_do_not_each_have_its_room() -> None:
    one = build_topology([build_device("cpu0", 400 * MIB)])
    refused(toy(), one, devices=("cpu0", "cpu0"), context=64)


def test_a_device_may_repeat_beside_another() -> None:
    flags = {"devices": ("A", "B", "A"), "stage_layers": (2, 2, 2), "context": 64}
    found = placed(toy(), pair(), **flags)
    assert stages_of(found) == [("A", 0, 2), ("B", 2, 4), ("A", 4, 6)]


def test_listed_devices_fix_the_order_and_the_cuts_go_with_them() -> None:
    flags = {"devices": ("B", "A"), "stage_layers": (5, 1), "context": 64}
    assert stages_of(placed(toy(), pair(), **flags)) == [("B", 0, 5), ("A", 5, 6)]


def test_fewer_of_the_listed_devices_are_enough() -> None:
    assert stages_of(placed(toy(), pair(), devices=("B", "A"), context=64)) == [("A", 0, 6)]


def test_a_pinned_embedding_decides_the_first_device() -> None:
    flags = {"pin": {"embed": "B", "head": "A"}, "context": 64, "head": "last"}
    placement = placed(toy(), pair(), **flags)
    assert [stage.devices[0] for stage in placement.stages] == ["B", "A"]
    assert [stage.blocks for stage in placement.stages] == [("embed",), ("head",)]


@pytest.mark.parametrize(("head", "stage"), [("first", 0), ("last", 1)])
def test_the_head_runs_where_it_is_asked_to(head: str, stage: int) -> None:
    flags = {"head": head, "stage_layers": (3, 3), "devices": ("A", "B"), "context": 64}
    placement = placed(toy(), pair(), **flags)
    assert placement.head_stage == stage
    ledgers = ledgers_of(toy(), pair(), placement, **flags)
    links = 2 if head == "first" else 1
    assert {ledger.hop_buffers for ledger in ledgers.values()} == {links * 2 * 512 * 16}


def test_a_block_left_out_takes_no_room() -> None:
    vision = Block(name="vision", weight_bytes=10 * GIB)
    refused(toy(blocks=[vision]), pair(), context=64)
    placement = placed(toy(blocks=[vision]), pair(), without=("vision",), context=64)
    assert [stage.blocks for stage in placement.stages] == [("embed", "head")]


def test_a_free_block_goes_where_there_is_room_for_it() -> None:
    """4 layers fill A; the block fits beside the other 2 only."""
    model = build_model([build_layer(100 * MIB)] * 6, hidden_size=8,
                        blocks=[Block(name="aux", weight_bytes=250 * MIB)])  # fmt: skip
    cards = pair(420 * MIB, 470 * MIB)
    flags = {"devices": ("A", "B"), "context": 64}
    placement = placed(model, cards, **flags)
    assert [stage.blocks for stage in placement.stages] == [(), ("aux",)]
    assert stages_of(placement) == [("A", 0, 4), ("B", 4, 6)]


def test_a_model_without_ends_is_placed_by_its_layers_alone() -> None:
    model = build_model([build_layer(gib(0.5))] * 4, hidden_size=8)
    placement = placed(model, pair(1.2, 1.2), context=64)
    assert stages_of(placement) == [("A", 0, 2), ("B", 2, 4)]
    assert placement.head_stage == 1
