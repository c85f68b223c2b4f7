"""One process of the probe: it stands for one device, or for all of a kind, and measures them.

Started by probe_pool with the number of an inherited pipe; requests and answers are JSON. It ends
when the pipe is closed from the other side.
"""

import faulthandler
import json
import sys
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from plancc.ir.errors import PlanccError

if TYPE_CHECKING:
    from plancc.executor.probe_links import LinkProbe
    from plancc.executor.probe_local import LocalProbe
    from plancc.executor.probe_rank import RankProbe
    from plancc.ir.dtype import DType


class ProbeWorker:
    """Answers requests; `start` comes first, `join` before anything between processes."""

    def __init__(self) -> None:
        self._kind = ""
        self._devices: dict[str, RankProbe] = {}
        self._local: LocalProbe | None = None
        self._store: Any = None
        self._links: LinkProbe | None = None

    def answer(self, request: dict[str, Any]) -> Any:
        """Plain data. Raises PlanccError or OSError, which the other side reports."""
        match request:
            case {"do": "start", **fields}:
                return self._start(**fields)
            case {"do": "listen", "address": address}:
                return self._listen(address)
            case {"do": "join", "rank": rank, "size": size, "address": address, "port": port}:
                return self._join(rank, size, address, port)
            case {"do": "launch", "device": name}:
                return self._devices[name].launch_us()
            case {"do": "read", "device": name, "launch_us": launch_us}:
                return self._devices[name].read_points(launch_us)
            case {"do": "attention", "device": name}:
                return self._devices[name].attention_tflops()
            case {"do": "matmul", "device": name, **fields}:
                return self._devices[name].matmul_points(**fields)
            case {"do": "hop", "device": name, **fields}:
                return self._joined().hop_clocks(where=self._devices[name].device, **fields)
            case {"do": "exchange", "peers": peers, **fields}:
                return self._joined().exchange(peers).rounds(**fields).data()
            case {"do": "mode" | "staged" | "hop inside" | "at once" | "exchange inside" as what,
                  **fields}:  # fmt: skip
                return self._inside().answer(what, **fields)
        raise AssertionError(f"unknown request {request}")

    def _start(self, kind: str, dtype: "DType", devices: list[dict[str, Any]]) -> dict[str, int]:
        """The overhead of each device, in bytes."""
        from plancc.executor.probe_kinds import Scale
        from plancc.executor.probe_rank import RankProbe  # torch takes a second

        self._kind = kind
        for one in devices:
            self._devices[one["name"]] = RankProbe(kind, one["uuid"], one["threads"], dtype,
                                                   Scale(**one["scale"]))  # fmt: skip
        return {name: device.warm_up() for name, device in self._devices.items()}

    def _listen(self, address: str) -> int:
        """The port at which the others meet this process."""
        from plancc.executor.comm import open_store

        self._store = open_store(address)
        port: int = self._store.port
        return port

    def _join(self, rank: int, size: int, address: str, port: int) -> bool:
        from plancc.executor.comm import Group, open_store
        from plancc.executor.probe_links import LinkProbe

        store = self._store or open_store(address, port)
        self._links = LinkProbe(Group(store, rank, size, address), rank)
        return True

    def _inside(self) -> "LocalProbe":
        from plancc.executor.backends import backend_of, probe_of
        from plancc.executor.probe_local import LocalProbe

        if self._local is None:
            ranks = {name: device.rank for name, device in self._devices.items()}
            can_reach = probe_of(self._kind).can_reach
            self._local = LocalProbe(backend_of(self._kind), ranks, can_reach)
        return self._local

    def _joined(self) -> "LinkProbe":
        assert self._links is not None
        return self._links


def serve(connection: Connection) -> None:
    """Answer until the other side closes the pipe."""
    worker = ProbeWorker()
    while True:
        try:
            request = json.loads(connection.recv_bytes())
        except EOFError:
            return
        try:
            answer = {"result": worker.answer(request)}
        except (PlanccError, RuntimeError, OSError, MemoryError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        connection.send_bytes(json.dumps(answer).encode())


if __name__ == "__main__":
    faulthandler.enable()  # a crash in compiled code names its line in the log
    serve(Connection(int(sys.argv[1])))
