"""What a topology says of devices that work as one TP group."""

from typing import Annotated, Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from plancc.ir.curve import Curve, Points
from plancc.ir.document import Frozen

_MILLI = 1000


class Exchange(Frozen):
    """Everyone in the group ends with everyone's rows; bytes are what one rank sends.

    owned_points: rows from one device to the others and as many back, whichever it is, where the
    links do not say all of that.
    slowdown: how many times as long as alone the group computes a decode step while all do.
    """

    group: Annotated[tuple[str, ...], Field(min_length=2)]
    points: Points
    owned_points: Points | None = None
    slowdown: Annotated[float, Field(ge=1)] = 1.0

    @model_serializer(mode="wrap")
    def _without_silent(self, fields: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A file from before these fields has the digest that it had."""
        data: dict[str, Any] = fields(self)
        silent = {"owned_points": None, "slowdown": 1.0}
        return {key: value for key, value in data.items()
                if key not in silent or value != silent[key]}  # fmt: skip

    def curve(self) -> Curve:
        return Curve(self.points)

    def owned_ns(self, there_bytes: int, back_bytes: int) -> int:
        """Rows there and rows back, half of what each as many both ways take; only where there are
        owned_points."""
        assert self.owned_points is not None, f"nothing is said of an owned {self.group}"
        curve = Curve(self.owned_points)
        return -(-(curve.ns(there_bytes) + curve.ns(back_bytes)) // 2)

    @property
    def slowdown_milli(self) -> int:
        """In thousandths, for exact sums."""
        return round(self.slowdown * _MILLI)

    def at_once_ns(self, alone_ns: int) -> int:
        """What takes so long alone, while all of the group compute."""
        return -(-alone_ns * self.slowdown_milli // _MILLI)
