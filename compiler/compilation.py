"""What passes hand on: the question, the graph, and what has been decided about it so far."""

from collections.abc import Callable
from dataclasses import dataclass

from plancc.compiler.placement.placement import Placement
from plancc.ir.ask import Ask
from plancc.ir.graph import Graph
from plancc.ir.manifest import ModelManifest
from plancc.ir.plan import Plan, PlanLink, Program
from plancc.ir.topology import Topology

EMPTY = Graph((), ())


@dataclass(frozen=True)
class Lowered:
    """The links between ranks and each rank's program, read off the lowered graph."""

    links: tuple[PlanLink, ...]
    programs: tuple[Program, ...]


@dataclass(frozen=True)
class Compilation:
    """`ask` has its defaults filled in. What a later pass decides is None before it has run."""

    manifest: ModelManifest
    topology: Topology
    ask: Ask
    graph: Graph = EMPTY
    placement: Placement | None = None
    lowered: Lowered | None = None
    draft: Plan | None = None  # checked, without its digest
    plan: Plan | None = None


@dataclass(frozen=True)
class Pass:
    name: str
    run: Callable[[Compilation], Compilation]
