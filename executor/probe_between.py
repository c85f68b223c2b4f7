"""Links and exchanges between the devices of a host: inside a process and between processes."""

from collections.abc import Callable, Sequence
from itertools import combinations, permutations
from typing import Any

from plancc.executor.probe_kinds import MIB, WorkerDevices
from plancc.executor.probe_losses import Rounds, exchange_of
from plancc.executor.probe_numbers import median_us, rising, rounded_points
from plancc.executor.probe_pool import WorkerPool
from plancc.executor.probe_trunks import Pair, Sharing, find_trunks
from plancc.ir.errors import RunFailed
from plancc.ir.exchange import Exchange
from plancc.ir.topology import Link

HOP_SIZES = (64, 1024, 8 * 1024, 64 * 1024, 512 * 1024, 4 * MIB)  # decode rows to prompt chunks
INSIDE_SIZES = (*HOP_SIZES, 64 * MIB)
_AT_ONCE_SIZE = 8 * MIB
_LIMIT_S = 60.0
_ROUNDS = 4  # of an exchange for each hop: few of them are very late, and count
STAGED_NOTE = "staged as asked, p2p was not tried"
"""Of links that were measured as if cards could not reach each other; a refresh goes by it."""

OnStep = Callable[[str], None]


class Between:
    """Asks the processes of a pool; `warnings` has what a person should know of the links."""

    def __init__(
        self, pool: WorkerPool, workers: Sequence[WorkerDevices], *, hop_times: int, host: str,
        is_staged: bool = False,
    ) -> None:  # fmt: skip
        """is_staged: as if no card could reach another."""
        self._pool, self._workers, self._host = pool, tuple(workers), host
        self._is_staged = is_staged
        self._times, self._seconds = hop_times, hop_times / 1000
        self._home = {name: worker for worker in workers for name in worker.names()}
        self.warnings: list[str] = []

    def join(self, address: str) -> None:
        """Let the processes meet, if there are several."""
        names = [worker.name for worker in self._workers]
        if len(names) < 2:
            return
        port = self._pool.ask(names[0], {"do": "listen", "address": address}, limit_s=_LIMIT_S)
        requests = {
            name: {"do": "join", "rank": rank, "size": len(names), "address": address, "port": port}
            for rank, name in enumerate(names)
        }  # fmt: skip
        self._pool.ask_all(requests, limit_s=_LIMIT_S)

    def links(self, on_step: OnStep) -> tuple[Link, ...]:
        """One for each ordered pair, in the file's order."""
        found: dict[Pair, dict[str, Any]] = {}
        for pair in permutations(self._home, 2):
            on_step(f"{pair[0]} -> {pair[1]}")
            inside = self._home[pair[0]] is self._home[pair[1]]
            found[pair] = self._inside(*pair) if inside else self._network(*pair)
        if self._is_staged:
            self.warnings.append("links between cards were measured through memory of the host, "
                                 "as asked: plans from this file use no p2p")  # fmt: skip
        for worker in self._workers:
            if len(worker.devices) > 1:
                on_step("all links at once")
                for pair, trunk in self._trunks(worker, found).items():
                    found[pair]["trunk"] = trunk
        return tuple(
            Link.model_validate({"from": source, "to": target, **fields})
            for (source, target), fields in found.items()
        )

    def exchanges(self, links: Sequence[Link], on_step: OnStep) -> tuple[Exchange, ...]:
        """Of the devices of each kind: all together, and the pairs of one process."""
        found = []
        for worker in self._workers:
            names = worker.names()
            groups = [*combinations(names, 2), *([names] if len(names) > 2 else [])]
            for group in groups:
                on_step(f"exchange {','.join(group)}")
                found.append(self._exchange_inside(worker, group, links))
        for workers in self._apart():
            on_step(f"exchange {','.join(worker.name for worker in workers)}")
            found.append(self._exchange(workers))
        return tuple(found)

    def _apart(self) -> list[list[WorkerDevices]]:
        """Processes of one device each by kind, where there are several: kinds share no group."""
        alone = [worker for worker in self._workers if len(worker.devices) == 1]
        kinds = dict.fromkeys(worker.kind for worker in alone)
        groups = [[worker for worker in alone if worker.kind == kind] for kind in kinds]
        return [group for group in groups if len(group) > 1]

    def num_steps(self) -> int:
        """How often `on_step` is called by links and exchanges."""
        count = len(self._home)
        several = [len(w.devices) for w in self._workers if len(w.devices) > 1]
        groups = sum(n * (n - 1) // 2 + (n > 2) for n in several)
        return count * (count - 1) + len(several) + groups + len(self._apart())

    def _inside(self, source: str, target: str) -> dict[str, Any]:
        ends = {"source": source, "target": target}
        mode, note = self._staged(**ends) if self._is_staged else self._mode(**ends)
        times = self._ask(source, "hop inside", **ends, is_staged=mode == "staged",
                          sizes=INSIDE_SIZES, seconds=self._seconds)  # fmt: skip
        points = list(zip(INSIDE_SIZES, times, strict=True))
        fields = {} if note is None else {"note": note}
        return {"mode": mode, "points": rounded_points(rising(points)), **fields}

    def _mode(self, source: str, target: str) -> tuple[str, str | None]:
        """The mode that a run will use, and a note."""
        mode, problem = self._ask(source, "mode", source=source, target=target)
        if problem is None:
            return mode, None
        self.warnings.append(f"{source} -> {target}: peer access is reported, but {problem}; "
                             f"this link goes through memory of the host")  # fmt: skip
        return mode, f"no p2p: {problem}"

    def _staged(self, source: str, target: str) -> tuple[str, str | None]:
        """Raises RunFailed where not even these bytes arrive: nothing else could carry them."""
        problem = self._ask(source, "staged", source=source, target=target)
        if problem is not None:
            raise RunFailed(f"probe: {source} -> {target}: through memory of the host, {problem}: "
                            f"no run can use this pair; --cards leaves one out")  # fmt: skip
        return "staged", STAGED_NOTE

    def _network(self, source: str, target: str) -> dict[str, Any]:
        homes = [worker.name for worker in self._workers]
        ends = {name: self._home[name].name for name in (source, target)}
        request = {"do": "hop", "source": homes.index(ends[source]),
                   "target": homes.index(ends[target]), "sizes": HOP_SIZES,
                   "times": self._times}  # fmt: skip
        clocks = self._pool.ask_all(
            {home: {**request, "device": name} for name, home in ends.items()}, limit_s=_LIMIT_S
        )
        points = [
            (size, median_us(sent, received))
            for size, sent, received in zip(
                HOP_SIZES, clocks[ends[source]], clocks[ends[target]], strict=True
            )
        ]
        return {"mode": "network", "points": rounded_points(rising(points))}

    def _trunks(self, worker: WorkerDevices, found: dict[Pair, dict[str, Any]]) -> dict[Pair, str]:
        """By link, what it shares with others; measured as a run would have them busy."""

        def together_us(pairs: Sequence[Pair]) -> float:
            hops = [(*pair, found[pair]["mode"] == "staged") for pair in pairs]
            us: float = self._ask(worker.devices[0].name, "at once", hops=hops,
                                  size=_AT_ONCE_SIZE, seconds=0.0)  # fmt: skip
            return us

        names = worker.names()
        alone = {pair: together_us([pair]) for pair in permutations(names, 2)}
        sharing: Sharing = find_trunks(names, alone, together_us, f"{self._host}-trunk")
        if sharing.unexplained:
            rows = ", ".join(f"{source} -> {target}" for source, target in sharing.unexplained)
            self.warnings.append(f"{rows}: slower all at once than alone, though no two of them "
                                 f"are: the file says nothing of that")  # fmt: skip
        return dict(sharing.trunks)

    def _exchange_inside(
        self, worker: WorkerDevices, group: tuple[str, ...], links: Sequence[Link]
    ) -> Exchange:
        staged = [(link.from_, link.to) for link in links if link.mode == "staged"]
        times = self._ask(group[0], "exchange inside", group=group, staged=staged,
                          sizes=HOP_SIZES, seconds=self._seconds)  # fmt: skip
        points = list(zip(HOP_SIZES, times, strict=True))
        return Exchange(group=group, points=rounded_points(rising(points)))

    def _exchange(self, workers: Sequence[WorkerDevices]) -> Exchange:
        """Of ranks that compute as in a run, the first of them as an owner too."""
        peers = [self._workers.index(worker) for worker in workers]
        request = {"do": "exchange", "sizes": HOP_SIZES, "peers": peers,
                   "times": _ROUNDS * self._times}  # fmt: skip
        answers = self._pool.ask_all({worker.name: request for worker in workers}, limit_s=_LIMIT_S)
        names = [name for worker in workers for name in worker.names()]
        ranks = [Rounds.of(answers[worker.name]) for worker in workers]
        return exchange_of(names, HOP_SIZES, ranks)

    def _ask(self, device: str, what: str, **fields: Any) -> Any:
        home = self._home[device].name
        return self._pool.ask(home, {"do": what, **fields}, limit_s=_LIMIT_S)
