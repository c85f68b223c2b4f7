"""Nanoseconds between devices: the measured curve of the ordered pair, at the bytes of the rows."""

from plancc.compiler.cost.compute import launch_ns
from plancc.ir.topology import Topology

STEP_BYTES = 64
"""A sampled token on its way from the head to the embedding, with what the step is."""


def hop_ns(topology: Topology, source: str, target: str, size_bytes: int) -> int:
    """One transfer; between two seats of one device a copy: bytes read and written, a launch."""
    link = topology.link(source, target)
    if link is not None:
        return link.curve().ns(size_bytes)
    device = topology.device(source)
    assert device is not None
    assert source == target, f"no link {source}->{target}: the topology would have been refused"
    return device.read_curve().ns(2 * size_bytes) + launch_ns(device)


def return_ns(
    topology: Topology, last: str, first: str, hidden_bytes: int, *, head_first: bool
) -> int:
    """What the last stage sends back to the first: hidden rows to a head there, else a token."""
    return hop_ns(topology, last, first, hidden_bytes if head_first else STEP_BYTES)
