"""Same bits: threads, chunks, batches, cuts, pages and tenants before leave no trace."""

import hashlib
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plancc_checkpoints import TinyLlama
from plancc_cpu_ranks import CpuRanks, tiny_model

SPECS = {
    "float32": TinyLlama(num_layers=3),
    "bfloat16": TinyLlama(num_layers=3, dtype="bfloat16", tied=True),
    "float16": TinyLlama(num_layers=3, dtype="float16", attention_bias=True),
    "window": TinyLlama(num_layers=3, sliding_window=30, dtype="bfloat16"),
    "yarn": TinyLlama(
        num_layers=3,
        rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    ),
}
CONTEXT = 224
PROMPT = [(7 * i * i + 3 * i) % 320 for i in range(150)]
FORCED = [11, 45, 300, 7, 7, 90]
Bits = tuple[str, ...]


def _open(name: str, **options: object) -> CpuRanks:
    shape, tensors = tiny_model(SPECS[name])
    return CpuRanks(shape, tensors, context=CONTEXT, **options)  # type: ignore[arg-type]


def _sha(logits: torch.Tensor) -> str:
    return hashlib.sha256(logits.contiguous().numpy().tobytes()).hexdigest()


def _answer(ranks: CpuRanks, *, chunk: int = 512, slot: int = 0) -> Bits:
    """Digests of the prompt's logits, of each forced step's logits, and of the layers' KV."""
    logits = [_sha(ranks.prompt(slot, PROMPT, chunk=chunk))]
    logits += [_sha(ranks.decode({slot: token})[0]) for token in FORCED]
    return (*logits, *ranks.kv_digests(slot))


@pytest.fixture(scope="module", params=SPECS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def expected(name: str) -> Bits:
    return _answer(_open(name))


@pytest.mark.parametrize("threads", [2, 3])
def test_threads(name: str, expected: Bits, threads: int) -> None:
    assert _answer(_open(name, threads=threads)) == expected


def test_threads_stay_in_step_over_many_short_segments() -> None:
    """Segments of different lists of stages, one after another, as fast as they can be asked."""
    one, three = _open("float32"), _open("float32", threads=3)
    for ranks in (one, three):
        ranks.prompt(0, [1, 2])
    for token in range(60):
        alone, together = (
            (ranks.extend(0, [token, token + 1], chunk=1), ranks.decode({0: token})[0])
            for ranks in (one, three)
        )
        assert all(map(torch.equal, alone, together))


@pytest.mark.parametrize("chunk", [1, 7, 16, 64, 65, 149])
def test_chunks_of_the_prompt(name: str, expected: Bits, chunk: int) -> None:
    # The cache of a windowed layer is a ring as long as the window and the plan's chunk together.
    assert _answer(_open(name, chunk=max(chunk, 4)), chunk=chunk) == expected


@pytest.mark.parametrize(
    "cuts", [(0, *inner, 3) for n in (1, 2) for inner in combinations((1, 2), n)]
)
@pytest.mark.parametrize("head_first", [False, True])
def test_cuts_and_either_home_of_the_head(
    name: str, expected: Bits, cuts: tuple[int, ...], head_first: bool
) -> None:
    assert _answer(_open(name, cuts=cuts, head_first=head_first)) == expected


def test_more_slots_and_their_pages(name: str, expected: Bits) -> None:
    ranks = _open(name, slots=3)
    ranks.prompt(1, PROMPT[5:100])
    assert _answer(ranks, slot=2) == expected


def test_the_tenants_before(name: str, expected: Bits) -> None:
    ranks = _open(name)
    ranks.prompt(0, PROMPT[::-1])
    ranks.decode({0: 5})
    assert _answer(ranks) == expected
    assert _answer(ranks) == expected


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    chunks=st.lists(st.integers(1, 80), min_size=1, max_size=6),
    others=st.lists(st.integers(0, 319), min_size=1, max_size=2),
)
def test_requests_beside_and_odd_chunks_together(chunks: list[int], others: list[int]) -> None:
    alone, busy = _open("bfloat16"), _open("bfloat16", slots=3)
    expected = _answer(alone)
    for slot, token in enumerate(others, start=1):
        busy.prompt(slot, [token] * (20 * slot + 1))
    at, logits = 0, torch.empty(0)
    while at < len(PROMPT):
        size = chunks[at % len(chunks)]
        part = PROMPT[at : at + size]
        logits = busy.extend(0, part) if at else busy.prompt(0, part)
        at += len(part)
    found = [_sha(logits)]
    for token in FORCED:
        rows = {slot: token for slot in range(1, len(others) + 1)} | {0: token}
        found.append(_sha(busy.decode(rows)[len(others)]))
    assert (*found, *busy.kv_digests(0)) == expected


def test_a_cache_in_another_format_changes_the_bits_but_not_the_sense() -> None:
    ours, narrow = _open("float32"), _open("float32", kv_dtype="bfloat16")
    exact, rounded = ours.prompt(0, PROMPT), narrow.prompt(0, PROMPT)
    assert not torch.equal(exact, rounded)
    assert float((exact - rounded).abs().max() / exact.abs().max()) < 0.03
