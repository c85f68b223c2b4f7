"""From flags, or from a topology to refresh, to what is measured."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plancc.executor.backends import PROBES, probe_of
from plancc.executor.machine import has_address
from plancc.executor.probe import ProbeOptions
from plancc.executor.probe_between import STAGED_NOTE
from plancc.executor.probe_cards import declare_cards
from plancc.executor.probe_cpu import declare_cpu_devices
from plancc.executor.probe_kinds import DeclaredDevice
from plancc.ir.dtype import DType
from plancc.ir.errors import BadInput
from plancc.ir.topology import Host, Topology
from plancc.ir.units import parse_bytes

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]*")


@dataclass(frozen=True)
class DeviceFlags:
    """As typed; None or () where not said."""

    name: str | None = None
    cards: str | None = None
    cpu_devices: int | None = None
    cpu_memory: tuple[str, ...] = ()
    cpu_threads: tuple[str, ...] = ()
    dtype: DType | None = None
    host_name: str | None = None
    address: str | None = None

    @property
    def wants_cpu(self) -> bool:
        """Whether any flag speaks of CPU devices."""
        return bool(self.cpu_devices is not None or self.cpu_memory or self.cpu_threads)


def topology_name(flags: DeviceFlags, output: Path) -> str:
    return flags.name or output.name.split(".")[0] or "topology"


def refuse_device_flags(mode: str, flags: DeviceFlags) -> None:
    """Raises BadInput where a flag that declares devices came with files that have declared."""
    for name, value in vars(flags).items():
        if name != "name" and value not in (None, ()):
            flag = f"--{name.replace('_', '-')}"
            raise BadInput(f"{mode} takes its devices from files: leave out {flag}")


def options_from_flags(
    flags: DeviceFlags, output: Path, environment: Mapping[str, str], *, quick: bool,
    is_staged: bool = False,
) -> ProbeOptions:  # fmt: skip
    """What a new file is measured from. Raises BadInput naming flag, found and expected.

    CPU devices only where they are asked for, or where there is no card.
    """
    host = Host(name=_host_name(flags.host_name), address=_own_address(flags.address))
    devices = declare_cards(flags.cards, environment)
    if is_staged and len(devices) < 2:
        raise BadInput(f"--staged: expected two cards or more to have links between, found "
                       f"{len(devices)}")  # fmt: skip
    if flags.wants_cpu or not devices:
        devices += _cpu_devices(flags, host.name)
    name, dtype = topology_name(flags, output), flags.dtype or "bfloat16"
    return ProbeOptions(name, host, devices, dtype, quick, is_staged)


def _cpu_devices(flags: DeviceFlags, host: str) -> tuple[DeclaredDevice, ...]:
    count = 1 if flags.cpu_devices is None else flags.cpu_devices
    if count < 1:
        raise BadInput(f"--cpu-devices: expected at least 1, found {count}")
    return declare_cpu_devices(
        host,
        count,
        memory=_one_each("--cpu-memory", flags.cpu_memory, count, parse_bytes),
        threads=_one_each("--cpu-threads", flags.cpu_threads, count, _threads),
    )


def options_to_refresh(
    old: Topology, flags: DeviceFlags, where: Path, environment: Mapping[str, str], *, quick: bool,
    is_staged: bool = False,
) -> ProbeOptions:  # fmt: skip
    """The same devices as in `old`, found by uuid where they are cards, and links staged again
    that were so because it was asked. Raises BadInput for a file of other machines."""
    refuse_device_flags("--refresh", flags)
    if flags.name:
        raise BadInput(f"--refresh keeps the name that {where} has: leave out --name")
    if len(old.hosts) > 1:
        raise BadInput(f"{where}: expected the devices of one host, found {len(old.hosts)} hosts; "
                       f"refresh each host's own file, then join them again")  # fmt: skip
    other = [device for device in old.devices if device.kind not in PROBES]
    if other:
        raise BadInput(f"{where}: devices.{other[0].name}.kind: planprobe measures "
                       f"{', '.join(sorted(PROBES))}, found {other[0].kind!r}")  # fmt: skip
    _own_address(old.hosts[0].address)
    devices = tuple(
        probe_of(device.kind).again(device, str(where), environment) for device in old.devices
    )
    dtypes: list[DType] = [one for device in old.devices for one in device.tflops]
    was_staged = any(link.note == STAGED_NOTE for link in old.links)
    return ProbeOptions(old.name, old.hosts[0], devices, (dtypes or ["bfloat16"])[0], quick,
                        is_staged or was_staged)  # fmt: skip


def _one_each(flag: str, texts: tuple[str, ...], count: int, parse: Any) -> tuple[int, ...] | None:
    """One value a device from one for all or one each; None where nothing was said."""
    words = [word for text in texts for word in text.replace(",", " ").split()]
    if not words:
        return None
    if len(words) not in (1, count):
        raise BadInput(f"{flag}: expected 1 value for all or {count} for {count} devices, found "
                       f"{len(words)}")  # fmt: skip
    try:
        values = [parse(word) for word in words]
    except ValueError as error:
        raise BadInput(f"{flag}: {error}") from None
    if min(values) < 1:
        raise BadInput(f"{flag}: expected more than 0, found {min(values)}")
    return tuple(values) if len(values) == count else tuple(values * count)


def _threads(text: str) -> int:
    if not text.isdigit():
        raise ValueError(f"expected a whole number, found {text!r}")
    return int(text)


def _host_name(name: str | None) -> str:
    if name is not None and not _NAME.fullmatch(name):
        raise BadInput(f"--host-name: expected letters, digits and _ . : -, found {name!r}")
    return name or "h0"


def _own_address(address: str | None) -> str:
    """An address that processes of this host can listen on."""
    address = address or "127.0.0.1"
    if not has_address(address):
        raise BadInput(f"--address: this host cannot listen at {address}; name one of its own")
    return address
