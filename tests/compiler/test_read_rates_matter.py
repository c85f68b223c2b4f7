"""One measured number of one device changes, and the placement with it."""

from plancc_builders import MIB, build_device, build_topology, gib
from plancc_one_number import both, with_device
from plancc_tp_cases import counts_of, cut_bytes, cut_model, forms_of

SHORT = {"context": 16}


def test_the_card_that_reads_faster_takes_the_layers_that_it_can_hold() -> None:
    """A from 936 to 200 GB/s: 44 of 60 layers were on A, in 22.5 GiB, and go to B."""
    devices = [build_device(name, 22.5, gb_s=gb_s) for name, gb_s in (("A", 936.0), ("B", 346.0))]
    machine = build_topology(devices)
    before, after = both(cut_bytes(60, 0.5, 0.8, 4096), machine,
                         with_device(machine, "A", read_gb_s=200.0), tp="off", **SHORT)  # fmt: skip
    held = [{devices[0]: end - first for _, devices, (first, end) in forms_of(placement)}
            for placement in (before, after)]  # fmt: skip
    assert held == [{"A": 44, "B": 16}, {"A": 16, "B": 44}]


def test_a_rank_that_reads_slower_gets_fewer_tiles_and_not_the_mixers() -> None:
    """A from 936 to 600 GB/s: halves become 10 + 6, and B, which reads faster, keeps the mixers."""
    machine = build_topology([build_device(name, 18.0, gb_s=936.0) for name in "AB"],
                             latency_us=3.0)  # fmt: skip
    before, after = both(cut_model(40, gib(0.05), gib(0.45), 4096), machine,
                         with_device(machine, "A", read_gb_s=600.0), **SHORT)  # fmt: skip
    assert (forms_of(before)[0][:2], counts_of(before)) == (("replicated", ("A", "B")), [(8, 8)])
    assert (forms_of(after)[0][:2], counts_of(after)) == (("owned", ("B", "A")), [(10, 6)])


def test_a_third_card_that_reads_slowly_leaves_the_group() -> None:
    """C from 900 to 60 GB/s: the mixers alone take it 0.9 ms a layer, all of a layer A 0.6."""
    machine = build_topology([build_device(name, 18.0, gb_s=900.0) for name in "ABC"],
                             latency_us=3.0)  # fmt: skip
    before, after = both(cut_model(40, gib(0.05), gib(0.45), 4096), machine,
                         with_device(machine, "C", read_gb_s=60.0), **SHORT)  # fmt: skip
    assert forms_of(before) == [("replicated", ("A", "B", "C"), (0, 40))]
    assert forms_of(after) == [("replicated", ("A", "B"), (0, 40))]


def test_one_point_of_how_fast_half_a_matrix_is_read_moves_tiles() -> None:
    """A at 160 MiB from 180 to 300 us: a half of gate and up is 154 MiB, and short matrices are
    slow on A, so it takes fewer tiles; whole matrices it reads as before.
    """
    points = ((32.0 * MIB, 40.0), (160.0 * MIB, 180.0), (320.0 * MIB, 360.0))
    machine = build_topology([build_device(name, 22.0, read_points=points) for name in "AB"])
    slow = (points[0], (160.0 * MIB, 300.0), points[2])
    before, after = both(cut_model(40, gib(0.05), gib(0.45), 4096), machine,
                         with_device(machine, "A", read_points=slow), **SHORT)  # fmt: skip
    assert (forms_of(before)[0][1], counts_of(before)) == (("A", "B"), [(8, 8)])
    assert (forms_of(after)[0][1], counts_of(after)) == (("B", "A"), [(10, 6)])


def test_a_card_with_more_room_for_tiles_gets_them() -> None:
    """B from 7.2 to 9 GiB free: 9 + 7 tiles were all that fit, and become halves."""
    devices = [build_device("A", 13.5, total_bytes=gib(24)),
               build_device("B", 7.2, total_bytes=gib(24))]  # fmt: skip
    machine = build_topology(devices)
    before, after = both(cut_model(4, gib(1.1), gib(4), 8), machine,
                         with_device(machine, "B", free_bytes=gib(9)), **SHORT)  # fmt: skip
    assert (counts_of(before), counts_of(after)) == ([(9, 7)], [(8, 8)])
