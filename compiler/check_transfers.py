"""The clock of `plancc check` for rows on their way: one transfer, and several at the same time.

link      its curve; between two seats of one device its own memory, twice, and two
          launches: the copy, and what starts cold after it
together  a link's ns is the base of one byte and the body of the rest; of each device that
          sends and each trunk that is named, bodies add up over the largest base; the slowest
          of these decides
"""

from collections.abc import Iterable
from math import ceil

from plancc.ir.topology import Topology

Transfer = tuple[str, str, int]
"""(device that sends, device that receives, bytes)"""


def link_ns(topology: Topology, transfer: Transfer) -> int:
    source, target, size = transfer
    link = topology.link(source, target)
    if link is not None:
        return link.curve().ns(size)
    device = topology.device(source)
    assert device is not None
    launch = ceil(round(device.launch_us * 1000, 3))
    return device.read_curve().ns(2 * size) + launch + launch


def together_ns(topology: Topology, transfers: Iterable[Transfer]) -> int:
    """0 without transfers; the link's curve for one alone."""
    queues: dict[str, list[Transfer]] = {}
    for transfer in transfers:
        queues.setdefault(f"device {transfer[0]}", []).append(transfer)
        link = topology.link(transfer[0], transfer[1])
        if link is not None and link.trunk is not None:
            queues.setdefault(f"trunk {link.trunk}", []).append(transfer)
    return max((_queue_ns(topology, queue) for queue in queues.values()), default=0)


def _queue_ns(topology: Topology, queue: list[Transfer]) -> int:
    bases = [link_ns(topology, (source, target, 1)) for source, target, _ in queue]
    whole = sum(link_ns(topology, transfer) for transfer in queue)
    return whole - sum(bases) + max(bases)
