"""When launches are made as they come, frozen and repeated; here a graph is the same launches."""

from collections.abc import Callable

import pytest

from plancc.executor.backend.cuda_graphs import SegmentGraphs


class Counted(SegmentGraphs):
    """Launches are words that tell which they are, and how many were asked for before."""

    def __init__(self, *, is_used: bool = True, most_layers: int = 99) -> None:
        super().__init__(is_used=is_used, is_cuda=False, most_layers=most_layers)
        self.made: list[str] = []
        self.number = 0

    def ask(self, keys: str, **sizes: int) -> list[str]:
        """What is launched of those keys."""
        before = len(self.made)
        for key in keys:
            self.run(key, self._word(f"{key}{self.number}"), num_layers=sizes.get(key, 1))
            self.number += 1
        return self.made[before:]

    def _word(self, word: str) -> Callable[[], None]:
        return lambda: self.made.append(word)


def test_launches_are_frozen_the_second_time_and_repeated_from_then_on() -> None:
    assert Counted().ask("aabaab") == ["a0", "a1", "b2", "a1", "a1", "b5"]


def test_without_graphs_every_launch_is_made_as_it_comes() -> None:
    assert Counted(is_used=False).ask("aaa") == ["a0", "a1", "a2"]


def test_what_is_part_of_a_larger_graph_is_launched_and_not_kept() -> None:
    graphs = Counted()
    graphs.is_paused = True
    assert graphs.ask("aaa") == ["a0", "a1", "a2"]
    graphs.is_paused = False
    assert graphs.ask("aaa") == ["a3", "a4", "a4"]


def test_what_was_not_used_for_longest_makes_room_and_is_made_anew() -> None:
    graphs, sizes = Counted(most_layers=5), {"a": 3, "b": 2, "c": 1}
    assert graphs.ask("aabbab", **sizes) == ["a0", "a1", "b2", "b3", "a1", "b3"]
    assert graphs.ask("cc", **sizes) == ["c6", "c7"], "six layers: the first one goes"
    assert graphs.ask("baa", **sizes) == ["b3", "a9", "a10"]


def test_one_that_is_too_large_by_itself_is_kept() -> None:
    assert Counted(most_layers=1).ask("aaa", a=9) == ["a0", "a1", "a1"]


def test_launches_that_fail_leave_nothing_behind() -> None:
    graphs = Counted()

    def fails() -> None:
        raise ValueError("no such kernel")

    assert graphs.ask("a") == ["a0"]
    with pytest.raises(ValueError, match="no such kernel"):
        graphs.run("a", fails, num_layers=1)
    assert graphs.ask("aaa") == ["a1", "a2", "a2"]
