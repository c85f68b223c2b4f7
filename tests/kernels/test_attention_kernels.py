"""Rotation, the paged cache and attention of both phases against float64."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from plancc_kernel_calls import (
    CODES,
    TORCH,
    empty_layer,
    empty_step,
    from_groups,
    run_stage,
    to_groups,
)

from plancc.kernels import reference
from plancc.kernels.attention_groups import append_groups, attend_groups
from plancc.kernels.attention_rows import append_rows, attend_rows
from plancc.kernels.embed import enter_groups, enter_rows

PAGE = 16
TOLERANCE = {"float32": 2e-6, "bfloat16": 2.0**-7, "float16": 2.0**-10}


@dataclass(frozen=True)
class Case:
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 16
    rotary_dim: int = 16
    window: int = 0
    tokens: int = 300
    capacity: int = 320
    dtype: str = "float32"

    @property
    def width(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim


CASES = {
    "plain": Case(),
    "one head": Case(heads=1, kv_heads=1, head_dim=64, rotary_dim=64),
    "widest head": Case(heads=2, kv_heads=1, head_dim=256, rotary_dim=256, tokens=70),
    "many queries": Case(heads=64, kv_heads=1, head_dim=8, rotary_dim=8, tokens=70),
    "odd sizes": Case(heads=5, kv_heads=5, head_dim=20, rotary_dim=10),
    "no rotation": Case(rotary_dim=0),
    "window": Case(window=50),
    "ring": Case(window=50, capacity=116),
    "ring of a short page": Case(window=37, capacity=101),
    "bfloat16": Case(dtype="bfloat16"),
    "float16": Case(dtype="float16", window=64, capacity=128),
}


class Slot:
    """One slot's cache, its pages scattered, and the steps that fill it."""

    def __init__(self, case: Case, seed: int = 5) -> None:
        self.case = case
        generator = torch.Generator().manual_seed(seed)
        self.qkv = torch.randn(case.tokens, case.width, generator=generator)
        self.qkv = self.qkv.to(TORCH[case.dtype]).float()
        pages = -(-case.capacity // PAGE)
        self.table = np.random.default_rng(seed).permutation(2 * pages)[:pages].astype(np.int64)
        shape = (2 * pages * PAGE, case.kv_heads, case.head_dim)
        self.keys, self.values = (torch.full(shape, 9.0, dtype=TORCH[case.dtype]) for _ in range(2))
        half = max(case.rotary_dim, 2) // 2
        self.inv_freq = np.concatenate([10000.0 ** -(np.arange(half) / half), [1.0]])
        self.layer = empty_layer(
            keys=self.keys, values=self.values, pages=self.table, pages_per_slot=pages,
            capacity=case.capacity, window=case.window, num_heads=case.heads,
            num_kv_heads=case.kv_heads, head_dim=case.head_dim, rotary_dim=case.rotary_dim,
            qkv_width=case.width,
        )  # fmt: skip

    def run(self, first: int, end: int, *, is_prompt: bool, threads: int = 1) -> torch.Tensor:
        """Attended rows of positions [first, end): one prompt step, or a decode step each."""
        if is_prompt:
            blocks = [(at, min(at + 64, end)) for at in range(first, end, 64)]
            return torch.cat([self._step(*block, True, threads) for block in blocks])
        return torch.cat([self._step(at, at + 1, False, threads) for at in range(first, end)])

    def _step(self, first: int, end: int, is_prompt: bool, threads: int) -> torch.Tensor:
        case, rows = self.case, end - first
        qkv, attended = self.qkv[first:end].clone(), torch.zeros(rows, case.heads * case.head_dim)
        if is_prompt:
            qkv, attended = to_groups(qkv), to_groups(attended)
        positions, slots = np.array([first], np.int64), np.zeros(1, np.int64)
        rope = torch.zeros(64 * max(case.rotary_dim, 2))
        step = empty_step(
            num_rows=rows, code=CODES[case.dtype], kv_code=CODES[case.dtype], page_tokens=PAGE,
            positions=positions, slots=slots, qkv=qkv, attended=attended,
            inv_freq=self.inv_freq, num_ropes=1, rope_width=max(case.rotary_dim, 2),
            rope_table=rope,
        )  # fmt: skip
        stages = (
            (enter_groups, append_groups, attend_groups)
            if is_prompt
            else (enter_rows, append_rows, attend_rows)
        )
        for stage in stages:
            run_stage(stage, step, self.layer, threads=threads)
        return from_groups(attended, rows) if is_prompt else attended

    def expected(self) -> Any:
        """[tokens, heads * head_dim] in float64, K and V as the cache rounds them."""
        case, rows = self.case, self.qkv.double().view(self.case.tokens, -1, self.case.head_dim)
        q, k, v = rows.numpy()[:, : case.heads], *np.split(rows.numpy()[:, case.heads :], 2, axis=1)
        positions, half = np.arange(case.tokens, dtype=np.float64), case.rotary_dim // 2
        q, k = (reference.rotate(x, positions, self.inv_freq[:half]) for x in (q, k))
        k = torch.from_numpy(k).float().to(TORCH[case.dtype]).double().numpy()
        out = reference.attention(q, k, v, positions, case.window or None)
        return out.reshape(case.tokens, -1)


@pytest.mark.parametrize("is_prompt", [False, True], ids=["decode", "prompt"])
@pytest.mark.parametrize("name", CASES)
def test_attention_is_near_float64(name: str, is_prompt: bool) -> None:
    slot = Slot(CASES[name])
    found = slot.run(0, slot.case.tokens, is_prompt=is_prompt, threads=3)
    exact = torch.from_numpy(slot.expected())
    assert float((found.double() - exact).abs().max()) < TOLERANCE[slot.case.dtype] * 4


@pytest.mark.parametrize("name", ["plain", "ring", "ring of a short page", "bfloat16"])
def test_chunks_and_threads_leave_the_bits_of_a_prompt_alone(name: str) -> None:
    case = CASES[name]
    whole = Slot(case)
    expected = whole.run(0, case.tokens, is_prompt=True)
    for chunk, threads in ((1, 1), (7, 2), (16, 1), (50, 3)):
        slot = Slot(case)
        parts = [
            slot.run(at, min(at + chunk, case.tokens), is_prompt=True, threads=threads)
            for at in range(0, case.tokens, chunk)
        ]
        assert torch.equal(torch.cat(parts), expected), chunk
        assert torch.equal(slot.keys, whole.keys)


def test_pages_and_what_lies_in_unused_rows_leave_the_bits_alone() -> None:
    case = CASES["plain"]
    one, other = Slot(case), Slot(case)
    other.table[:] = np.arange(len(other.table))[::-1]
    other.keys.fill_(-3.0)
    other.values.fill_(100.0)
    for is_prompt in (True, False):
        found = [slot.run(0, case.tokens, is_prompt=is_prompt) for slot in (one, other)]
        assert torch.equal(*found)


def test_a_decode_batch_has_the_bits_of_its_rows_alone() -> None:
    case = CASES["plain"]
    slots = [Slot(case, seed) for seed in (5, 6, 7)]
    lengths = (300, 17, 257)
    alone = []
    for slot, length in zip(slots, lengths, strict=True):
        slot.run(0, length - 1, is_prompt=True)
        alone.append(slot.run(length - 1, length, is_prompt=False))
    pages = len(slots[0].table)
    keys, values = (torch.cat([getattr(s, name) for s in slots]) for name in ("keys", "values"))
    table = np.stack([s.table + 2 * pages * i for i, s in enumerate(slots)])
    layer = slots[0].layer.copy()
    layer["keys"], layer["values"], layer["pages"] = (
        keys.data_ptr(), values.data_ptr(), table.ctypes.data)  # fmt: skip
    order = (2, 0, 1)
    qkv = torch.stack([slots[i].qkv[lengths[i] - 1] for i in order])
    positions = np.array([lengths[i] - 1 for i in order], np.int64)
    ids, rope = np.array(order, np.int64), torch.zeros(64 * 16)
    attended = torch.zeros(3, case.heads * case.head_dim)
    step = empty_step(
        num_rows=3, page_tokens=PAGE, positions=positions, slots=ids, qkv=qkv, attended=attended,
        inv_freq=slots[0].inv_freq, num_ropes=1, rope_width=16, rope_table=rope,
    )  # fmt: skip
    for stage in (enter_rows, append_rows, attend_rows):
        run_stage(stage, step, layer, threads=2)
    for row, i in enumerate(order):
        assert torch.equal(attended[row], alone[i][0])


def test_angles_are_exact_to_float32_up_to_a_long_context() -> None:
    inv_freq = np.array([1.0, 0.5, 1e-3, 1.0])  # the last is the attention factor
    positions = np.array([0, 1, 2, 8191, 131071], np.int64)
    table = torch.zeros(5, 6)
    step = empty_step(num_rows=5, positions=positions, inv_freq=inv_freq, num_ropes=1,
                      rope_width=6, rope_table=table)  # fmt: skip
    run_stage(enter_rows, step, threads=2)
    angles = positions[:, None] * inv_freq[:3]
    exact = np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    assert np.array_equal(table.numpy(), exact)
