"""One process that stands for several devices: what it is asked and answers is plain data."""

import json
from math import isfinite
from typing import Any

import pytest

from plancc.executor.probe_kinds import MIB, DeclaredDevice, Scale, WorkerDevices, start_request
from plancc.executor.probe_worker import ProbeWorker

SCALE = Scale(read_sizes=(64 * 1024,), rotated_bytes=MIB, prompt_width=512, matmul_rows=(64,),
              attention_rows=64, attention_chunks=4, tiny_total=MIB // 8, seconds=0.0,
              batch_s=0.001)  # fmt: skip
NAMES = ("a", "b", "c")


class Asked:
    """A worker behind the JSON that a pipe carries."""

    def __init__(self) -> None:
        self.worker = ProbeWorker()

    def __call__(self, **request: Any) -> Any:
        sent = json.loads(json.dumps(request))
        return json.loads(json.dumps(self.worker.answer(sent)))


@pytest.fixture(scope="module")
def ask() -> Asked:
    devices = tuple(DeclaredDevice(name, "cpu", None, MIB, MIB, 1) for name in NAMES)
    asked = Asked()
    request = start_request(WorkerDevices("a,b,c", "cpu", devices), "float32",
                            dict.fromkeys(NAMES, SCALE))  # fmt: skip
    assert asked(**request) == dict.fromkeys(NAMES, 0)
    return asked


def test_each_device_of_the_process_is_measured_by_name(ask: Asked) -> None:
    for name in NAMES:
        launch = ask(do="launch", device=name)
        ((size, us),) = ask(do="read", device=name, launch_us=launch)
        attention = ask(do="attention", device=name)
        ((rows, tflops),) = ask(do="matmul", device=name, launch_us=launch,
                                attention_tflops=attention)  # fmt: skip
        assert (size, rows) == (64 * 1024, 64)
        assert all(isfinite(number) and number > 0 for number in (launch, us, attention, tflops))


def test_links_and_exchanges_inside_the_process_are_measured(ask: Asked) -> None:
    assert ask(do="mode", source="a", target="b") == ["p2p", None]
    assert ask(do="staged", source="a", target="b") is None
    hops = ask(do="hop inside", source="a", target="c", is_staged=True, sizes=[64, MIB],
               seconds=0.0)  # fmt: skip
    at_once = ask(do="at once", hops=[["a", "b", False], ["b", "c", True]], size=MIB, seconds=0.0)
    rounds = ask(do="exchange inside", group=NAMES, staged=[["a", "b"]], sizes=[64, 1024],
                 seconds=0.0)  # fmt: skip
    assert all(isfinite(us) and us > 0 for us in (*hops, at_once, *rounds))
    assert hops[0] < hops[1]
