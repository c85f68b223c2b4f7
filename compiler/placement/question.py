"""From an ask to a problem: which seats, in which order; what is named must exist."""

from plancc.compiler.placement.problem import Problem
from plancc.compiler.placement.units import MOST_EQUAL_RANKS, MOST_RANKS, may_group
from plancc.ir.ask import Ask
from plancc.ir.errors import BadInput
from plancc.ir.layers import DenseMlp, Layer, num_tiles
from plancc.ir.manifest import ModelShape
from plancc.ir.sizes import kv_bytes_per_token
from plancc.ir.topology import Topology

PLACES = ("first", "last", "any")


def build_problem(model: ModelShape, topology: Topology, ask: Ask) -> Problem:
    """The problem at the asked context. Raises BadInput naming the flag or field at fault."""
    model = _without(model, ask)
    seats = _seats(model, topology, ask)
    _check_context(model, ask)
    _check_tp(model, ask, seats)
    _check_stage_layers(model, ask, seats)
    _check_homes(model, topology, ask, seats)
    for layer in model.layers:
        kv_bytes_per_token(model, layer, ask.kv_dtype or model.dtype)
    repeats = len(set(seats)) < len(seats)
    problem = Problem(
        model=model,
        topology=topology,
        ask=ask,
        seats=seats,
        in_order=ask.devices is not None,
        all_seats=repeats,
        context=ask.context or min(model.max_context, 8192),
    )
    _check_rates(problem)
    _check_groups(problem)
    return problem


def _without(model: ModelShape, ask: Ask) -> ModelShape:
    names = [block.name for block in model.blocks]
    for name in ask.without:
        if name not in names:
            raise BadInput(
                f"--without {name}: {model.name} has blocks {', '.join(names) or 'none'}"
            )
    kept = tuple(block for block in model.blocks if block.name not in ask.without)
    return model.model_copy(update={"blocks": kept})


def _seats(model: ModelShape, topology: Topology, ask: Ask) -> tuple[str, ...]:
    """Asked devices in their order, or all by name; those that cannot hold the dtype are out."""
    names = sorted(device.name for device in topology.devices)
    for name in ask.devices or ():
        if name not in names:
            raise BadInput(f"--devices {name}: {topology.name} has {', '.join(names)}")
    asked = ask.devices or tuple(names)
    able = tuple(name for name in asked if _can_run(model, topology, name))
    refused = sorted(set(asked) - set(able))
    if refused and (ask.devices is not None or not able):
        device = topology.device(refused[0])
        assert device is not None
        raise BadInput(
            f"device {refused[0]}: {model.name} is {model.dtype}, found {', '.join(device.dtypes)};"
            f" no other dtype is chosen silently"
        )
    return able


def _can_run(model: ModelShape, topology: Topology, name: str) -> bool:
    device = topology.device(name)
    assert device is not None
    return model.dtype in device.dtypes


def _check_context(model: ModelShape, ask: Ask) -> None:
    if ask.context is not None and ask.context > model.max_context:
        raise BadInput(
            f"--context {ask.context}: {model.name} was made for at most {model.max_context} tokens"
        )


def _check_tp(model: ModelShape, ask: Ask, seats: tuple[str, ...]) -> None:
    """--tp N makes every stage a group, so every layer must be one that can be cut."""
    if not isinstance(ask.tp, int) or ask.tp == 1:
        return
    said = f"--tp {ask.tp}"
    if ask.objective == "workload":
        raise BadInput(f"{said}: --workload places pipelines only, without groups")
    if ask.tp > len(set(seats)):
        raise BadInput(f"{said}: {len(set(seats))} device(s) found")
    if len(set(seats)) < len(seats):
        raise BadInput(f"{said}: --devices names a device twice; ranks of a group are devices")
    if ask.max_devices is not None and ask.max_devices < ask.tp:
        raise BadInput(f"{said}: --max-devices {ask.max_devices} is less")
    for index, layer in enumerate(model.layers):
        tiles = num_tiles(layer)
        if tiles < ask.tp:
            raise BadInput(f"{said}: layer {index} of {model.name} has {_why_whole(layer)}; "
                           f"--tp auto cuts what can be cut")  # fmt: skip


def _why_whole(layer: Layer) -> str:
    if layer.mlp is None:
        return "no MLP to cut"
    if not isinstance(layer.mlp, DenseMlp):
        return "experts, which live on one device"
    if layer.mlp.intermediate_size is None:
        return "an MLP given as bytes only: add intermediate_size"
    return f"an MLP of {layer.mlp.num_tiles} tile(s)"


def _check_groups(problem: Problem) -> None:
    """--tp N needs devices that may form a group of N."""
    tp = problem.ask.tp
    if not isinstance(tp, int) or tp == 1 or may_group(problem):
        return
    most = f"{MOST_RANKS}, or {MOST_EQUAL_RANKS} equal ones"
    raise BadInput(
        f"--tp {tp}: no {tp} devices may form a group; it has at most {most}, of one host or with "
        f"a measured exchange in the topology"
    )


def _check_stage_layers(model: ModelShape, ask: Ask, seats: tuple[str, ...]) -> None:
    if ask.stage_layers is None:
        return
    total, count = sum(ask.stage_layers), len(ask.stage_layers)
    said = f"--stage-layers {','.join(map(str, ask.stage_layers))}"
    if total != len(model.layers):
        raise BadInput(f"{said}: adds up to {total}, {model.name} has {len(model.layers)} layers")
    if count > len(seats):
        raise BadInput(f"{said}: {count} stages, found {len(seats)} device(s)")
    if ask.max_devices is not None and count > ask.max_devices:
        raise BadInput(f"{said}: {count} stages, --max-devices allows {ask.max_devices}")
    if len(set(seats)) < len(seats) and count != len(seats):
        raise BadInput(f"{said}: {count} stages, --devices names {len(seats)} seats")
    first = 0
    for layers in ask.stage_layers[:-1]:
        first += layers
        for index in range(first, len(model.layers)):
            source = model.layers[index].kv_from
            if source is not None and source < first:
                raise BadInput(
                    f"{said}: a cut at {first} parts layer {index} from layer {source}, whose KV "
                    f"it reads"
                )


def _check_homes(model: ModelShape, topology: Topology, ask: Ask, seats: tuple[str, ...]) -> None:
    names = [block.name for block in model.blocks]
    for block, device in ask.pin.items():
        if block not in names:
            raise BadInput(f"--pin {block}={device}: {model.name} has blocks "
                           f"{', '.join(names) or 'none'}")  # fmt: skip
        if device not in seats:
            raise BadInput(f"--pin {block}={device}: expected one of {', '.join(seats)}")
    for entry in model.blocks:
        place = ask.pin.get(entry.name, entry.place)
        if place not in PLACES and place not in seats:
            raise BadInput(f"block {entry.name}: its place {place!r} is neither first, last, any "
                           f"nor one of {', '.join(seats)}")  # fmt: skip


def _check_rates(problem: Problem) -> None:
    """Prefill, as an objective or a part of a workload, needs every device's matmul rate."""
    ask, work = problem.ask, problem.ask.workload
    if ask.objective not in ("prefill", "workload"):
        return
    rows = min(ask.prefill_chunk, work.prompt if work else ask.prompt or 1)
    for device in problem.devices:
        if device.matmul_tflops(rows, problem.model.dtype) is None:
            flag = "--workload" if work else "--objective prefill"
            raise BadInput(
                f"{flag}: device {device.name} has no tflops for "
                f"{problem.model.dtype} and no matmul_points of it"
            )
