"""What a share of an MLP costs on one CUDA device, beside the whole, in Llama-3.1-8B's shape.

Prints one JSON line: us of down with its join and of the partial rows of shares, at 1 and 32 rows;
of gate and up of a share; of the sum of all roots; of the same for prompt rows. Everything in a
graph, over so many layers that no weights stay in the cache. Asserts no time.

    python tests/bench/tp_gpu.py
"""

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))

import torch
from plancc_gpu_cases import Maker, waiting_room
from plancc_gpu_groups import Cut

from plancc.kernels.gpu.card import card_at
from plancc.kernels.gpu.join import join
from plancc.kernels.gpu.mlp import gate_up
from plancc.kernels.gpu.partials import partials
from plancc.kernels.gpu.prompt_down import prompt_down, prompt_partials
from plancc.kernels.gpu.roots import add_roots
from plancc.kernels.gpu.tilings import tiling

HIDDEN, INNER, TILES, LAYERS, RUNS = 4096, 14336, 16, 8, 7
Tensor = torch.Tensor
CUTS = {"2": (8,), "4": (4, 8, 12), "3": (5, 10), "9 + 7": (9,), "12 + 4": (12,)}


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(shape, device="cuda", dtype=dtype)


def median_us(launch: Callable[[int], None]) -> float:
    """Of one launch; `launch` gets the layer."""
    for layer in range(LAYERS):
        launch(layer)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for layer in range(LAYERS):
            launch(layer)
    found = []
    for _ in range(RUNS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) * 1e3 / LAYERS)
    return round(statistics.median(found), 2)


class Bench:
    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.residual, self.gained = normal(rows, HIDDEN), normal(rows, HIDDEN)
        self.squares = normal(rows, HIDDEN // 32, dtype=torch.float32).abs()
        self.gain, self.x = normal(HIDDEN), normal(rows, INNER)
        self.halves = normal(2, 64, HIDDEN, dtype=torch.float32)
        self.counters = torch.zeros(HIDDEN // 32, dtype=torch.int32, device="cuda")
        self.whole = [normal(HIDDEN, INNER) for _ in range(LAYERS)]

    def decode(self, cut: Cut) -> dict[str, Any]:
        how = tiling("down", 2, self.rows, cut.bounds[1], card_at(0))
        room = {"tiling": how, "counters": self.counters, "bounds": cut.bounds, "group": 1}
        found: dict[str, Any] = {"one device": median_us(lambda layer: join(
            self.x, self.whole[layer], None, self.residual, self.gained, self.squares, self.gain,
            partials=self.halves, **room))}  # fmt: skip
        outs = self.outs(cut)
        for share, roots, out in zip(cut.shares, cut.roots, outs, strict=True):
            x, downs = self.cut(cut, share)

            def launch(layer: int, x: Tensor = x, downs: list[Tensor] = downs, out: Tensor = out,
                       roots: Any = roots) -> None:  # fmt: skip
                partials(x, downs[layer], out, roots=roots, halves=self.halves, **room)

            found[f"tiles {share}"] = median_us(launch)
        found["sum"] = median_us(lambda layer: add_roots(
            outs, cut.merges, self.residual, self.gained, self.squares, self.gain))  # fmt: skip
        return found

    def gate_up(self, cut: Cut) -> dict[str, float]:
        found = {}
        how = tiling("gate_up", 2, self.rows, HIDDEN, card_at(0))
        for share in {(0, TILES): None, **dict.fromkeys(cut.shares)}:
            width = cut.bounds[share[1]] - cut.bounds[share[0]]
            matrices = [normal(2 * width, HIDDEN) for _ in range(LAYERS)]
            out = normal(self.rows, width)

            def launch(layer: int, w: list[Tensor] = matrices, out: Tensor = out) -> None:
                gate_up(self.gained, self.squares, w[layer], out, eps=1e-5, tiling=how)

            found[f"tiles {share}"] = median_us(launch)
        return found

    def prompt(self, cut: Cut) -> dict[str, float]:
        waiting = waiting_room(Maker(torch.bfloat16, "cuda"), self.rows, HIDDEN, TILES)
        room: dict[str, Any] = {"bounds": cut.bounds, "group": 1, "waiting": waiting}
        found = {"one device": median_us(lambda layer: prompt_down(
            self.x, self.whole[layer], self.residual, **room))}  # fmt: skip
        outs = self.outs(cut)
        for share, roots, out in zip(cut.shares, cut.roots, outs, strict=True):
            x, downs = self.cut(cut, share)

            def launch(layer: int, x: Tensor = x, downs: list[Tensor] = downs, out: Tensor = out,
                       roots: Any = roots) -> None:  # fmt: skip
                prompt_partials(x, downs[layer], out, roots=roots, **room)

            found[f"tiles {share}"] = median_us(launch)
        found["sum"] = median_us(lambda layer: add_roots(outs, cut.merges, self.residual))
        return found

    def outs(self, cut: Cut) -> list[Tensor]:
        return [normal(self.rows, len(roots), HIDDEN, dtype=torch.float32) for roots in cut.roots]

    def cut(self, cut: Cut, share: tuple[int, int]) -> tuple[Tensor, list[Tensor]]:
        at = cut.columns(share)
        return self.x[:, at].contiguous(), [w[:, at].contiguous() for w in self.whole]


def main() -> None:
    torch.manual_seed(0)
    cuts = {name: Cut(HIDDEN, INNER, TILES, borders) for name, borders in CUTS.items()}
    result: dict[str, Any] = {"bench": "tp_gpu", "device": torch.cuda.get_device_name()}
    for rows in (1, 32):
        bench = Bench(rows)
        result[f"down_us_{rows}"] = {name: bench.decode(cut) for name, cut in cuts.items()}
        result[f"gate_up_us_{rows}"] = {name: bench.gate_up(cuts[name]) for name in ("2", "4")}
    bench = Bench(4096)
    result["prompt_down_us_4096"] = {name: bench.prompt(cuts[name]) for name in ("2", "3", "4")}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
