"""What an objective adds up or takes the worst of: ns of stages and hops, on every seat."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from plancc.compiler.cost.comm import STEP_BYTES, hop_ns
from plancc.compiler.cost.compute import (
    Work,
    embed_ns,
    head_ns,
    layer_ns,
)
from plancc.compiler.placement.problem import Problem, Table, prefix_sums
from plancc.ir.layers import Layer
from plancc.ir.sizes import hidden_row_bytes


@dataclass(frozen=True)
class Times:
    """ns of a step's parts on every seat: what an objective adds up or takes the worst of."""

    layers: Table  # [seats, L + 1] prefix sums
    embed: Table  # [seats]
    head: Table  # [seats]
    hop: Table  # [seats, seats] one step's rows
    token: Table  # [seats, seats] a sampled token on its way back


def decode_times(problem: Problem, rows: int) -> Times:
    work = Work(rows, problem.context, problem.kv_dtype)
    model = problem.model
    layers = [_by_kind(problem, partial(layer_ns, model, d, work=work)) for d in problem.devices]
    heads = [head_ns(model, device, work) for device in problem.devices]
    return _times(problem, layers, heads, rows)


def prompt_times(problem: Problem, rows: int, prompt: int | None = None) -> Times:
    """Of a chunk of the asked prompt, or of one of another length."""
    work = Work(rows, problem.context, problem.kv_dtype, prompt or problem.ask.prompt or 1)
    model = problem.model
    layers = [_by_kind(problem, partial(layer_ns, model, d, work=work)) for d in problem.devices]
    return _times(problem, layers, [0] * problem.num_seats, rows)


def _by_kind(problem: Problem, price: Callable[..., int]) -> list[int]:
    """The price of every layer; layers that are alike are priced once."""
    known: dict[Layer, int] = {}
    for index, layer in enumerate(problem.model.layers):
        if layer not in known:
            known[layer] = price(index=index)
    return [known[layer] for layer in problem.model.layers]


def _times(problem: Problem, layers: list[list[int]], heads: list[int], rows: int) -> Times:
    row_bytes = rows * hidden_row_bytes(problem.model)
    embeds = [embed_ns(problem.model, device) for device in problem.devices]
    return Times(
        layers=np.stack([prefix_sums(row) for row in layers]),
        embed=np.array(embeds, np.int64),
        head=np.array(heads, np.int64),
        hop=_hops(problem, row_bytes),
        token=_hops(problem, STEP_BYTES),
    )


def _hops(problem: Problem, size_bytes: int) -> Table:
    names = problem.seats
    return np.array(
        [[hop_ns(problem.topology, a, b, size_bytes) for b in names] for a in names], np.int64
    )
