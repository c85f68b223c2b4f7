"""A question with one number changed: what compiling is asked anew."""

from collections.abc import Callable, Sequence

from plancc.compiler.explain_variants import Variant
from plancc.ir.ask import Ask
from plancc.ir.exchange import Exchange
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Device, Link, Topology

GIB = 2**30
Points = Sequence[tuple[float, float]]


def changed(topology: Topology, ask: Ask, model: ModelShape, variant: Variant
            ) -> tuple[Topology, Ask] | None:  # fmt: skip
    """The question with the change made; None where it has no meaning, as beyond max_context."""
    part, factor = variant.part, variant.factor
    match part.kind:
        case "read" | "matmul" | "memory":
            edit = _EDITS[part.kind]
            rows = tuple(edit(device, factor) if device.name in part.names else device
                         for device in topology.devices)  # fmt: skip
            return topology.model_copy(update={"devices": rows}), ask
        case "link":
            links = tuple(_faster_link(link, factor) if f"{link.from_}->{link.to}" in part.names
                          else link for link in topology.links)  # fmt: skip
            return topology.model_copy(update={"links": links}), ask
        case "exchange":
            exchanges = tuple(
                _faster_exchange(row, factor) if sorted(row.group) == sorted(part.names) else row
                for row in topology.exchanges)  # fmt: skip
            return topology.model_copy(update={"exchanges": exchanges}), ask
        case "context":
            context = int(factor * (ask.context or 0))
            fits = context <= model.max_context
            return (topology, ask.model_copy(update={"context": context})) if fits else None
        case "slots":
            return topology, ask.model_copy(update={"slots": int(factor * ask.slots)})


def _faster(device: Device, factor: float) -> Device:
    if device.read_points:
        return device.model_copy(update={"read_points": _scaled(device.read_points, factor)})
    return device.model_copy(update={"read_gb_s": (device.read_gb_s or 0) * factor})


def _multiplying(device: Device, factor: float) -> Device:
    """All of its matrix products, of every format, and a prompt's attention."""
    attention, points = device.attention_tflops, device.matmul_points
    numbers = {
        "tflops": {dtype: rate * factor for dtype, rate in device.tflops.items()},
        "matmul_points": points and tuple((rows, rate * factor) for rows, rate in points),
        "attention_tflops": None if attention is None else attention * factor,
    }
    return device.model_copy(update=numbers)


def _larger(device: Device, gib: float) -> Device:
    more = int(gib * GIB)
    sizes = {"free_bytes": device.free_bytes + more, "total_bytes": device.total_bytes + more}
    return device.model_copy(update=sizes)


_EDITS: dict[str, Callable[[Device, float], Device]] = {
    "read": _faster,
    "matmul": _multiplying,
    "memory": _larger,
}


def _faster_link(link: Link, factor: float) -> Link:
    """The whole curve: latency shrinks as the time of each byte does."""
    if link.points:
        return link.model_copy(update={"points": _scaled(link.points, factor)})
    latency, rate = link.latency_us or 0, link.bandwidth_gb_s or 0
    numbers = {"latency_us": latency / factor, "bandwidth_gb_s": rate * factor}
    return link.model_copy(update=numbers)


def _faster_exchange(row: Exchange, factor: float) -> Exchange:
    owned = row.owned_points and _scaled(row.owned_points, factor)
    return row.model_copy(update={"points": _scaled(row.points, factor), "owned_points": owned})


def _scaled(points: Points, factor: float) -> tuple[tuple[float, float], ...]:
    return tuple((size, us / factor) for size, us in points)
