"""Refusals before anything is started: all of them at once, each with both values."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_plans import build_plan, manifest_of, write_plan

from plancc.executor.preflight import Machine, Passed, preflight
from plancc.ir.errors import BadInput, PlanccError, Stale

SPEC = TinyLlama(
    num_layers=2, hidden_size=32, intermediate_size=48, num_heads=2, num_kv_heads=1,
    vocab_size=260, num_shards=3,
)  # fmt: skip
HERE = Machine(
    available_bytes=lambda: 2**30,
    num_cores=lambda: 2,
    has_address=lambda address: address == "127.0.0.1",
    backends={"fake": "plancc_fake_backend:FakeBackend"},
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "toy", SPEC)


@pytest.fixture
def plan_path(folder: Path) -> Path:
    return write_plan(build_plan(manifest_of(folder, SPEC), (0, 1, 2)), folder.parent / "plan.json")


def check(path: Path, weights: Path | None = None, machine: Machine = HERE, **env: str) -> Passed:
    return preflight(path, weights, env, machine)


def edited(path: Path, change: Callable[[dict], None]) -> Path:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    return path


def problems(error: pytest.ExceptionInfo[PlanccError]) -> list[str]:
    return str(error.value).splitlines()


def test_a_plan_that_matches_passes(plan_path: Path, folder: Path) -> None:
    passed = check(plan_path)
    assert passed.weights.folder == folder
    assert passed.warnings == ()


def test_the_weights_are_sought_by_flag_then_variable_then_source(
    plan_path: Path, folder: Path, tmp_path: Path
) -> None:
    moved = folder.rename(tmp_path / "elsewhere")
    with pytest.raises(
        BadInput, match=r"no weights of toy found .*PLANCC_WEIGHTS.*not set.*no fol"
    ):
        check(plan_path)
    assert check(plan_path, moved).weights.folder == moved
    (tmp_path / "store").mkdir()
    named = moved.rename(tmp_path / "store" / "toy")
    assert check(plan_path, PLANCC_WEIGHTS=str(tmp_path / "store")).weights.folder == named
    with pytest.raises(BadInput, match=r"--weights .*nowhere: no such folder"):
        check(plan_path, tmp_path / "nowhere")


def test_another_format_is_refused(plan_path: Path) -> None:
    edited(plan_path, lambda data: data.update(format="plancc.plan/9"))
    with pytest.raises(BadInput, match=r"expected 'plancc\.plan/1', found 'plancc\.plan/9'"):
        check(plan_path)


def test_a_plan_changed_by_hand_is_refused_with_both_digests(plan_path: Path) -> None:
    edited(plan_path, lambda data: data["runtime"]["timeouts"].update(step_s=1.0))
    with pytest.raises(Stale, match=r"digest: the plan says [0-9a-f]{16}, its content gives"):
        check(plan_path)


def test_a_plan_that_contradicts_itself_is_refused_with_the_place(plan_path: Path) -> None:
    edited(plan_path, lambda data: data["stages"][1].update(layers=[0, 2]))
    with pytest.raises(Stale) as error:
        check(plan_path)
    assert any(line.startswith("stages: layers 0 are in stages 0, 1") for line in problems(error))


def test_one_changed_byte_of_a_weight_is_told_with_both_fingerprints(
    plan_path: Path, folder: Path
) -> None:
    shard = folder / "model-00002-of-00003.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    with pytest.raises(Stale) as error:
        check(plan_path)
    assert len(problems(error)) == 2
    assert "the plan was made for fingerprint" in problems(error)[1]
    assert ", found " in problems(error)[1]


def test_another_tokenizer_is_another_model(plan_path: Path, folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(path.read_text().replace("assistant", "model"))
    with pytest.raises(Stale, match="fingerprint"):
        check(plan_path)


def test_the_weights_of_another_model_are_one_clear_line(plan_path: Path, tmp_path: Path) -> None:
    other = write_checkpoint(tmp_path / "other", replace(SPEC, hidden_size=64))
    with pytest.raises(Stale, match=r"another model: tensor .* expected shape .* found") as error:
        check(plan_path, other)
    assert len(problems(error)) == 2


@pytest.mark.parametrize("harm", ["gone", "cut"])
def test_a_missing_or_cut_shard_is_named(plan_path: Path, folder: Path, harm: str) -> None:
    shard = folder / "model-00002-of-00003.safetensors"
    if harm == "gone":
        shard.unlink()
    else:
        shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(BadInput, match=r"model-00002-of-00003\.safetensors"):
        check(plan_path)


def test_everything_that_does_not_match_is_told_at_once(plan_path: Path, folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    strange = Machine(lambda: 1000, lambda: 1, lambda address: False, {"gpu": "x:y"})
    with pytest.raises(Stale) as error:
        check(plan_path, machine=strange)
    text = problems(error)
    assert text[0] == "refused before any memory was taken: 4 problem(s)"
    assert text[1] == "host h0: the plan gives it address 127.0.0.1, this machine has no such one"
    assert text[2] == "device cpu0: the plan wants kind fake, found a backend for gpu only"
    assert text[3].startswith("device cpu1: the plan wants kind fake")
    assert text[4].startswith(f"weights {folder}: the plan was made for fingerprint")


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_what_the_kernels_of_a_kind_lack_is_told_before_a_run(kind: str, folder: Path) -> None:
    """As the backend says it when it opens a rank; each line once, whichever ranks it is of."""
    manifest = manifest_of(folder, SPEC)
    mlp = manifest.layers[1].mlp
    assert mlp is not None
    layer = manifest.layers[1].model_copy(update={"mlp": mlp.model_copy(update={"kind": "geglu"})})
    odd = manifest.model_copy(update={"layers": (manifest.layers[0], layer)})
    path = write_plan(build_plan(odd, (0, 1, 2), kind=kind), folder.parent / "odd.json")
    with pytest.raises(BadInput) as error:
        check(path)
    head, *lines = problems(error)
    assert head == f"toy cannot run on a {kind} device:"
    assert len(lines) == 1
    assert lines[0].startswith("layer 1: mlp: expected swiglu")
    assert lines[0].endswith("found geglu")


def test_too_little_memory_is_told_with_what_is_short(plan_path: Path) -> None:
    machine = replace(HERE, available_bytes=lambda: 2**20)
    with pytest.raises(Stale, match=r"h0: the plan fills 2.0 MiB on cpu0, cpu1, free are 1.0 MiB"):
        check(plan_path, machine=machine)


def test_more_threads_than_cores_is_a_warning(plan_path: Path) -> None:
    warnings = check(plan_path, machine=replace(HERE, num_cores=lambda: 1)).warnings
    assert warnings[0].startswith("the plan's workers use 2 threads, this process may use 1 cores")


def test_a_plan_over_several_hosts_is_refused_by_their_names(plan_path: Path) -> None:
    def add_host(data: dict) -> None:
        data["runtime"]["hosts"].append({"name": "h1", "address": "10.0.0.9"})

    edited(plan_path, add_host)
    with pytest.raises(Stale, match=r"h0 \(127\.0\.0\.1\), h1 \(10\.0\.0\.9\)"):
        check(plan_path)


def test_a_plan_without_a_weight_index_cannot_be_run(plan_path: Path) -> None:
    edited(plan_path, lambda data: data.update(weights=None))
    with pytest.raises(Stale, match="weights: the plan's manifest had no weight index"):
        check(plan_path)
