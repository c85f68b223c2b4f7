"""Places in a rank's program that its interpreter must know."""

from plancc.ir.instruction import Exchange, Recv, Run
from plancc.ir.plan import Program


def first_recvs(program: Program) -> dict[int, int]:
    """By link, where it is first received from. Rows of a later step on a link that is received
    from more than once must wait until this step is past its last."""
    found: dict[int, int] = {}
    for at, item in enumerate(program.instructions):
        if isinstance(item, Recv):
            found.setdefault(item.link, at)
    return found


def runs_before_exchange(program: Program) -> frozenset[int]:
    """Where the segments run that end with partial rows."""
    places, last = set[int](), -1
    for at, item in enumerate(program.instructions):
        if isinstance(item, Run):
            last = at
        elif isinstance(item, Exchange):
            places.add(last)
    return frozenset(places)
