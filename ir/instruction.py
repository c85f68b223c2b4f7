"""The executor's closed instruction set. A rank's program is one step; it is run once a step.

`Run` is a segment: what a rank does between two communications, and what becomes one graph.
"""

from typing import Annotated, Literal

from pydantic import Field

from plancc.ir.document import Frozen

Index = Annotated[int, Field(ge=0)]


class Run(Frozen):
    """Embed (if said), layers [first, end), head (if said)."""

    op: Literal["run"] = "run"
    segment: Index
    layers: tuple[Index, Index]
    embed: bool = False
    head: bool = False


class Send(Frozen):
    op: Literal["send"] = "send"
    link: Index


class Recv(Frozen):
    """Wait for the link's next rows; they occupy a slot of the link until Free."""

    op: Literal["recv"] = "recv"
    link: Index


class Exchange(Frozen):
    """Partial rows of one layer's MLP, among the ranks of a stage, summed in tile order."""

    op: Literal["exchange"] = "exchange"
    layer: Index
    ranks: tuple[Index, ...]


class Sample(Frozen):
    op: Literal["sample"] = "sample"


class Free(Frozen):
    op: Literal["free"] = "free"
    link: Index


Instruction = Annotated[Run | Send | Recv | Exchange | Sample | Free, Field(discriminator="op")]
