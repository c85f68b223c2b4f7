"""What becomes of the answers of the probe's processes: modes, notes, trunks, exchanges."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from plancc.executor.probe_between import HOP_SIZES, INSIDE_SIZES, STAGED_NOTE, Between
from plancc.executor.probe_kinds import DeclaredDevice, WorkerDevices
from plancc.executor.probe_pool import WorkerPool
from plancc.ir.errors import RunFailed
from plancc.ir.topology import Link


class FakePool:
    """Answers as processes would; peer access from gpu1 to gpu0 is reported and not true."""

    def __init__(self, *, shared: float = 1.0, lost: str | None = None) -> None:
        self.asked: list[dict[str, Any]] = []
        self.shared, self.lost = shared, lost

    def ask(self, name: str, request: Mapping[str, Any], *, limit_s: float) -> Any:
        return self.ask_all({name: request}, limit_s=limit_s)[name]

    def ask_all(self, requests: Mapping[str, Any], *, limit_s: float) -> dict[str, Any]:
        self.asked += requests.values()
        return {name: self._answer(request, at) for at, (name, request) in
                enumerate(requests.items())}  # fmt: skip

    def _answer(self, request: Mapping[str, Any], at: int) -> Any:
        match request["do"]:
            case "mode":
                if (request["source"], request["target"]) == ("gpu1", "gpu0"):
                    return ["staged", "of 1.0 MiB sent, 8 byte(s) did not arrive"]
                return ["p2p", None]
            case "staged":
                return self.lost
            case "hop inside":
                return [(9.0 if request["is_staged"] else 4.0) + size / 1e4
                        for size in request["sizes"]]  # fmt: skip
            case "at once":
                return 100.0 * (self.shared if len(request["hops"]) > 1 else 1.0)
            case "exchange inside":
                return [6.0] * len(request["sizes"])
            case "hop":
                return [[1000 + 50_000 * at]] * len(request["sizes"])
            case "exchange":
                count = len(request["sizes"])
                return {
                    "alone_us": 1000.0,
                    "long_alone_us": 9000.0,
                    "long_us": 12000.0,
                    "together_us": [2000.0] * count,
                    "owned_us": [1500.0] * count,
                }
        return 1


def device(name: str, kind: str) -> DeclaredDevice:
    return DeclaredDevice(name, kind, f"GPU-{name}", 2**30, 2**30, None)


def between(pool: FakePool, *workers: tuple[str, ...], is_staged: bool = False) -> Between:
    found = [
        WorkerDevices(",".join(names), names[0][:3], tuple(device(n, names[0][:3]) for n in names))
        for names in workers
    ]
    return Between(cast("WorkerPool", pool), found, hop_times=1, host="h0", is_staged=is_staged)


def silent(step: str) -> None:
    pass


def test_a_pair_that_fails_its_payload_check_is_staged_with_the_reason_and_a_warning() -> None:
    asked = between(FakePool(), ("gpu0", "gpu1"))
    there, back = asked.links(silent)
    assert (there.mode, there.note, there.trunk) == ("p2p", None, None)
    assert (back.mode, back.note) == ("staged", "no p2p: of 1.0 MiB sent, 8 byte(s) did not arrive")
    assert there.points is not None
    assert [size for size, _ in there.points] == list(INSIDE_SIZES)
    assert back.points is not None
    assert back.points[0][1] == pytest.approx(9.006)
    assert asked.warnings == [
        "gpu1 -> gpu0: peer access is reported, but of 1.0 MiB sent, 8 byte(s) did not arrive; "
        "this link goes through memory of the host"
    ]


def test_links_that_slow_each_other_name_one_trunk_of_their_host() -> None:
    links = between(FakePool(shared=1.9), ("gpu0", "gpu1")).links(silent)
    assert [link.trunk for link in links] == ["h0-trunk0", "h0-trunk0"]
    links = between(FakePool(shared=1.2), ("gpu0", "gpu1")).links(silent)
    assert [link.trunk for link in links] == [None, None]


def test_links_at_once_are_measured_in_the_modes_they_have() -> None:
    pool = FakePool()
    between(pool, ("gpu0", "gpu1")).links(silent)
    hops = [request["hops"] for request in pool.asked if request["do"] == "at once"]
    assert [("gpu0", "gpu1", False), ("gpu1", "gpu0", True)] in hops


def test_links_are_staged_where_it_is_asked_though_p2p_would_work_and_the_file_says_so() -> None:
    pool = FakePool()
    asked = between(pool, ("gpu0", "gpu1", "gpu2"), is_staged=True)
    links = asked.links(silent)
    assert {(link.mode, link.note) for link in links} == {("staged", STAGED_NOTE)}
    assert all(link.points and link.points[0][1] == pytest.approx(9.006) for link in links)
    asked.exchanges(links, silent)
    assert len(pool.asked[-1]["staged"]) == 6
    assert {request["do"] for request in pool.asked} == {"staged", "hop inside", "at once",
                                                         "exchange inside"}  # fmt: skip
    (warning,) = asked.warnings
    assert warning.endswith("as asked: plans from this file use no p2p")


def test_a_staged_link_that_loses_bytes_ends_the_probe() -> None:
    asked = between(FakePool(lost="of 1.0 KiB sent, 8 byte(s)"), ("gpu0", "gpu1"), is_staged=True)
    with pytest.raises(RunFailed, match="gpu0 -> gpu1: through memory of the host, of 1"):
        asked.links(silent)


def test_cards_exchange_in_pairs_and_all_together() -> None:
    pool = FakePool()
    asked = between(pool, ("gpu0", "gpu1", "gpu2"))
    links = asked.links(silent)
    groups = [row.group for row in asked.exchanges(links, silent)]
    assert groups == [("gpu0", "gpu1"), ("gpu0", "gpu2"), ("gpu1", "gpu2"),
                      ("gpu0", "gpu1", "gpu2")]  # fmt: skip
    request = pool.asked[-1]
    assert (request["staged"], request["sizes"]) == ([("gpu1", "gpu0")], HOP_SIZES)


def test_cpu_devices_tell_each_other_what_they_lose_together() -> None:
    pool = FakePool()
    (row,) = between(pool, ("cpu0",), ("cpu1",)).exchanges((), silent)
    assert (row.group, row.slowdown) == (("cpu0", "cpu1"), pytest.approx(1.25))
    assert row.points == tuple((size, 750) for size in HOP_SIZES)
    assert pool.asked[-1]["peers"] == [0, 1]


def test_one_card_is_not_of_the_group_of_cpu_devices() -> None:
    """No plan has both in one group, and the CPU devices' own row would be missing."""
    pool, steps = FakePool(), list[str]()
    asked = between(pool, ("gpu0",), ("cpu0",), ("cpu1",))
    (row,) = asked.exchanges((), steps.append)
    assert row.group == ("cpu0", "cpu1")
    assert pool.asked[-1]["peers"] == [1, 2]
    assert asked.num_steps() == 6 + len(steps)
    pair = between(pool, ("gpu0",), ("cpu0",))
    assert (pair.exchanges((), silent), pair.num_steps()) == ((), 2)


def test_a_card_and_a_cpu_device_are_joined_by_a_network_link() -> None:
    pool = FakePool()
    asked = between(pool, ("gpu0", "gpu1"), ("cpu0",))
    asked.join("127.0.0.1")
    links = {(link.from_, link.to): link for link in asked.links(silent)}
    assert links["gpu0", "gpu1"].mode == "p2p"
    across = links["gpu0", "cpu0"]
    assert (across.mode, across.points) == ("network", tuple((size, 50.0) for size in HOP_SIZES))
    hops = [request for request in pool.asked if request["do"] == "hop"]
    assert (hops[0]["source"], hops[0]["target"], hops[0]["device"]) == (0, 1, "gpu0")
    assert [row.group for row in asked.exchanges(tuple(links.values()), silent)] == [
        ("gpu0", "gpu1")
    ]


def test_one_card_has_no_links_and_asks_for_none() -> None:
    pool = FakePool()
    asked = between(pool, ("gpu0",))
    asked.join("127.0.0.1")
    assert (asked.links(silent), asked.exchanges((), silent), pool.asked) == ((), (), [])


@pytest.mark.parametrize(
    "workers", [(("gpu0",),), (("gpu0", "gpu1", "gpu2"), ("cpu0",), ("cpu1",)), (("a0",), ("b0",))]
)
def test_every_step_is_told(workers: tuple[tuple[str, ...], ...]) -> None:
    steps: list[str] = []
    asked = between(FakePool(), *workers)
    links: tuple[Link, ...] = asked.links(steps.append)
    asked.exchanges(links, steps.append)
    assert len(steps) == asked.num_steps()
