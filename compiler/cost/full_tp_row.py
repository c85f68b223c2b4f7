"""Full TP as a row among a plan's alternatives: what it would take, or lack; it is never chosen."""

from collections.abc import Iterator

from plancc.compiler.cost.compute import Work
from plancc.compiler.cost.full_tp import full_tp_bytes, full_tp_step_ns
from plancc.ir.ask import Ask
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Alternative
from plancc.ir.topology import Device, Topology

SHAPE = "full tensor parallelism"
_NEVER = "priced for comparison: attention is never cut"
_STREAM_BYTES = 10**8


def full_tp_row(
    model: ModelShape, topology: Topology, ask: Ask, context: int
) -> Alternative | None:
    """The fastest even cut that fits, over two or more devices of one host; `ask` is filled.

    `value` is of the ask's objective, ns; none for `context` and where a matmul rate is missing.
    Where nothing fits, what the roomiest cut is short of. None: no host has two devices.
    """
    groups = list(_groups(topology, ask))
    if not groups:
        return None
    lacks = {names: _short_bytes(model, topology, ask, context, names) for names in groups}
    fitting = [names for names in groups if lacks[names][0] <= 0]
    if not fitting:
        names = min(groups, key=lambda names: (lacks[names][0], names))
        short, device = lacks[names]
        return Alternative(shape=f"{SHAPE} over {len(names)}", verdict="does not fit",
                           short_bytes=short, device=device)  # fmt: skip
    priced = [(_value(model, topology, ask, context, names), names) for names in fitting]
    value, names = min(priced, key=lambda pair: (pair[0] is None, pair[0] or 0, pair[1]))
    return Alternative(shape=f"{SHAPE} over {len(names)}", verdict="not allowed", value=value,
                       note=f"{_NEVER}; {', '.join(names)}")  # fmt: skip


def _groups(topology: Topology, ask: Ask) -> Iterator[tuple[str, ...]]:
    """Of each host its n fastest devices, n = 2, 4, 8 ...: what heads divide by."""
    for host in topology.hosts:
        here = [device for device in topology.devices
                if device.host == host.name and _is_asked(ask, device.name)]  # fmt: skip
        here.sort(key=lambda device: (device.read_curve().ns(_STREAM_BYTES), device.name))
        names = tuple(device.name for device in here)
        most = min(len(names), ask.max_devices or len(names))
        yield from (names[: 1 << power] for power in range(1, most.bit_length()))


def _is_asked(ask: Ask, name: str) -> bool:
    return ask.devices is None or name in ask.devices


def _short_bytes(
    model: ModelShape, topology: Topology, ask: Ask, context: int, names: tuple[str, ...]
) -> tuple[int, str]:
    """(bytes missing on the tightest device, its name); not positive where the cut fits."""
    devices = [_device(topology, name) for name in names]
    need = {layout: full_tp_bytes(model, ask, context, len(names), layout)
            for layout in {device.layout for device in devices}}  # fmt: skip
    return max((need[device.layout] + topology.opened_bytes(device, ask.workers)
                - device.budget_bytes, device.name) for device in devices)  # fmt: skip


def _value(
    model: ModelShape, topology: Topology, ask: Ask, context: int, names: tuple[str, ...]
) -> int | None:
    kv_dtype = ask.kv_dtype or model.dtype
    if ask.workload is not None:
        return _workload_value(model, topology, ask, context, names)
    if ask.objective == "latency":
        return full_tp_step_ns(model, topology, names, Work(1, context, kv_dtype))
    if ask.objective == "throughput":
        return full_tp_step_ns(model, topology, names, Work(ask.slots, context, kv_dtype))
    if ask.objective == "context":
        return None
    assert ask.prompt is not None
    return _prompt_ns(model, topology, ask, context, names, ask.prompt)


def _workload_value(
    model: ModelShape, topology: Topology, ask: Ask, context: int, names: tuple[str, ...]
) -> int | None:
    """One request's prompt, and a step of all streams for each token of its output."""
    work = ask.workload
    assert work is not None
    prompt = _prompt_ns(model, topology, ask, context, names, work.prompt)
    step = Work(work.streams, context, ask.kv_dtype or model.dtype)
    if prompt is None:
        return None
    return prompt + work.output * full_tp_step_ns(model, topology, names, step)


def _prompt_ns(
    model: ModelShape, topology: Topology, ask: Ask, context: int, names: tuple[str, ...],
    prompt: int,
) -> int | None:  # fmt: skip
    rows = min(ask.prefill_chunk, prompt)
    if any(_device(topology, name).matmul_tflops(rows, model.dtype) is None for name in names):
        return None
    work = Work(rows, context, ask.kv_dtype or model.dtype, prompt)
    return -(-prompt // rows) * full_tp_step_ns(model, topology, names, work)


def _device(topology: Topology, name: str) -> Device:
    device = topology.device(name)
    assert device is not None
    return device
