"""The executor's closed instruction set. A rank's program is one step; it is run once a step.

`Run` is a segment: what a rank does between two communications, and what becomes one graph.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from plancc.ir.document import Frozen

Index = Annotated[int, Field(ge=0)]


class Run(Frozen):
    """Embed (if said), layers [first, end), head (if said).

    After an Exchange it first adds that layer's sum to the residual. Where this rank has a share of
    the MLP it runs one layer, up to the share's partial rows. `part` is said in a group whose lead
    owns the mixers: `mixer` ends with the rows normed for the MLP, `mlp` begins with them.
    """

    op: Literal["run"] = "run"
    segment: Index
    layers: tuple[Index, Index]
    embed: bool = False
    head: bool = False
    part: Literal["whole", "mixer", "mlp"] = "whole"

    @model_serializer(mode="wrap")
    def _without_whole(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Only a group's plans say `part`."""
        data: dict[str, Any] = dump(self)
        return {key: value for key, value in data.items() if (key, value) != ("part", "whole")}


class Send(Frozen):
    op: Literal["send"] = "send"
    link: Index


class Recv(Frozen):
    """Wait for the link's next rows; they occupy a slot of the link until Free."""

    op: Literal["recv"] = "recv"
    link: Index


class Exchange(Frozen):
    """Partial rows of one layer's MLP, among the ranks of a stage, over its `partial` links.

    A rank that holds the residual has the rows of all afterwards, and the next Run adds them in the
    order of the tile tree; another has none.
    """

    op: Literal["exchange"] = "exchange"
    layer: Index
    ranks: tuple[Index, ...]


class Sample(Frozen):
    op: Literal["sample"] = "sample"


class Free(Frozen):
    op: Literal["free"] = "free"
    link: Index


Instruction = Annotated[Run | Send | Recv | Exchange | Sample | Free, Field(discriminator="op")]
