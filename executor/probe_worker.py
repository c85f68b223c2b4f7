"""One process of the probe: it stands for one device and measures what it is asked to.

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
    from plancc.executor.probe_rank import RankProbe
    from plancc.ir.dtype import DType


class ProbeWorker:
    """Answers requests; `start` comes first, `join` before anything between processes."""

    def __init__(self) -> None:
        self._device: RankProbe | None = None
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
            case {"do": "read", "sizes": sizes, "launch_us": launch_us}:
                return self._opened().read_points(sizes, launch_us)
            case {"do": "launch"}:
                return self._opened().launch_us()
            case {"do": "matmul", "rows": rows, "launch_us": launch_us}:
                return self._opened().matmul_points(rows, launch_us)
            case {"do": "hop", "source": source, "target": target, "sizes": sizes, "times": times}:
                return [self._joined().hop_clocks(source, target, size, times) for size in sizes]
            case {"do": "exchange", "sizes": sizes, "times": times}:
                return [self._joined().exchange_us(size, times) for size in sizes]
        raise AssertionError(f"unknown request {request}")

    def _start(
        self, kind: str, threads: int, dtype: "DType", seconds: float, rotated_bytes: int
    ) -> bool:
        from plancc.executor.probe_rank import RankProbe  # torch takes a second

        self._device = RankProbe(kind, threads, dtype, seconds, rotated_bytes)
        self._device.warm_up()
        return True

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
        self._links = LinkProbe(Group(store, rank, size, address), rank, size)
        return True

    def _opened(self) -> "RankProbe":
        assert self._device is not None
        return self._device

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
