"""Nanoseconds between devices: measured curves of ordered pairs, at the bytes of the rows."""

from collections.abc import Sequence

from plancc.compiler.cost.compute import launch_ns
from plancc.ir.topology import Topology

STEP_BYTES = 64
"""A sampled token on its way from the head to the embedding, with what the step is."""

Transfer = tuple[str, str, int]
"""(from, to, bytes)"""


def hop_ns(topology: Topology, source: str, target: str, size_bytes: int) -> int:
    """One transfer; between two seats of one device a copy: bytes read and written, and two
    launches, its own and that of the next stage's first kernel, which waits for it."""
    link = topology.link(source, target)
    if link is not None:
        return link.curve().ns(size_bytes)
    device = topology.device(source)
    assert device is not None
    assert source == target, f"no link {source}->{target}: the topology would have been refused"
    return device.read_curve().ns(2 * size_bytes) + 2 * launch_ns(device)


def transfers_ns(topology: Topology, transfers: Sequence[Transfer]) -> int:
    """Transfers that begin together.

    A link's time is what one byte takes, and the rest. The rests of what one device sends, or of
    what one trunk carries, add up; the largest wait of a byte is waited once. The slowest device
    or trunk decides.
    """
    waits: dict[tuple[str, str], int] = {}
    rests: dict[tuple[str, str], int] = {}
    for source, target, size_bytes in transfers:
        wait = hop_ns(topology, source, target, 1)
        rest = hop_ns(topology, source, target, size_bytes) - wait
        for shared in _shared(topology, source, target):
            waits[shared] = max(waits.get(shared, 0), wait)
            rests[shared] = rests.get(shared, 0) + rest
    return max((waits[shared] + rests[shared] for shared in waits), default=0)


def _shared(topology: Topology, source: str, target: str) -> list[tuple[str, str]]:
    """What a transfer may have to share: its sender, and the trunk that its link names."""
    link = topology.link(source, target)
    trunk = link.trunk if link is not None else None
    return [("device", source), *([("trunk", trunk)] if trunk is not None else [])]


def return_ns(
    topology: Topology, last: str, first: str, hidden_bytes: int, *, head_first: bool
) -> int:
    """What the last stage sends back to the first: hidden rows to a head there, else a token."""
    return hop_ns(topology, last, first, hidden_bytes if head_first else STEP_BYTES)
