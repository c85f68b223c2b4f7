"""TP groups on a card, all ranks on it: the bits of one rank, whatever the shares."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("no CUDA device here", allow_module_level=True)

from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_cpu_ranks import CpuRanks, tiny_model
from plancc_gpu_cases import DTYPES, NEAR, Maker, error
from plancc_gpu_groups import Cut, GpuGroup, run_decode, run_prompt
from plancc_gpu_ranks import GpuRanks
from plancc_group_plans import group_plan, in_one_process, stage
from plancc_local_run import LocalRun
from plancc_plans import manifest_of

from plancc.kernels.gpu.card import card_at
from plancc.kernels.gpu.tilings import tiling

pytestmark = pytest.mark.gpu
CUTS = {
    "8b, equal": Cut(4096, 14336, 16, (8,)),
    "8b, unequal": Cut(4096, 14336, 16, (5, 10)),
    "8b, eight": Cut(4096, 14336, 16, tuple(range(2, 16, 2))),
    "135m, four": Cut(576, 1536, 16, (1, 4, 15)),
    "uneven tiles": Cut(520, 2 * 705, 11, (4,), group=2),
    "7b, uneven tiles": Cut(4096, 11008, 16, (7,)),
}
SPEC = TinyLlama(num_layers=3, hidden_size=256, intermediate_size=704, num_heads=8,
                 num_kv_heads=2)  # fmt: skip
SPECS = {"plain": SPEC, "biases": replace(SPEC, attention_bias=True)}
CUDA = {"cpu": "plancc_gpu_plans:OneCard"}
"""Plans of these tests are of CPU devices; all of them are the first card's."""
_SUM = 3e-5  # tensor cores cut bits off where they add


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CUTS)
def test_roots_of_any_shares_add_to_the_bits_of_one_device(name: str, dtype: str) -> None:
    cut, make = CUTS[name], Maker(DTYPES[dtype], "cuda")
    for rows in (1, 17, 33, 64):
        how = tiling("down", make.dtype.itemsize, rows, cut.bounds[1], card_at(0))
        found = run_decode(make, rows, cut, how)
        assert found.unequal() == [], rows
        assert error(found.group["residual"], found.residual) < NEAR[dtype]
        for part, ref in zip(found.parts, found.ref_parts, strict=True):
            assert error(part, ref) < _SUM


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CUTS)
def test_prompt_rows_have_the_bits_of_one_device_too(name: str, dtype: str) -> None:
    for rows in (5, 300):
        found = run_prompt(Maker(DTYPES[dtype], "cuda"), rows, CUTS[name])
        assert found.unequal() == [], rows
        assert error(found.group["residual"], found.residual) < NEAR[dtype]
        for part, ref in zip(found.parts, found.ref_parts, strict=True):
            assert error(part, ref) < _SUM


def script(ranks: CpuRanks, chunk: int = 200) -> list[torch.Tensor]:
    """Logits of two prompts and of steps with both, one and the other."""
    found = [ranks.prompt(0, [7 * i % 300 for i in range(310)], chunk=chunk),
             ranks.prompt(1, range(5), chunk=chunk)]  # fmt: skip
    for step in ({0: 3, 1: 4}, {1: 9}, {1: 2, 0: 8}):
        found += list(ranks.decode(step).clone())
    return [logits.clone() for logits in found]


@pytest.mark.parametrize(("dtype", "name"), [*((dtype, "plain") for dtype in DTYPES),
                                             ("bfloat16", "biases")])  # fmt: skip
def test_a_group_driven_by_hand_has_the_bits_of_one_rank(dtype: str, name: str) -> None:
    """Biases of q, k, v and the output projection are added once, where the mixer is."""
    shape, tensors = tiny_model(replace(SPECS[name], dtype=dtype))
    sizes: dict[str, Any] = {"context": 400, "chunk": 200, "slots": 2, "device": "cuda"}
    one = GpuRanks(shape, tensors, **sizes)
    expected, digests = script(one), (one.kv_digests(0), one.kv_digests(1))
    for mixer, borders, graphs, chunk in (
        ("replicated", (8,), True, 200), ("replicated", (3, 8), False, 37),
        ("replicated", (1, 4, 15), True, 64),
        ("owned", (8,), True, 200), ("owned", (1, 9), False, 50),
    ):  # fmt: skip
        group = GpuGroup(shape, tensors, borders, mixer=mixer, graphs=graphs, **sizes)
        for _ in range(3):  # the later times replay graphs, of either slot
            found = script(group, chunk)
            assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True)), (
                mixer,
                borders,
            )
            assert (group.kv_digests(0), group.kv_digests(1)) == digests
            assert all(torch.equal(group.hidden[0], rows) for rows in group.hidden[1:])


@pytest.mark.parametrize(("dtype", "name"), [*((dtype, "plain") for dtype in DTYPES),
                                             ("bfloat16", "biases")])  # fmt: skip
def test_plans_with_owners_give_the_answer_of_one_seat(
    dtype: str, name: str, tmp_path: Path
) -> None:
    spec = replace(SPECS[name], dtype=dtype)
    folder = write_checkpoint(tmp_path / "toy", spec)
    manifest, prompt = manifest_of(folder, spec), [7 * i % 300 for i in range(90)]
    sizes: dict[str, Any] = {"context": 160, "prefill_chunk": 32}
    plan = group_plan(manifest, [stage((0, 3), "cpu0")], **sizes)
    alone = LocalRun(in_one_process(plan), folder, CUDA).answer(prompt, 24)
    shapes = {
        "owned": [stage((0, 3), "cpu0", "cpu1", "cpu2", tiles=(4, 9), mixer="owned")],
        "owned, replicated": [
            stage((0, 2), "cpu0", "cpu1", tiles=(5,), mixer="owned"),
            stage((2, 3), "cpu2", "cpu3", tiles=(7,), mixer="replicated"),
        ],
    }  # fmt: skip
    for name, stages in shapes.items():
        for transport in ("local", "staged"):
            plan = in_one_process(group_plan(manifest, stages, **sizes), transport)
            run = LocalRun(plan, folder, CUDA)
            for _ in range(2):
                assert run.answer(prompt, 24) == alone, (name, transport)
