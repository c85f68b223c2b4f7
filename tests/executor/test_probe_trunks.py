"""Trunks are found from times alone, on machines whose wires are known here."""

from collections.abc import Mapping, Sequence
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from plancc.executor.probe_trunks import Pair, find_trunks, rounds


class Wires:
    """A machine: a link runs over a wire for each of its letters, and a wire's busy links divide
    its rate evenly."""

    def __init__(self, count: int, over: Mapping[Pair, str], us: float = 100.0) -> None:
        self.names = [f"gpu{i}" for i in range(count)]
        self.over, self.us, self.asked = over, us, 0

    def together_us(self, pairs: Sequence[Pair]) -> float:
        self.asked += 1
        wires = [wire for pair in pairs for wire in self._wires(pair)]
        return self.us * max(wires.count(wire) for wire in wires)

    def _wires(self, pair: Pair) -> list[str]:
        return [f"out of {pair[0]}", f"into {pair[1]}", *self.over.get(pair, ())]

    def trunks(self) -> Mapping[Pair, str]:
        alone = {pair: self.together_us([pair]) for pair in permutations(self.names, 2)}
        return find_trunks(self.names, alone, self.together_us, "h0-trunk").trunks


def test_nothing_is_shared_where_every_device_has_wires_of_its_own() -> None:
    machine = Wires(8, {})
    assert machine.trunks() == {}
    assert machine.asked == 56 + 7 + 8  # each alone, then rounds: no two were tried


def test_links_over_one_wire_have_one_trunk_and_others_none() -> None:
    up = [("gpu0", "gpu2"), ("gpu0", "gpu3"), ("gpu1", "gpu2"), ("gpu1", "gpu3")]
    down = [(b, a) for a, b in up]
    machine = Wires(4, dict.fromkeys(up, "u") | dict.fromkeys(down, "d"))
    assert machine.trunks() == dict.fromkeys(up, "h0-trunk0") | dict.fromkeys(down, "h0-trunk1")


def test_a_wire_in_either_direction_is_found_among_many_devices() -> None:
    both = [("gpu2", "gpu7"), ("gpu7", "gpu2")]
    assert Wires(8, dict.fromkeys(both, "b")).trunks() == dict.fromkeys(both, "h0-trunk0")


def test_two_wires_are_two_trunks_though_devices_use_both() -> None:
    left = [("gpu0", "gpu1"), ("gpu1", "gpu0")]
    right = [("gpu2", "gpu3"), ("gpu3", "gpu2")]
    found = Wires(4, dict.fromkeys(left, "l") | dict.fromkeys(right, "r")).trunks()
    assert found == dict.fromkeys(left, "h0-trunk0") | dict.fromkeys(right, "h0-trunk1")


def test_both_directions_share_where_the_wire_has_but_one() -> None:
    both = [("gpu0", "gpu1"), ("gpu1", "gpu0")]
    assert Wires(2, dict.fromkeys(both, "b")).trunks() == dict.fromkeys(both, "h0-trunk0")


def test_a_slowdown_that_no_two_links_explain_is_told_and_named_no_trunk() -> None:
    def together_us(pairs: Sequence[Pair]) -> float:
        return 100.0 if len(pairs) < 3 else 150.0

    names = ["a", "b", "c"]
    alone = dict.fromkeys(permutations(names, 2), 100.0)
    sharing = find_trunks(names, alone, together_us, "t")
    assert sharing.trunks == {}
    assert set(sharing.unexplained) == set(alone)


@given(st.integers(2, 9))
def test_rounds_have_every_pair_and_no_device_sends_or_receives_twice(count: int) -> None:
    names = [f"gpu{i}" for i in range(count)]
    found = rounds(names)
    assert {pair for pairs in found for pair in pairs} == set(permutations(names, 2))
    for a, b in permutations(names, 2):
        assert any({(a, b), (b, a)} <= set(pairs) for pairs in found)
    for pairs in found:
        assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)
