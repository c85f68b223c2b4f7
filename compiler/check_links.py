"""Which links a plan must have: every transfer of a step once, and no other."""

from collections import Counter
from collections.abc import Iterator

from plancc.ir.groups import exchange_pairs, hop_pairs, spread_pairs
from plancc.ir.plan import Plan

Row = tuple[int, int, str]
"""(rank that sends, rank that receives, payload)"""


def link_set_problems(plan: Plan) -> Iterator[str]:
    """A pipeline's links are in their order; those of a plan with groups are told one by one."""
    expected = _expected(plan)
    found = [(link.from_, link.to, str(link.payload)) for link in plan.links]
    if all(stage.mixer == "single" for stage in plan.stages):
        if found != expected:
            yield f"links: expected {expected}, found {found}"
        return
    for (source, target, payload), times in sorted((Counter(expected) - Counter(found)).items()):
        yield f"links: {times} of {payload} from rank {source} to {target} expected, found none"
    for (source, target, payload), times in sorted((Counter(found) - Counter(expected)).items()):
        yield f"links: {times} of {payload} from rank {source} to {target} too many"


def _expected(plan: Plan) -> list[Row]:
    """Hops, the row back where the head is first, exchanges, the step to all but the driver."""
    firsts = _first_ranks(plan)
    head_first = "head" in plan.stages[0].blocks and len(plan.stages) > 1
    back = [(firsts[-2], 0, "hidden")] if head_first else []
    driver = 0 if head_first else firsts[-2]
    steps = [(driver, rank, "step") for rank in range(firsts[-1]) if rank != driver]
    return [*_hops(plan, firsts), *back, *_within(plan, firsts), *steps]


def _first_ranks(plan: Plan) -> list[int]:
    """Of each stage its first rank's number, and after them the number of ranks."""
    firsts = [0]
    for stage in plan.stages:
        firsts.append(firsts[-1] + len(stage.ranks))
    return firsts


def _hops(plan: Plan, firsts: list[int]) -> Iterator[Row]:
    sizes = [(stage.mixer, len(stage.ranks)) for stage in plan.stages]
    for index in range(len(sizes) - 1):
        for source, target in hop_pairs(sizes[index], sizes[index + 1]):
            yield firsts[index] + source, firsts[index + 1] + target, "hidden"


def _within(plan: Plan, firsts: list[int]) -> Iterator[Row]:
    """Embedded rows to the other holders, an owner's rows to its helpers, partial rows."""
    for index, stage in enumerate(plan.stages):
        size, first = len(stage.ranks), firsts[index]
        sent = list(spread_pairs(stage.mixer, size)) if index == 0 else []
        sent += [(0, rank) for rank in range(1, size)] if stage.mixer == "owned" else []
        yield from ((first + source, first + target, "hidden") for source, target in sent)
        for source, target in exchange_pairs(stage.mixer, size):
            yield first + source, first + target, "partial"
