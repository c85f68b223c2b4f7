"""Situations from the field, with their numbers: TP groups of any size, cut at group borders."""

import pytest
from plancc_builders import GIB, MIB, build_device, build_layer, build_model, build_topology, gib
from plancc_cuts import has_room, ledgers_of, placed, refused
from plancc_tp_cases import counts_of, cut_layer, cut_model, forms_of, sound_plan

from plancc.ir.errors import PlanccError
from plancc.ir.layers import DenseMlp, Layer, Mixer
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Plan
from plancc.ir.tiles import tile_bounds
from plancc.ir.topology import Topology

SMALL = 8  # hidden size: buffers of some KiB do not disturb whole-GiB figures


def equal_devices(count: int, free: float = 8.0) -> Topology:
    return build_topology([build_device(f"d{i}", free) for i in range(count)], latency_us=2.0)


def attention_model(
    heads: int, kv_heads: int, *, layers: int, hidden: int, inner: int, tiles: int | None = None
) -> ModelShape:
    """In bfloat16, with its real bytes."""
    width = 128 if hidden > 64 else 12
    mixer = 2 * hidden * width * 2 * (heads + kv_heads)
    layer = Layer(
        mixer=Mixer(kind="attention", weight_bytes=mixer, num_heads=heads, num_kv_heads=kv_heads,
                    head_dim=width),
        mlp=DenseMlp(kind="swiglu", weight_bytes=2 * 3 * hidden * inner, intermediate_size=inner,
                     tiles=tiles),
    )  # fmt: skip
    return build_model([layer] * layers, hidden_size=hidden)


def columns_of(plan: Plan, layer: int = 0) -> list[int]:
    """MLP columns of each rank of the first stage."""
    mlp = plan.model.layers[layer].mlp
    assert isinstance(mlp, DenseMlp)
    assert mlp.intermediate_size is not None
    bounds = tile_bounds(mlp.intermediate_size, mlp.group, mlp.num_tiles)
    runs = [rank.mlp_tiles for rank in plan.stages[0].ranks]
    return [bounds[end] - bounds[first] for first, end in runs]


@pytest.mark.parametrize("ranks", [2, 3, 5, 6, 7, 8])
@pytest.mark.parametrize(("heads", "kv_heads"), [(25, 1), (40, 2), (52, 4)])
def test_no_head_count_keeps_a_group_size_away(heads: int, kv_heads: int, ranks: int) -> None:
    """C11: none of 25, 40, 52 is divisible by all of 2, 3, 5, 6, 7, 8; kv heads never are."""
    model = attention_model(heads, kv_heads, layers=3, hidden=6656, inner=17920)
    plan = sound_plan(model, equal_devices(8), tp=ranks)
    assert [len(stage.ranks) for stage in plan.stages] == [ranks]
    assert sum(columns_of(plan)) == 17920


def test_three_devices_share_the_published_30b_shape() -> None:
    """C11: 6016 / 6016 / 5888 in whole groups of 128, and 5974 / 5973 / 5973 where none are."""
    for group, columns in ((128, [6016, 6016, 5888]), (1, [5974, 5973, 5973])):
        layer = cut_layer(88 * MIB, 680 * MIB, inner=17920, group=group, tiles=3)
        plan = sound_plan(build_model([layer] * 60, hidden_size=6656), equal_devices(3, 24.0), tp=3)
        assert columns_of(plan) == columns


def test_a_tiny_copy_with_five_heads_and_one_kv_head_is_cut_in_three() -> None:
    """C11: hidden 64, heads 5, kv 1, intermediate 96."""
    model = attention_model(5, 1, layers=2, hidden=64, inner=96)
    columns = columns_of(sound_plan(model, equal_devices(3), tp=3))
    assert sum(columns) == 96
    assert min(columns) >= 24


def test_a_group_of_its_own_choice_is_as_legal_as_an_asked_one() -> None:
    """C11: links so fast that many ranks pay. The widest of 7 shares of 16 tiles is no thinner than
    that of 6, so the seventh device stays closed; 6 divides neither heads nor kv heads.
    """
    model = attention_model(52, 4, layers=6, hidden=6656, inner=17920)
    machine = build_topology([build_device(f"d{i}", 8.0) for i in range(7)],
                             latency_us=0.5, gb_s=400.0)  # fmt: skip
    assert [len(stage.ranks) for stage in sound_plan(model, machine).stages] == [6]


@pytest.mark.parametrize(
    ("inner", "ranks", "columns"),
    [
        (29568, 2, [14720, 14848]),
        (11008, 4, [2688, 2688, 2816, 2816]),
        (1536, 8, [128, 128, 128, 128, 256, 256, 256, 256]),
        (18432, 8, [2304] * 8),
    ],
)
def test_shares_end_where_quantisation_groups_end(
    inner: int, ranks: int, columns: list[int]
) -> None:
    """C12: whole groups of 128, the widest share one group more than the narrowest."""
    layer = cut_layer(2 * MIB, 200 * MIB, inner=inner, group=128)
    plan = sound_plan(build_model([layer] * 2), equal_devices(ranks), tp=ranks)
    assert sorted(columns_of(plan)) == columns
    assert all(width % 128 == 0 for width in columns_of(plan))
    assert sum(columns_of(plan)) == inner


def test_a_group_wider_than_can_be_is_a_clear_no() -> None:
    """C12: 144 quantisation groups would do for 32 ranks; groups have at most 8."""
    layer = cut_layer(2 * MIB, 200 * MIB, inner=18432, group=128)
    with pytest.raises(PlanccError, match="--tp 32"):
        placed(build_model([layer] * 2), equal_devices(32), tp=32)


def packing() -> tuple[ModelShape, Topology]:
    """4 layers: mixers of 1.1 GiB, MLPs of 16 tiles of 0.25; A 13.5 GiB, B 7.2."""
    machine = build_topology([build_device("A", 13.5), build_device("B", 7.2)])
    return cut_model(4, gib(1.1), 4 * GIB, SMALL), machine


def test_only_an_owned_mixer_and_unequal_shares_fit() -> None:
    """20.4 of 20.7 GiB. A tile is 1 GiB over all layers, all mixers are 4.4.

    A pipeline leaves 3 GiB of A idle (2 layers of 5.1), and then 2.1 of B: 3 layers of 4. Replicas
    take 4.4 of B too, and leave it 2 tiles. Halves, 8 + 8, lack 0.8 on B; led by B, whose mixers
    leave 2 tiles, A would have to hold 14.
    """
    model, machine = packing()
    best = placed(model, machine, context=16)
    assert forms_of(best) == [("owned", ("A", "B"), (0, 4))]
    assert counts_of(best) == [(9, 7)]
    assert sorted(forms_that_fit()) == [("owned", "A", 9)]
    totals = {name: row.total for name, row in ledgers_of(model, machine, best, context=16).items()}
    assert totals["A"] == pytest.approx(gib(13.4), abs=MIB)
    assert totals["B"] == pytest.approx(gib(7.0), abs=MIB)


def forms_that_fit() -> list[tuple[str, str, int]]:
    """(mixer, lead, tiles of A) in sums of GiB by hand."""
    have, found = {"A": 13.5, "B": 7.2}, []
    for mixer in ("replicated", "owned"):
        for lead in "AB":
            for tiles in range(1, 16):
                need = {"A": float(tiles), "B": 16.0 - tiles}
                for name in "AB":
                    need[name] += 4.4 if mixer == "replicated" or name == lead else 0.0
                if all(need[name] <= have[name] for name in "AB"):
                    found.append((mixer, lead, tiles))
    return found


@pytest.mark.parametrize(
    "flags",
    [{"tp": "off"}, {"devices": ("B", "A")}, {"max_devices": 1}],
    ids=["pipelines only", "led by B", "one device"],
)
def test_whatever_takes_that_one_form_away_is_named_as_what_binds(flags: dict[str, object]) -> None:
    model, machine = packing()
    error = refused(model, machine, context=16, **flags)
    binding = [words.split()[0] for words in error.report["binding"]]
    assert binding == [f"--{flag.replace('_', '-')}" for flag in flags]
    kind = "sum" if "max_devices" in flags else "packing"  # 13.5 GiB of the one, all of both
    assert error.report["fails"]["kind"] == kind


def test_another_number_of_tiles_fits_where_sixteenths_leave_a_gap() -> None:
    """C15 (b) at 2048 tokens, where no cut of a pipeline fits with the head last.

    A has 11.78 GiB for tiles, B 8.2. A sixteenth of 19.84 is 1.24: 9 + 6 of 16. A 22nd is 0.90:
    13 + 9 of 22.
    """
    machine = unequal()
    asked = {"context": 2048, "head": "last", "devices": ("A", "B")}
    coarse, fine = (cut_model(40, gib(0.124), gib(0.496), SMALL, kv=20480, embed=gib(1.45),
                              head=gib(1.45), inner=11264, tiles=tiles)
                    for tiles in (16, 22))  # fmt: skip
    assert not has_room(coarse, machine, **asked)
    assert counts_of(placed(fine, machine, **asked)) == [(13, 9)]


def unequal() -> Topology:
    overhead = {"overhead_bytes": gib(0.8)}
    return build_topology([build_device("A", 22.0, **overhead), build_device("B", 9.0, **overhead)])


def test_the_longest_context_counts_groups_too() -> None:
    """C19: a refusal with TP free offers what only a group holds."""
    layer = cut_layer(gib(1.1), 4 * GIB, kv=65536)
    model = build_model([layer] * 4, hidden_size=SMALL)
    machine = packing()[1]
    error = refused(model, machine, context=4096)
    longest = error.report["largest"]["context"]
    assert has_room(model, machine, context=longest)
    assert not has_room(model, machine, context=longest + 1)
    assert not has_room(model, machine, context=1, tp="off")
    assert longest == pytest.approx(gib(0.1) / (4 * 65536), rel=0.01)


def test_a_group_size_that_alone_makes_it_impossible_is_named() -> None:
    """C19: replicas and owners of pairs fit; three ranks leave a tile on C, which is full."""
    devices = [build_device("A", 4.0), build_device("B", 4.0), build_device("C", 0.05)]
    error = refused(cut_model(4, gib(0.5), GIB, SMALL), build_topology(devices), context=16, tp=3)
    assert "--tp 3" in error.report["binding"]
    assert "without --tp 3 it fits" in str(error)


def test_layers_of_bytes_alone_stay_whole_and_leave_the_rest_free_to_be_cut() -> None:
    """C11: what is not known to be cuttable is not cut, and is no reason to refuse."""
    whole, cut = build_layer(gib(0.2)), cut_layer(gib(0.1), gib(1.6))
    model = build_model([whole, *[cut] * 4], hidden_size=SMALL)
    machine = build_topology([build_device(name, 6.0) for name in "ABC"], latency_us=2.0)
    plan = sound_plan(model, machine, context=16)
    grouped = [stage.layers for stage in plan.stages if len(stage.ranks) > 1]
    assert grouped == [(1, 5)]
