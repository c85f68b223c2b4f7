"""Prompt products of a Llama-8B layer on one CUDA device: what prompts run, and other tilings.

For each: is it near float64 (1,000 rows of the real shape, 333 of an odd one), does it have the
bits of the first one of its role, microseconds at 64 to 4,096 rows with inputs rotated, as a graph.
The first of `down` is the definition: a product for each tile, and torch's sums of them. cuBLAS,
which has no tree, beside them. A variant that fails is reported, the others go on. Children compile
everything first, in parallel. Prints a table, then one JSON line. Asserts no time.

    python tests/bench/prefill_gpu.py [--only PART_OF_ROLE/NAME]
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / ".src"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))

import torch
import triton
from plancc_gpu_cases import in_large_blocks, tiles_alone

from plancc.ir.tiles import tile_bounds
from plancc.kernels.gpu.card import card_at
from plancc.kernels.gpu.prompt_down import prompt_down
from plancc.kernels.gpu.prompt_gate_up import prompt_gate_up
from plancc.kernels.gpu.prompt_linear import prompt_linear
from plancc.kernels.gpu.prompt_tilings import (
    ALL_HELD,
    PromptTiling,
    down_tiling,
    gate_up_tiling,
    programs_of,
    waiting_size,
)
from plancc.kernels.gpu.prompt_tree import prompt_tree

ROWS, CHECK_ROWS, SETS, RUNS, TILES = (64, 256, 512, 1000, 4096), 1000, 3, 9, 16
TOLERANCE = 8e-3  # bfloat16, as in plancc_gpu_cases.py
SHAPES = {"down": (4096, 14336), "gate_up": (14336, 4096), "qkv": (6144, 4096), "o": (4096, 4096)}
ODD = {"down": (1000, 16 * 96), "gate_up": (1000, 416), "qkv": (1000, 416), "o": (1000, 416)}
ODD_ROWS = 333
REFERENCES = ("down/by definition", "gate_up/narrow pointers", "qkv/large blocks", "o/large blocks")
DOWN = down_tiling(2, card_at(0), 4096, 4096)
GATE_UP = gate_up_tiling(2, card_at(0), 4096, 14336)
LARGE = PromptTiling(128, 256, 64, 8, 4)
STACK = PromptTiling(128, 64, 128, 8, 3, held=ALL_HELD, copies=False, programs=4)
PAIR = PromptTiling(128, 128, 64, 4, 3, programs=2)


@dataclass(frozen=True)
class Inputs:
    """One product: before is None where nothing is joined; out is written."""

    x: torch.Tensor
    w: torch.Tensor
    before: torch.Tensor | None
    out: torch.Tensor


@dataclass(frozen=True)
class Variant:
    """A way to compute a role's product; where it is not ours, neither bits nor error are asked."""

    role: str
    name: str
    run: Callable[[Inputs], None]
    is_ours: bool = True


_waiting: dict[int, torch.Tensor] = {}


def waiting(tiling: PromptTiling, tiles: int) -> torch.Tensor:
    """Room for every program that the device runs at a time."""
    programs = programs_of(tiling, 1 << 30, torch.device("cuda", torch.cuda.current_device()))
    size = waiting_size(tiling, tiles, programs)
    if size not in _waiting:
        _waiting[size] = torch.full((size,), float("nan"), device="cuda")
    return _waiting[size]


def tree(tiling: PromptTiling, tiles: int) -> Callable[[Inputs], None]:
    def run(i: Inputs) -> None:
        prompt_tree(i.x, i.w, None, i.before, i.out, tiling=tiling, waiting=waiting(tiling, tiles),
                    bounds=tile_bounds(i.x.shape[1], 1, tiles), group=1)  # fmt: skip

    return run


def runs_down(i: Inputs) -> None:
    prompt_down(i.x, i.w, i.out, bounds=tile_bounds(i.x.shape[1], 1, TILES), group=1,
                waiting=waiting(DOWN, TILES))  # fmt: skip


def down_by_definition(i: Inputs) -> None:
    i.out.copy_(i.out.float() + tiles_alone(i.x, i.w, tile_bounds(i.x.shape[1], 1, TILES)))


def variants() -> list[Variant]:
    """The first of a role is the reference of its bits; `runs` is what prompts run."""
    down = {
        "k64": replace(DOWN, block_k=64, stages=6), "pointers": replace(DOWN, copies=False),
        "held 0": replace(DOWN, held=0), "wide": LARGE, "all held": STACK,
    }  # fmt: skip
    plain = {"wide": LARGE, "tall": PromptTiling(256, 128, 64, 8, 4), "pair": PAIR,
             "wide pointers": replace(LARGE, copies=False)}  # fmt: skip
    gates: dict[str, PromptTiling | None] = {
        "narrow pointers": PromptTiling(128, 64, 64, 4, 3, copies=False, programs=2),
        "runs": None, "low": replace(GATE_UP, height=4),
        "pointers": replace(GATE_UP, copies=False),
    }  # fmt: skip
    found = [Variant("down", "by definition", down_by_definition),
             Variant("down", "runs", runs_down)]  # fmt: skip
    found += [Variant("down", name, tree(tiling, TILES)) for name, tiling in down.items()]
    found.append(Variant("down", "wide, no tree", tree(LARGE, 1), is_ours=False))
    found.append(Variant("down", "cuBLAS", cublas, is_ours=False))
    for name, tiling in gates.items():
        found.append(Variant("gate_up", name, gate_up(tiling)))
    found.append(Variant("gate_up", "cuBLAS, no SiLU", cublas_gate_up, is_ours=False))
    for role in ("qkv", "o"):
        found.append(Variant(role, "large blocks", linear_in_large_blocks))
        found.append(Variant(role, "runs", linear))
        found += [Variant(role, name, tree(tiling, 1)) for name, tiling in plain.items()]
        found.append(Variant(role, "cuBLAS", cublas, is_ours=False))
    return found


def linear(i: Inputs) -> None:
    prompt_linear(i.x, i.w, None, i.before, i.out)


def linear_in_large_blocks(i: Inputs) -> None:
    in_large_blocks(i.x, i.w, None, i.before, i.out)


def gate_up(tiling: PromptTiling | None) -> Callable[[Inputs], None]:
    return lambda i: prompt_gate_up(i.x, i.w, i.out, tiling=tiling)


def cublas(i: Inputs) -> None:
    if i.before is None:
        torch.mm(i.x, i.w.T, out=i.out)
    else:
        torch.addmm(i.before, i.x, i.w.T, out=i.out)


_wide_out: dict[tuple[int, int], torch.Tensor] = {}


def cublas_gate_up(i: Inputs) -> None:
    key = (len(i.x), len(i.w))
    if key not in _wide_out:
        _wide_out[key] = torch.empty(key, dtype=i.x.dtype, device="cuda")
    torch.mm(i.x, i.w.T, out=_wide_out[key])


def make(role: str, rows: int, seed: int, shape: tuple[int, int]) -> Inputs:
    """Random, never zero; `out` holds what is joined, as the residual does in a model."""
    torch.manual_seed(seed)
    n, k = shape
    x = torch.randn(rows, k, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(n * (2 if role == "gate_up" else 1), k, device="cuda", dtype=torch.bfloat16)
    w *= k**-0.5
    out = torch.randn(rows, n, device="cuda", dtype=torch.bfloat16)
    return Inputs(x, w, out if role in ("down", "o") else None, out)


def float64(role: str, i: Inputs) -> torch.Tensor:
    wide = i.x.double() @ i.w.double().T
    if role == "gate_up":
        gate, up = wide.chunk(2, 1)
        return torch.nn.functional.silu(gate) * up
    return wide if i.before is None else wide + i.before.double()


class Roles:
    """Inputs of one role, what they give in float64 and by the reference of bits."""

    def __init__(self, role: str, first: Variant) -> None:
        self.role, shape = role, SHAPES[role]
        self.sets = [make(role, ROWS[-1], seed, shape) for seed in range(SETS)]
        self.cases = {"real": make(role, CHECK_ROWS, 9, shape),
                      "odd": make(role, ODD_ROWS, 8, ODD[role])}  # fmt: skip
        self.refs = {name: float64(role, case) for name, case in self.cases.items()}
        self.bits = {name: self.result(first, case) for name, case in self.cases.items()}
        self.all_rows = self.result(first, self.sets[0])

    def result(self, variant: Variant, case: Inputs) -> torch.Tensor:
        out = case.out.clone()
        variant.run(replace(case, out=out, before=None if case.before is None else out))
        return out

    def judge(self, variant: Variant) -> dict[str, Any]:
        """Errors against float64, and how many numbers are not those of the reference."""
        found: dict[str, Any] = {}
        for name, case in self.cases.items():
            out = self.result(variant, case)
            error = (out.double() - self.refs[name]).norm() / self.refs[name].norm()
            found[f"error_{name}"] = float(f"{float(error):.2e}")
            found[f"differ_{name}"] = int((out != self.bits[name]).sum())
        twice = [self.result(variant, self.sets[0]) for _ in range(2)]
        found["differ_all"] = int((twice[0] != self.all_rows).sum())
        found["differ_again"] = int((twice[0] != twice[1]).sum())
        errors = (found["error_real"], found["error_odd"])
        found["is_near"] = all(error < TOLERANCE for error in errors)
        found["has_bits"] = not any(found[key] for key in found if key.startswith("differ"))
        return found

    def latency_us(self, variant: Variant, rows: int) -> float:
        """Median over runs of one launch of each set; out is joined again and again, so it is
        kept apart from the inputs that are checked."""
        cases = [replace(case, x=case.x[:rows], out=case.out[:rows].clone()) for case in self.sets]
        cases = [case if case.before is None else replace(case, before=case.out) for case in cases]
        for case in cases:
            variant.run(case)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for case in cases:
                variant.run(case)
        found = []
        for _ in range(RUNS + 2):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            found.append(start.elapsed_time(end) * 1e3 / len(cases))
        return statistics.median(found[2:])


def measure(roles: Roles, variant: Variant) -> dict[str, Any]:
    found: dict[str, Any] = {"role": variant.role, "name": variant.name}
    try:
        if variant.is_ours:
            found |= roles.judge(variant)
        n, k = SHAPES[variant.role]
        n *= 2 if variant.role == "gate_up" else 1
        for rows in ROWS:
            us = roles.latency_us(variant, rows)
            found[f"us_{rows}"] = round(us, 1)
            found[f"tflops_{rows}"] = round(2 * rows * n * k / us / 1e6)
    except Exception as error:  # one broken variant must not cost the others' figures
        found["failed"] = f"{type(error).__name__}: {error}"[:300]
    return found


def line(found: dict[str, Any]) -> str:
    if "failed" in found:
        return f"{found['role']:8}{found['name']:24}FAILED {found['failed'][:90]}"
    times = " ".join(f"{found[f'us_{r}']:8.1f} {found[f'tflops_{r}']:4}" for r in ROWS)
    if "is_near" not in found:
        return f"{found['role']:8}{found['name']:24}{times}"
    differ = "/".join(str(found[f"differ_{key}"]) for key in ("real", "odd", "all", "again"))
    near = "near" if found["is_near"] else f"FAR {found['error_real']} {found['error_odd']}"
    return f"{found['role']:8}{found['name']:24}{times}  {near}, " + (
        "same bits" if found["has_bits"] else f"differ {differ}"
    )


def label(variant: Variant) -> str:
    return f"{variant.role}/{variant.name}"


def warm(labels: list[str]) -> None:
    """Compile these into Triton's cache and run each on a few rows; stop at the first that fails,
    since a broken context would fail the rest."""
    for variant in [each for each in variants() if label(each) in labels]:
        try:
            for shape in (SHAPES[variant.role], ODD[variant.role]):
                variant.run(make(variant.role, 130, 0, shape))
                torch.cuda.synchronize()
        except Exception as error:
            print(f"{label(variant)}\t{type(error).__name__}: {error}".splitlines()[0], flush=True)
            return
        print(f"{label(variant)}\tok", flush=True)


def warm_children(labels: list[str], timeout_s: float) -> dict[str, str]:
    """What children say of labels: ok, an error, or nothing of those behind a failed one."""
    parts = max(1, min(14, (os.cpu_count() or 2) - 1, len(labels)))
    shares = [labels[part::parts] for part in range(parts)]
    children = [
        subprocess.Popen([sys.executable, "-P", __file__, "--warm", *share], text=True,
                         stdout=subprocess.PIPE)
        for share in shares
    ]  # fmt: skip
    found, end = {}, time.monotonic() + timeout_s
    for share, child in zip(shares, children, strict=True):
        try:
            said, _ = child.communicate(timeout=max(1.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            said, _ = child.communicate()
        verdicts = dict(row.split("\t", 1) for row in said.splitlines() if "\t" in row)
        silent = [each for each in share if each not in verdicts]
        if silent and all(verdict == "ok" for verdict in verdicts.values()):
            verdicts[silent[0]] = "no answer: it hangs, or ended its process"
        found |= verdicts
    return found


def compile_all(only: str) -> dict[str, str]:
    """A verdict for each label; what failed in a child is not run here."""
    labels = [label(each) for each in variants() if each.is_ours and is_wanted(each, only)]
    found: dict[str, str] = {}
    for timeout_s in (90, 45):
        pending = [each for each in labels if each not in found]
        found |= warm_children(pending, timeout_s) if pending else {}
    return found


def is_wanted(variant: Variant, only: str) -> bool:
    return only in label(variant) or label(variant) in REFERENCES


def main() -> None:
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    started = time.monotonic()
    verdicts = compile_all(only)
    result: dict[str, Any] = {
        "bench": "prefill_gpu", "shape": "Llama-3.1-8B layer, bfloat16, 16 tiles",
        "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "triton": triton.__version__, "compile_s": round(time.monotonic() - started, 1),
        "rows": [],
    }  # fmt: skip
    print(f"{'':32}" + " ".join(f"{f'us {r}':>8} TF/s" for r in ROWS), flush=True)
    for role in SHAPES:
        ways = [each for each in variants() if each.role == role]
        try:
            roles = Roles(role, ways[0])
        except Exception as error:
            print(f"{role}: {type(error).__name__}: {error}"[:300], flush=True)
            continue
        for variant in [each for each in ways if is_wanted(each, only)]:
            verdict = verdicts.get(label(variant), "no verdict") if variant.is_ours else "ok"
            result["rows"].append(
                measure(roles, variant)
                if verdict == "ok"
                else {"role": role, "name": variant.name, "failed": verdict[:300]}
            )
            print(line(result["rows"][-1]), flush=True)
        del roles
    result["wall_s"] = round(time.monotonic() - started, 1)
    print(json.dumps(result))


if __name__ == "__main__":
    if "--warm" in sys.argv:
        warm(sys.argv[sys.argv.index("--warm") + 1 :])
    else:
        main()
