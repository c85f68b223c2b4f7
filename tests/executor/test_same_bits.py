"""One model run in many ways and compared: with random weights, on CPU ranks in one process."""

from typing import Any

import pytest
import torch
from plancc_card_shapes import manifest_of_config, shape_of, shape_plan
from plancc_checkpoints import TinyLlama, config_of
from plancc_group_plans import in_one_process
from plancc_local_run import REAL
from plancc_random_run import RandomRun
from plancc_same_bits import Case, cases_of, compare, difference_from, first_of

from plancc.executor.verify import Seen
from plancc.ir.manifest import ModelManifest

SPEC = TinyLlama(num_layers=4, hidden_size=64, intermediate_size=96, vocab_size=80, num_heads=4,
                 num_kv_heads=2)  # fmt: skip
WORDS = ("1", "2", "2u", "2h", "3", "tp2", "tp2u", "tp2uo", "2xtp2u")


@pytest.fixture(scope="module")
def manifest() -> ModelManifest:
    return manifest_of_config(config_of(SPEC), "hybrid", window=20)


def opened(manifest: ModelManifest, case: Case) -> RandomRun:
    shape = shape_of(case.word, manifest)
    plan = shape_plan(manifest, shape, prefill_chunk=case.chunk, context=64)
    return RandomRun(in_one_process(plan), REAL)


def test_every_shape_and_chunk_gives_the_answer_of_one_device(manifest: ModelManifest) -> None:
    cases = [case for case in cases_of(WORDS, (16, 7, 1), num_cards=1)
             if case.transport == "p2p" and not case.is_eager]  # fmt: skip
    assert len(cases) == len(WORDS) + 6
    rows = list(compare(cases, lambda case: opened(manifest, case), prompt=37, tokens=5))
    assert first_of("hybrid", rows) is None
    assert len({(row.logits, row.kv, row.tokens) for row in rows}) == 1
    assert len(rows) == len(cases)


def test_the_weights_of_a_rank_are_its_part_of_the_same_numbers(manifest: ModelManifest) -> None:
    whole, part = (opened(manifest, Case(word, 16)) for word in ("1", "tp2u"))
    rank = whole._ranks.ranks[0].model
    found = {piece.spec.name: rank.parameter(piece) for piece in rank.pieces()}
    assert len({tensor.double().sum().item() for tensor in found.values()}) == len(found)
    second = part._ranks.ranks[1].model
    cut = [piece for piece in second.pieces() if piece.span is not None]
    assert len(cut) == 3 * SPEC.num_layers
    for piece in cut:
        assert piece.span is not None
        at = slice(*piece.span)
        mine = found[piece.spec.name]
        expected = mine[:, at] if piece.spec.cut == "columns" else mine[at]
        assert torch.equal(second.parameter(piece), expected)


class Stub:
    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    def see(self, prompt: int, tokens: int, *, wants_digests: bool = False) -> Seen:
        return self.seen


def test_what_differs_is_named_with_its_layer_and_the_rest_is_still_run() -> None:
    def made(case: Case) -> Any:
        if case.word == "3":
            raise ValueError("no room")
        return Stub(Seen((), {0: "aa", 1: "cc" if case.word == "2" else "bb"}))

    cases = [Case("1", 8), Case("tp2", 8), Case("2", 8), Case("3", 8), Case("2h", 8)]
    rows = list(compare(cases, made, prompt=3, tokens=2))
    assert [row.difference is None for row in rows] == [True, True, False, False, True]
    assert first_of("m", rows) == (
        "m: 2, graphs, p2p, chunks of 8: prompt 0, layer 1: KV bb and cc"
    )
    assert first_of("m", rows[3:]) == (
        "m: 3, graphs, p2p, chunks of 8: failed: ValueError('no room')"
    )
    assert first_of("m", []) == "m: no case was run"


def test_all_cases_have_every_shape_in_every_way() -> None:
    found = cases_of(("1", "2", "tp2o"), (512, 1000, 1), num_cards=2)
    assert found[0] == Case("1", 512)
    assert len(found) == len(set(found))
    ways = {(case.is_eager, case.transport, case.is_swapped) for case in found
            if case.word == "tp2o"}  # fmt: skip
    assert ways == {(False, "p2p", False), (True, "p2p", False), (False, "staged", False),
                    (True, "staged", False), (False, "p2p", True)}  # fmt: skip
    assert {case.chunk for case in found if case.word == "tp2o"} == {512}
    assert {case.chunk for case in found if case.word == "2"} == {512, 1000, 1}
    assert not any(case.word == "1" and case.transport == "staged" for case in found)


def test_few_cases_have_every_shape_once_and_two_of_them_staged() -> None:
    found = cases_of(("1", "2", "tp2", "tp2u"), (512, 1000, 1), num_cards=2, are_few=True)
    assert [str(case) for case in found] == [
        "1, graphs, p2p, chunks of 512", "2, graphs, p2p, chunks of 512",
        "2, graphs, staged, chunks of 512", "tp2, graphs, p2p, chunks of 512",
        "tp2, graphs, staged, chunks of 512", "tp2u, graphs, p2p, chunks of 512",
        "1, graphs, p2p, chunks of 1000",
    ]  # fmt: skip


def test_an_earlier_run_is_compared_by_what_one_device_answered() -> None:
    rows = [{"case": "1", "logits": "a", "kv": "b", "tokens": "c"}, {"case": "2"}]
    new = {"question": {"layers": 4}, "models": {"m": rows}}
    assert difference_from(new, new) is None
    assert difference_from(new | {"models": {"n": rows}}, new) is None
    old = new | {"models": {"m": [rows[0] | {"kv": "x"}]}}
    assert difference_from(old, new) == "m: 1: kv b, earlier x"
    assert difference_from(new | {"question": {"layers": 2}}, new) == (
        "an earlier run was asked {'layers': 2}, this one {'layers': 4}"
    )


def test_the_parts_of_a_step_are_told_by_stage(manifest: ModelManifest) -> None:
    parts = opened(manifest, Case("2xtp2", 16)).parts(5)
    assert (list(parts["hops_us"]), list(parts["exchange_us_a_layer"])) == ([0], [0, 1])
    assert len(parts["segments_us"]) == 4
    head_first = opened(manifest, Case("2h", 16)).parts(5)
    assert sorted(head_first["hops_us"]) == [0, 1]
    assert head_first["exchange_us_a_layer"] == {}
    assert all(
        us > 0 for us in (*parts["exchange_us_a_layer"].values(), *parts["hops_us"].values())
    )
