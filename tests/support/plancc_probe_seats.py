"""Ranks of a tiny model with a head, for the probe's links: any number on one device."""

from collections.abc import Callable
from typing import Any

from plancc.executor.probe_local import LocalProbe
from plancc.executor.probe_model import runtime_of, square_model, with_head
from plancc.ir.layers import DenseMlp


def seats(
    backend: Any, *names: str, can_reach: Callable[[Any, Any], bool], uuid: str | None = None
) -> LocalProbe:
    model = with_head(square_model(8 * 2**10, "bfloat16", 1))
    mlp = model.layers[0].mlp
    assert isinstance(mlp, DenseMlp)
    ranks = {
        name: backend.open(model=model, runtime=runtime_of(model, 1), layers=(0, 1),
                           blocks=("head",), tiles=(0, mlp.num_tiles), threads=1, uuid=uuid)
        for name in names
    }  # fmt: skip
    return LocalProbe(backend, ranks, can_reach)
