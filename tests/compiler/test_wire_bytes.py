"""What wires between processes take of a device, in ledgers and in what fits."""

import pytest
from plancc_builders import KIB
from plancc_examples import three_devices, tiny_ask, tiny_manifest

from plancc.compiler.api import compile
from plancc.compiler.check import check_plan
from plancc.ir.errors import DoesNotFit
from plancc.ir.topology import Topology

WIRES = 12 * KIB


def with_wires(size: int, mode: str = "p2p") -> Topology:
    topology = three_devices(mode=mode)
    devices = tuple(device.model_copy(update={"wire_bytes": size}) for device in topology.devices)
    return topology.model_copy(update={"devices": devices})


@pytest.mark.parametrize(("workers", "mode", "taken"), [
    ("device", "p2p", WIRES), ("device", "staged", WIRES),
    ("device", "network", 0), ("host", "p2p", 0),
])  # fmt: skip
def test_wires_are_counted_where_each_device_has_a_process_that_reaches_others(
    workers: str, mode: str, taken: int
) -> None:
    topology = with_wires(WIRES, mode)
    plan = compile(tiny_manifest(), topology, tiny_ask(workers=workers))
    assert check_plan(plan, tiny_manifest(), topology) == ()
    assert len(plan.devices) > 1
    assert {device.ledger.overhead for device in plan.devices} == {10 * KIB + taken}


def test_what_has_no_room_for_wires_does_not_fit() -> None:
    assert compile(tiny_manifest(), with_wires(2600 * KIB), tiny_ask()).devices
    with pytest.raises(DoesNotFit, match=r"overhead 2\.5 MiB"):
        compile(tiny_manifest(), with_wires(2600 * KIB), tiny_ask(workers="device"))


def test_a_file_that_says_nothing_of_wires_has_the_digest_that_it_had() -> None:
    data = three_devices().model_dump(mode="json", by_alias=True)
    assert all("wire_bytes" not in device for device in data["devices"])
    assert with_wires(WIRES).digest() != three_devices(mode="p2p").digest()
