"""Does every rank of a plan have its program, and every instruction a link and a segment?"""

from collections.abc import Iterator

from plancc.ir.instruction import Free, Recv, Run, Send
from plancc.ir.plan import Plan


def header_problems(plan: Plan) -> Iterator[str]:
    """What must be right before the programs can be walked."""
    seats = [(index, rank.device) for index, s in enumerate(plan.stages) for rank in s.ranks]
    if len(plan.programs) != len(seats):
        yield f"programs: expected one for each of {len(seats)} ranks, found {len(plan.programs)}"
        return
    for number, (program, seat) in enumerate(zip(plan.programs, seats, strict=True)):
        found = (program.rank, program.stage, program.device)
        if found != (number, *seat):
            yield (
                f"programs[{number}]: expected rank, stage, device {(number, *seat)}, found {found}"
            )
    for number, program in enumerate(plan.programs):
        for index, item in enumerate(program.instructions):
            if isinstance(item, Send | Recv | Free) and item.link >= len(plan.links):
                yield f"programs[{number}].instructions[{index}]: no link {item.link}"
        segments = [item.segment for item in program.instructions if isinstance(item, Run)]
        if segments != list(range(len(segments))):
            yield f"programs[{number}]: expected segments 0, 1 ... in order, found {segments}"
