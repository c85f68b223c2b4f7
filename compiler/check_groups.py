"""Are the plan's TP groups such as topology and ask allow? Their sums are made elsewhere."""

from collections.abc import Iterator

from plancc.ir.plan import Plan, Stage
from plancc.ir.topology import Device, Topology

MAX_RANKS, MAX_EQUAL_RANKS = 4, 8


def group_problems(plan: Plan, topology: Topology) -> Iterator[str]:
    yield from _asked_problems(plan)
    yield from _shared_problems(plan)
    for index, stage in enumerate(plan.stages):
        if len(stage.ranks) > 1:
            where = f"stage[{index}].ranks"
            yield from _host_problems(where, stage, topology)
            yield from _size_problems(where, stage, topology)
            yield from _order_problems(where, plan, index)


def _asked_problems(plan: Plan) -> Iterator[str]:
    """off: no groups; N: groups of exactly N and nothing else."""
    asked = {"off": 1, "auto": None}.get(str(plan.ask.tp), plan.ask.tp)
    for index, stage in enumerate(plan.stages):
        if asked is not None and len(stage.ranks) != asked:
            said = f"--tp {plan.ask.tp} was asked"
            yield f"stage[{index}].ranks: {said}, found {len(stage.ranks)} rank(s)"


def _shared_problems(plan: Plan) -> Iterator[str]:
    """Seats of one device may be stages one after the other, but never ranks of a group."""
    seats = [rank.device for stage in plan.stages for rank in stage.ranks]
    for index, stage in enumerate(plan.stages):
        names = [rank.device for rank in stage.ranks]
        for name in sorted(set(names)):
            if len(names) > 1 and seats.count(name) > 1:
                yield (
                    f"stage[{index}].ranks: {name} is in a group and has {seats.count(name)} seats"
                )


def _host_problems(where: str, stage: Stage, topology: Topology) -> Iterator[str]:
    """Devices of one kind; across hosts only where exactly they were measured together."""
    kinds = sorted({device.kind for device in _devices(stage, topology)})
    if len(kinds) > 1:
        yield f"{where}: a group is of one kind of device, found {', '.join(kinds)}"
    hosts = sorted({device.host for device in _devices(stage, topology)})
    if len(hosts) > 1 and topology.exchange([rank.device for rank in stage.ranks]) is None:
        yield (
            f"{where}: a group is of one host unless its exchange was measured, found hosts "
            f"{', '.join(hosts)}"
        )


def _size_problems(where: str, stage: Stage, topology: Topology) -> Iterator[str]:
    count = len(stage.ranks)
    if count > MAX_EQUAL_RANKS:
        yield f"{where}: at most {MAX_EQUAL_RANKS} ranks in a group, found {count}"
    elif count > MAX_RANKS and not _are_equal(stage, topology):
        yield f"{where}: at most {MAX_RANKS} ranks unless all are equal, found {count}"


def _are_equal(stage: Stage, topology: Topology) -> bool:
    """Equal numbers, and equal links within the group."""
    own = {"name": "", "uuid": None}
    names = [rank.device for rank in stage.ranks]
    first, *others = _devices(stage, topology)
    if any(device.model_copy(update=own) != first.model_copy(update=own) for device in others):
        return False
    blank = {"from_": "", "to": "", "note": None}
    links = [topology.link(a, b) for a in names for b in names if a != b]
    return len({link.model_copy(update=blank).model_dump_json() for link in links if link}) == 1


def _devices(stage: Stage, topology: Topology) -> list[Device]:
    found = [topology.device(rank.device) for rank in stage.ranks]
    return [device for device in found if device is not None]


def _order_problems(where: str, plan: Plan, index: int) -> Iterator[str]:
    """The lead and then by name, or as asked; who leads says nothing where no block lies."""
    stage, asked = plan.stages[index], plan.ask.devices
    names = [rank.device for rank in stage.ranks]
    if asked is not None:
        return  # check_ask holds all seats against the asked order
    if names[1:] != sorted(names[1:]):
        yield f"{where}: after the first rank by name, found {', '.join(names)}"
    is_middle = 0 < index < len(plan.stages) - 1
    if is_middle and stage.mixer == "replicated" and not stage.blocks and names[0] != min(names):
        yield f"{where}: without a block {min(names)} is the first rank, found {names[0]}"
