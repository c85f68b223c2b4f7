"""Logits and greedy tokens against transformers on the same weights."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_cpu_ranks import CpuRanks, folder_model
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

TOLERANCE = 2e-4  # of the largest logit, float32
PROMPT = [(11 * i * i + 5 * i) % 320 for i in range(90)]
DEFAULT = TinyLlama(num_layers=3)
TINY = {
    "llama": DEFAULT,
    "tied, biases, wide heads": replace(DEFAULT, tied=True, attention_bias=True, head_dim=24),
    "biases of the MLP": replace(DEFAULT, mlp_bias=True),
    "mistral": replace(DEFAULT, sliding_window=24),
    "linear": replace(DEFAULT, rope_scaling={"rope_type": "linear", "factor": 2.0}),
    "llama3": replace(
        DEFAULT,
        rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                      "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
    ),
    "yarn": replace(
        DEFAULT,
        rope_scaling={"rope_type": "yarn", "factor": 4.0,
                      "original_max_position_embeddings": 128},
    ),
}  # fmt: skip


def _theirs(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


def _their_logits(model: Any, token_ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([token_ids])).logits[0].float()
    return logits


def _difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The largest difference, over the largest logit."""
    return float((ours - theirs).abs().max() / theirs.abs().max())


@pytest.mark.parametrize("name", TINY)
def test_tiny_models_have_their_logits_in_both_phases(name: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny", TINY[name])
    shape, tensors = folder_model(folder)
    ours, theirs = CpuRanks(shape, tensors, context=256), _their_logits(_theirs(folder), PROMPT)
    for length in (1, 17, 64, 90):
        logits = ours.prompt(0, PROMPT[:length], chunk=32)
        assert _difference(logits, theirs[length - 1]) < TOLERANCE, length
    ours.prompt(0, PROMPT[:1])
    for position in range(1, 90):
        logits = ours.decode({0: PROMPT[position]})[0]
        assert _difference(logits, theirs[position]) < TOLERANCE, position


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 0.04), ("float16", 0.005)])
def test_16_bit_models_are_no_farther_from_float32_than_theirs(
    dtype: str, tolerance: float, tmp_path: Path
) -> None:
    """They round more often than we do; both must lie near the same weights in float32."""
    folder = write_checkpoint(tmp_path / "tiny", replace(DEFAULT, dtype=dtype))
    shape, tensors = folder_model(folder)
    exact = _their_logits(_theirs(folder), PROMPT)[-1]
    rounded = _their_logits(_theirs(folder, getattr(torch, dtype)), PROMPT)[-1]
    ours = _difference(CpuRanks(shape, tensors, context=128).prompt(0, PROMPT), exact)
    assert ours < tolerance
    assert ours < 1.5 * _difference(rounded, exact)


SMOL = Path(__file__).parents[2] / ".demo" / "SmolLM2-135M-Instruct-f32"
QUESTIONS = (
    "What is the capital of France?",
    "Write one sentence about rain.",
    "List three prime numbers and say why they are prime.",
    "def fibonacci(n):",
    "Translate 'good morning' into Spanish, German and Italian.",
)
NEW_TOKENS = 64


@pytest.mark.real
@pytest.mark.skipif(not SMOL.is_dir(), reason="`make weights` fetches SmolLM2")
def test_smollm2_says_what_transformers_says() -> None:
    """Their tokens are forced on us, so that one tie could not hide what follows it.

    Every step's logits must agree, and the greedy token unless the two best lie closer to each
    other than the implementations do: such ties are printed, and here there must be none.
    """
    shape, tensors = folder_model(SMOL)
    tokenizer = Tokenizer.from_file(str(SMOL / "tokenizer.json"))
    chats = [f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n" for text in QUESTIONS]
    prompts = [tokenizer.encode(chat, add_special_tokens=False).ids for chat in chats]
    tokens, expected = _their_answers(_theirs(SMOL), prompts)
    slots, ties, worst = range(len(prompts)), [], 0.0
    ours = CpuRanks(shape, tensors, context=256, slots=len(prompts), threads=2)
    for at in range(NEW_TOKENS):
        if at == 0:
            logits = torch.stack([ours.prompt(slot, prompts[slot]) for slot in slots])
        else:
            logits = ours.decode({slot: int(tokens[slot, at - 1]) for slot in slots})
        for slot in slots:
            difference = _difference(logits[slot], expected[at][slot])
            worst = max(worst, difference)
            assert difference < TOLERANCE, (QUESTIONS[slot], at)
            if int(logits[slot].argmax()) != int(tokens[slot, at]):
                gap = logits[slot].topk(2).values.diff().abs().item()
                ties.append(f"{QUESTIONS[slot]!r} token {at}: gap {gap:.2e}")
    print(f"largest difference {worst:.1e} of the largest logit; ties: {ties or 'none'}")
    assert not ties


def _their_answers(model: Any, prompts: list[list[int]]) -> tuple[torch.Tensor, Any]:
    """Greedy tokens [prompts, NEW_TOKENS] and as many logits [prompts, vocab_size]."""
    longest = max(map(len, prompts))
    padded = [[0] * (longest - len(prompt)) + prompt for prompt in prompts]
    mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    with torch.inference_mode():
        made = model.generate(
            torch.tensor(padded), attention_mask=torch.tensor(mask), do_sample=False,
            max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, eos_token_id=None,
            pad_token_id=0, output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
    return made.sequences[:, longest:], made.logits
