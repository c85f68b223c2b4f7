"""Which asks have a placement: what the field cases and the refusals ask again and again."""

from typing import Any

from plancc_builders import build_ask

from plancc.compiler.cost.memory import ledgers
from plancc.compiler.placement.decide import feasible
from plancc.compiler.placement.place import place
from plancc.compiler.placement.placement import Placement
from plancc.compiler.placement.question import build_problem
from plancc.ir.errors import DoesNotFit
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Ledger
from plancc.ir.topology import Topology

IN_ORDER = {"head": "last", "tp": "off"}
"""How the cut lists of the field cases are meant; with devices in the order listed."""


def placed(model: ModelShape, topology: Topology, **flags: Any) -> Placement:
    return place(model, topology, build_ask(model, **flags))


def refused(model: ModelShape, topology: Topology, **flags: Any) -> DoesNotFit:
    """The refusal of an ask that must not fit."""
    try:
        found = placed(model, topology, **flags)
    except DoesNotFit as error:
        return error
    raise AssertionError(f"expected DoesNotFit, found {found.stages}")


def has_room(model: ModelShape, topology: Topology, **flags: Any) -> bool:
    return feasible(build_problem(model, topology, build_ask(model, **flags)))


def cuts_that_fit(model: ModelShape, topology: Topology, **flags: Any) -> list[int]:
    """Every k for which layers 0..k-1 on A and the rest on B fit; head last unless said."""
    asked = IN_ORDER | {"devices": ("A", "B")} | flags
    count = len(model.layers)
    return [k for k in range(1, count)
            if has_room(model, topology, **asked, stage_layers=(k, count - k))]  # fmt: skip


def stages_of(placement: Placement) -> list[tuple[str, int, int]]:
    """(device, first layer, end layer) of every stage."""
    return [(stage.devices[0], *stage.layers) for stage in placement.stages]


def ledgers_of(
    model: ModelShape, topology: Topology, placement: Placement, **flags: Any
) -> dict[str, Ledger]:
    return ledgers(model, topology, build_ask(model, **flags), placement)


def never_worse_when_free(model: ModelShape, topology: Topology, **flags: Any) -> None:
    """--head auto with free order is at least as good as --head last in the order listed."""
    bound = placed(model, topology, **(IN_ORDER | {"devices": ("A", "B")} | flags))
    free = placed(model, topology, **({"tp": "off"} | flags))
    assert free.proof.best <= bound.proof.best
