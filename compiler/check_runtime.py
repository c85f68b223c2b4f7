"""Workers, addresses and transports of a plan, derived again from ask and topology."""

from collections.abc import Iterator
from itertools import groupby

from plancc.compiler.check_links import link_set_problems
from plancc.ir.plan import Plan, PlanLink
from plancc.ir.topology import Device, Topology

_DIRECT = ("p2p", "staged")


def runtime_problems(plan: Plan, topology: Topology) -> Iterator[str]:
    yield from _worker_problems(plan, topology)
    yield from _address_problems(plan, topology)
    yield from _order_problems(plan, topology)
    for index, link in enumerate(plan.links):
        wanted = _transport(plan, topology, link)
        if link.transport != wanted:
            yield f"links[{index}].transport: expected {wanted}, found {link.transport}"
    yield from link_set_problems(plan)


def _worker_problems(plan: Plan, topology: Topology) -> Iterator[str]:
    """Names host.w0, host.w1; one of `threads` alone, the others of a host and kind together."""
    measured = sorted((device for device in topology.devices if device.name in _names(plan)),
                      key=lambda device: device.name)  # fmt: skip
    homes: list[list[Device]] = []
    for device in measured:
        mates = [home for home in homes if _share(home[0], device, plan.ask.workers)]
        if mates:
            mates[0].append(device)
        else:
            homes.append([device])
    expected = []
    for host, members in groupby(sorted(homes, key=lambda home: _host_rank(home, measured)),
                                 key=lambda home: home[0].host):  # fmt: skip
        for number, home in enumerate(members):
            names = tuple(device.name for device in home)
            expected.append((f"{host}.w{number}", host, names, home[0].threads))
    found = [(w.name, w.host, w.devices, w.threads) for w in plan.runtime.workers]
    if sorted(expected) != sorted(found):
        yield f"runtime.workers: expected {sorted(expected)}, found {sorted(found)}"


def _host_rank(home: list[Device], measured: list[Device]) -> int:
    """A host's homes stand together, hosts in the order in which they first appear."""
    return [device.host for device in measured].index(home[0].host)


def _share(one: Device, other: Device, rule: str) -> bool:
    alike = (one.host, one.kind) == (other.host, other.kind)
    return rule == "host" and alike and one.threads is None and other.threads is None


def _names(plan: Plan) -> set[str]:
    return {rank.device for stage in plan.stages for rank in stage.ranks}


def _address_problems(plan: Plan, topology: Topology) -> Iterator[str]:
    addresses = {host.name: host.address for host in topology.hosts}
    for host in plan.runtime.hosts:
        expected = addresses.get(host.name)
        if host.address != expected:
            yield f"runtime.hosts {host.name}: the topology says {expected}, found {host.address}"


def _order_problems(plan: Plan, topology: Topology) -> Iterator[str]:
    listed = [device.name for device in plan.devices]
    expected = sorted(device.name for device in topology.devices if device.name in listed)
    if listed != expected:
        yield f"devices: expected in the order of their names {expected}, found {listed}"


def _transport(plan: Plan, topology: Topology, link: PlanLink) -> str:
    source, target = plan.programs[link.from_].device, plan.programs[link.to].device
    together = any({source, target} <= set(worker.devices) for worker in plan.runtime.workers)
    row = topology.link(source, target)
    direct = row is not None and row.mode in _DIRECT and link.payload != "step"
    if together:
        return row.mode if direct and row is not None else "local"
    return "nccl" if direct and plan.ask.workers == "device" else "gloo"
