"""Cards that are not here: every launch of a rank compiles for them and fits, with Triton's own
compiler. That it is right and fast there is not asked.

`PLANCC_SWEEP=1 pytest tests/kernels/test_gpu_cards.py` asks all cards, formats, rows; 20 minutes.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"  # here, not in those that compile

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from plancc_card_launches import CACHE_KERNELS, CARDS, EXTREMES

from plancc.ir.waiting import PROGRAMS, waiting_bytes
from plancc.kernels.gpu.card import HOPPER
from plancc.kernels.gpu.prompt_tilings import (
    ALL_HELD,
    PromptTiling,
    down_tiling,
    gate_up_tiling,
    plain_tiling,
    waiting_size,
)
from plancc.kernels.gpu.tilings import ROLES, Tiling, tiling

HAS_SWEEP = pytest.mark.skipif("PLANCC_SWEEP" not in os.environ, reason="PLANCC_SWEEP: any number")
SCRIPT = Path(__file__).resolve().parents[1] / "support" / "plancc_card_launches.py"
SHORT = [("sm_86", "llama-3.1-8b", "bfloat16", step) for step in ("decode:64", "prompt:64")]
STEPS = ("decode:1", "decode:16", "decode:17", "decode:32", "decode:64", "prompt:64", "prompt:512",
         "prompt:4096")  # fmt: skip
MODELS = ("llama-3.1-8b", "smollm2-135m", *EXTREMES)
SWEEP = [(*asked, *STEPS) for asked in product(CARDS, MODELS, ("bfloat16", "float16"))]
SWEEP += [("sm_86", model, "float32", *STEPS) for model in MODELS if model != "wide"]
MIXED = (("llama-3.1-8b", "bfloat16:float32"), ("llama-3.1-8b", "bfloat16:float16"),
         ("llama-3.1-8b", "float32:bfloat16"), ("wide", "bfloat16:float32"))  # fmt: skip
"""A model, its format and its cache's."""
CACHES = [(card, *mixed, "decode:16", "prompt:512") for card, mixed in product(CARDS, MIXED)]
KERNELS = {"_enter", "_linear", "_attention", "merge", "_join", "_gate_up", "_pick", "_partials",
           "_add_roots", "_norm", "_append", "_tree", "_take_control"}  # fmt: skip
RING_KERNELS = {"_ring_linear", "_ring_join", "_ring_partials"}
RINGS = {"qkv": (31, 7, 7, 6), "o": (8, 7, 7, 6), "gate_up": (10, 4, 4, 4), "down": (16, 10, 9, 6)}
LONG_RINGS = RINGS | {"qkv": (14, 10, 9, 6), "gate_up": (10, 6, 5, 4)}
"""Early starts, and slots for 16, 32 and 64 rows; long: where K is over 4,096."""
MOST_REGISTERS = 65536  # of a program, on all of these cards
SPILLED_BYTES = 512  # of a thread; float32 attention comes near, what is fast does not


def launches(asked: Sequence[str]) -> list[dict[str, Any]]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run([sys.executable, "-P", SCRIPT, *asked], capture_output=True, text=True,
                          env=environment | {"PYTHONPATH": paths})  # fmt: skip
    assert done.returncode == 0, f"{asked}\n{done.stderr[-3000:]}"
    return [json.loads(line) for line in done.stdout.splitlines()]


def problems(card: str, model: str, launch: Mapping[str, Any]) -> list[str]:
    """What of a launch the card has no room for."""
    found, how = CARDS[card], launch["how"]
    wrong = []
    if launch["shared_bytes"] > found.shared_bytes:
        wrong.append(f"{launch['shared_bytes']} bytes of shared memory")
    if launch["registers"] * how["num_warps"] * 32 > MOST_REGISTERS:
        wrong.append(f"{launch['registers']} registers")
    if launch["spilled_bytes"] > SPILLED_BYTES and model not in EXTREMES:
        wrong.append(f"{launch['spilled_bytes']} bytes of a thread spilled")
    if launch["waits"] and not found.can_overlap:
        wrong.append("waits for the kernel before")
    if launch["copies"] and not found.can_copy:
        wrong.append("wants an engine to copy")
    return [f"{card} {launch['kernel']} {how}: {each}" for each in wrong]


def check(asked: Sequence[Sequence[str]], kernels: set[str] = KERNELS) -> None:
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(launches, asked))
    wrong = []
    for (card, model, *_), of_one in zip(asked, found, strict=True):
        wrong += [each for launch in of_one for each in problems(card, model, launch)]
        assert any(launch["waits"] for launch in of_one) == CARDS[card].can_overlap
    assert wrong == []
    assert {launch["kernel"] for of_one in found for launch in of_one} == kernels


def test_what_a_rank_launches_fits_a_card_of_99_kib() -> None:
    check(SHORT)


def test_a_wider_cache_fits_a_card_of_99_kib() -> None:
    """Blocks as large as those of a cache in bfloat16 wanted 160 KiB."""
    check([("sm_86", "llama-3.1-8b", "bfloat16:float32", "decode:16", "prompt:512")], CACHE_KERNELS)


@HAS_SWEEP
def test_a_cache_of_another_format_fits_every_card() -> None:
    check(CACHES, CACHE_KERNELS)


@HAS_SWEEP
def test_what_any_rank_launches_fits_every_card() -> None:
    check(SWEEP, KERNELS | RING_KERNELS)


def test_rows_wider_than_a_warp_adds_the_squares_of_have_no_ring() -> None:
    found = [tiling("qkv", 2, 1, span, HOPPER).slots for span in (32768, 32896)]
    assert found == [10, 0]


def test_rings_fit_a_hopper_card() -> None:
    asked = ("sm_90", "llama-3.1-8b", "bfloat16", "decode:1")
    names = {"_enter", "_linear", "_attention", "merge", "_pick", "_add_roots",
             "_take_control"}  # fmt: skip
    check([asked], names | RING_KERNELS)


def test_on_hopper_decode_is_cut_as_it_was_measured() -> None:
    base = Tiling(64, 128, wide=True, warps=4, stages=0)
    measured = {
        "qkv": replace(base, stages=5, early=8), "o": replace(base, stages=7, early=8, pieces=2),
        "gate_up": replace(base, stages=4, early=8), "head": replace(base, stages=4),
        "down": replace(base, stages=6, early=24, pieces=2),
    }  # fmt: skip
    for role, rows, span in product(ROLES, (1, 16, 17, 33, 64), (96, 576, 896, 4096, 16384)):
        most = 7 if rows <= 16 else 5 if rows <= 32 else 4
        expected = replace(measured[role], stages=min(measured[role].stages, most),
                           block_k={96: 32, 576: 64}.get(span, 128))  # fmt: skip
        if role in RINGS and span % 128 == 0:
            early, *slots = (RINGS if span <= 4096 else LONG_RINGS)[role]
            expected = replace(expected, early=early, slots=slots[{7: 0, 5: 1, 4: 2}[most]])
        assert tiling(role, 2, rows, span, HOPPER) == expected
        exact = Tiling(32, 32, wide=False, warps=4, stages=3, pieces=expected.pieces)
        assert tiling(role, 4, rows, span, HOPPER) == exact


def test_on_hopper_prompts_are_cut_as_they_were_measured() -> None:
    exact = PromptTiling(32, 32, 32, 4, 2, held=ALL_HELD, copies=False, programs=16)
    large, square = PromptTiling(128, 256, 64, 8, 4), PromptTiling(128, 128, 64, 8, 5)
    flat, low = PromptTiling(64, 128, 64, 4, 6), PromptTiling(64, 64, 128, 4, 5)
    fastest = {
        plain_tiling: {  # of llama-8b: q, k, v; output
            6144: {64: replace(low, copies=False), 128: flat, 192: square, 256: square,
                   640: large, 768: square, 1000: square, 1536: square, 2048: large, 4096: large},
            4096: {64: replace(low, copies=False), 128: replace(low, copies=False), 192: flat,
                   256: flat, 384: square, 512: square, 1000: large, 4096: large},
        },
        down_tiling: {4096: {
            64: replace(low, held=2), 128: replace(low, held=2), 192: replace(flat, held=2),
            256: replace(flat, held=2), 512: PromptTiling(128, 128, 128, 8, 3, held=2),
            640: replace(flat, held=2), 4096: PromptTiling(128, 128, 128, 8, 3, held=2),
        }},
        gate_up_tiling: {14336: {
            64: replace(flat, stages=5), 128: replace(square, stages=4),
            256: replace(square, stages=4), 4096: replace(square, stages=4),
        }},
    }  # fmt: skip
    for of, by_columns in fastest.items():
        for columns, by_rows in by_columns.items():
            found = {rows: of(2, HOPPER, rows, columns) for rows in by_rows}
            assert found == by_rows
            assert of(4, HOPPER, 100, columns) == exact


@pytest.mark.parametrize("card", CARDS)
def test_rows_change_nothing_but_stages(card: str) -> None:
    for role, itemsize, span in product(ROLES, (2, 4), (32, 96, 576, 896, 4096, 16384)):
        cuts = [tiling(role, itemsize, rows, span, CARDS[card]) for rows in (1, 16, 32, 33, 64)]
        assert len({replace(cut, stages=0, slots=0) for cut in cuts}) == 1
        assert all(cut.stages >= 2 for cut in cuts)


@pytest.mark.parametrize("card", CARDS)
def test_no_card_wants_more_memory_for_waiting_sums_than_a_plan_counts(card: str) -> None:
    """For as many programs as have a block, or as an H200 runs."""
    for itemsize, rows, columns in product((2, 4), (1, 65, 130, 256, 640, 4096), (576, 4096, 8192)):
        tiling = down_tiling(itemsize, CARDS[card], rows, columns)
        blocks = -(-rows // tiling.block_m) * -(-columns // tiling.block_n)
        for tiles in range(1, 65):
            counted = waiting_bytes(tiles, rows, columns, itemsize)
            assert 4 * waiting_size(tiling, tiles, min(blocks, PROGRAMS)) <= counted
