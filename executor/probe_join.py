"""Topologies of two hosts as one. What lies between the hosts is given by hand, and marked so."""

import ipaddress
from itertools import product
from math import isfinite

from plancc.ir.errors import BadInput
from plancc.ir.topology import Device, Link, Topology

_FIELDS = ("gb_s", "latency_us")
_NOTE = "given by hand, not measured"


def parse_between(text: str | None) -> dict[str, float]:
    """gb_s and latency_us of 'gb_s=1.2,latency_us=80'. Raises BadInput for anything else."""
    if text is None:
        raise BadInput("--join: the network run between hosts is not built yet; give what lies "
                       "between them with --between gb_s=RATE,latency_us=TIME")  # fmt: skip
    found: dict[str, float] = {}
    for word in text.split(","):
        key, _, value = word.partition("=")
        try:
            found[key] = float(value)
        except ValueError:
            raise BadInput(f"--between: {key}: expected a number, found {value!r}") from None
    if sorted(found) != sorted(_FIELDS):
        raise BadInput(f"--between: expected gb_s=RATE,latency_us=TIME, found {text!r}")
    for key, number in found.items():
        if not (isfinite(number) and number > 0):
            raise BadInput(f"--between: {key}: expected more than 0, found {number:g}")
    return found


def join(first: Topology, second: Topology, name: str, between: dict[str, float]) -> Topology:
    """Hosts, devices and links of both, and one link each way between devices of different hosts.

    A device name that both files use becomes HOST.NAME. Raises BadInput for a host in both files,
    and for an address at which another host cannot reach it.
    """
    parts = (first, second)
    _refuse_unreachable(parts)
    twice = {device.name for device in first.devices} & {device.name for device in second.devices}
    parts = (_renamed(first, twice), _renamed(second, twice))
    links = [link for part in parts for link in part.links]
    for one, other in product(parts[0].devices, parts[1].devices):
        links += [_given(one, other, between), _given(other, one, between)]
    return Topology(
        name=name,
        hosts=(*parts[0].hosts, *parts[1].hosts),
        devices=(*parts[0].devices, *parts[1].devices),
        links=tuple(links),
        exchanges=(*parts[0].exchanges, *parts[1].exchanges),
    )


def _refuse_unreachable(parts: tuple[Topology, Topology]) -> None:
    names = [host.name for part in parts for host in part.hosts]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"--join: host {name} is in both files; measure one of them with "
                           f"another --host-name")  # fmt: skip
    for host in (host for part in parts for host in part.hosts):
        if _is_local(host.address):
            raise BadInput(f"--join: host {host.name} has address {host.address}, which no other "
                           f"host can reach; measure it with --address")  # fmt: skip


def _is_local(address: str) -> bool:
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return address == "localhost"
    return known.is_loopback or known.is_unspecified


def _renamed(part: Topology, twice: set[str]) -> Topology:
    names = {
        device.name: f"{device.host}.{device.name}" if device.name in twice else device.name
        for device in part.devices
    }
    return part.model_copy(
        update={
            "devices": tuple(
                device.model_copy(update={"name": names[device.name]}) for device in part.devices
            ),
            "links": tuple(
                link.model_copy(update={"from_": names[link.from_], "to": names[link.to]})
                for link in part.links
            ),
            "exchanges": tuple(
                one.model_copy(update={"group": tuple(names[name] for name in one.group)})
                for one in part.exchanges
            ),
        }
    )


def _given(source: Device, target: Device, between: dict[str, float]) -> Link:
    return Link.model_validate(
        {"from": source.name, "to": target.name, "mode": "network", "note": _NOTE,
         "latency_us": between["latency_us"], "bandwidth_gb_s": between["gb_s"]}
    )  # fmt: skip
