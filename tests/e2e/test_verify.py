"""planrun --verify: two plans of one model, bit for bit or by distance."""

import dataclasses
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_group_plans import group_plan, stage
from plancc_plans import manifest_of, write_plan
from plancc_run import run_planrun

from plancc.executor.request import Sampled
from plancc.executor.verify import Seen, distance, first_difference, made_up_prompts

SPEC = TinyLlama(num_layers=3, num_heads=5, num_kv_heads=1, head_dim=16, vocab_size=300)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("verify")
    manifest = manifest_of(write_checkpoint(home / "toy", SPEC), SPEC)
    other = manifest_of(write_checkpoint(home / "other", TinyLlama(num_layers=3, seed=1)),
                        TinyLlama(num_layers=3, seed=1))  # fmt: skip
    half = dataclasses.replace(SPEC, dtype="bfloat16")
    rounded = manifest_of(write_checkpoint(home / "rounded", half), half)
    one = [stage((0, 3), "cpu0")]
    group = [stage((0, 3), "cpu0", "cpu1", tiles=(5,), mixer="replicated")]
    for name, plan in {
        "one": group_plan(manifest, one),
        "group": group_plan(manifest, group, workers=[["cpu0", "cpu1"]], prefill_chunk=9),
        "short": group_plan(manifest, one, kv_dtype="bfloat16"),
        "narrow": group_plan(manifest, one, context=40),
        "rounded": group_plan(rounded, one, context=48),
        "other": group_plan(other, one),
    }.items():
        write_plan(plan, home / f"{name}.json")
    return home


def test_plans_of_one_format_are_equal_by_hash(home: Path) -> None:
    ran = run_planrun(home / "one.json", "--verify", home / "group.json", "--weights",
                      home / "toy", "--max-tokens", 24)  # fmt: skip
    assert (ran.code, ran.out) == (0, (
        "equal: logits and tokens of 48 steps of 2 prompt(s), and the KV of 3 layers, by sha256\n"
    )), ran.err  # fmt: skip


def test_plans_of_two_cache_formats_are_compared_by_distance(home: Path) -> None:
    ran = run_planrun(home / "one.json", "--verify", home / "short.json", "--weights",
                      home / "toy", "--max-tokens", 24, "--json", "--prompt", "a bit")  # fmt: skip
    assert ran.code == 0, ran.err
    data = json.loads(ran.out)
    assert (data["exact"], data["prompts"], data["tokens"]) == (False, 1, 24)
    assert 0 < data["kl_divergence"] < 0.01
    assert data["top1_agreement"] > 0.8
    assert data["other_perplexity"] == pytest.approx(data["perplexity"], rel=0.05)


def test_answers_end_where_the_smaller_context_does(home: Path) -> None:
    """Of the 128 tokens that are asked for where nothing is said."""
    words = (home / "one.json", "--verify", home / "narrow.json", "--weights", home / "toy")
    ran = run_planrun(*words)
    assert (ran.code, ran.out.split(",")[0]) == (
        0, "equal: logits and tokens of 53 steps of 2 prompt(s)",
    ), ran.err  # fmt: skip
    ran = run_planrun(*words, "--prompt", "x" * 60)
    assert ran.code == 2
    assert "the plan's context is 40" in ran.err


def test_weights_of_two_formats_are_compared_by_distance(home: Path) -> None:
    """Each plan with its own folder, several prompts, contexts of 64 and 48."""
    ran = run_planrun(home / "one.json", "--verify", home / "rounded.json", "--weights",
                      home / "toy", "--alt-weights", home / "rounded", "--prompt", "a bit",
                      "--prompt", "two", "--raw")  # fmt: skip
    assert ran.code == 0, ran.err
    assert "not compared by bits (dtype float32 and bfloat16; KV dtype" in ran.out
    words = (r"perplexity of the first plan's (\d+) tokens ([\d.]+) and ([\d.]+), KL divergence "
             r"([\d.e-]+) nats, same top token in ([\d.]+) %")  # fmt: skip
    found = re.search(words, ran.out)
    assert found, ran.out
    tokens, one, other, divergence, agreement = map(float, found.groups())
    assert 48 < tokens < 2 * 48
    assert other == pytest.approx(one, rel=0.1)
    assert 0 < divergence < 0.05
    assert agreement > 80


def test_plans_of_two_models_are_refused_before_anything_starts(home: Path) -> None:
    ran = run_planrun(home / "one.json", "--verify", home / "other.json", "--weights", home / "toy")
    assert ran.code == 1
    assert "--verify compares plans of one model: vocab_size: 300 and 320" in ran.err
    both = run_planrun(home / "one.json", "--verify", home / "group.json", "--bench")
    assert both.code == 2
    assert "say one of" in both.err


def seen(*rows: tuple[int, str], kv: str = "k") -> Seen:
    sampled = tuple(
        Sampled(token=token, position=5 + at, logits_sha256=text)
        for at, (token, text) in enumerate(rows)
    )
    return Seen(sampled, {0: "a", 1: kv})


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (seen((1, "x"), (2, "y")), None),
        (seen((1, "x"), (2, "z")), "prompt 0, position 6: logits y and z"),
        (seen((1, "x"), (3, "y")), "prompt 0, position 6: tokens 2 and 3"),
        (seen((1, "x"), (2, "y"), kv="l"), "prompt 0, layer 1: KV k and l"),
        (seen((1, "x")), "prompt 0, position 6: numbers of tokens 2 and 1"),
    ],
)
def test_the_first_difference_is_told_in_the_order_of_the_computation(
    other: Seen, found: str | None
) -> None:
    difference = first_difference([seen((1, "x"), (2, "y"))], [other])
    assert (difference and str(difference)) == found


def test_distances_are_those_of_the_textbook() -> None:
    one = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]], np.float32)) + 3
    other = np.log(np.array([[0.25, 0.5, 0.25], [0.1, 0.8, 0.1]], np.float32))
    data = distance(one, other, (0, 1))
    assert data["perplexity"] == pytest.approx(math.exp(-(math.log(0.5) + math.log(0.8)) / 2))
    assert data["other_perplexity"] == pytest.approx(
        math.exp(-(math.log(0.25) + math.log(0.8)) / 2)
    )
    kl = 0.5 * math.log(2) + 0.25 * math.log(0.5)
    assert data["kl_divergence"] == pytest.approx(kl / 2)
    assert data["top1_agreement"] == 0.5


def test_made_up_prompts_leave_room_for_the_answer(home: Path) -> None:
    from plancc.ir.plan import read_plan

    plan = read_plan(home / "one.json")  # context 64, chunks of 16
    assert [len(ids) for ids in made_up_prompts([plan], 24)] == [7, 35]
    assert [len(ids) for ids in made_up_prompts([plan], 40)] == [7, 24]
    assert [len(ids) for ids in made_up_prompts([plan], 60)] == [7, 32]
    assert [len(ids) for ids in made_up_prompts([plan], 128)] == [7, 32]
