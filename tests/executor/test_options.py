"""Flags of planrun that do not go together, and prompts that more than one task takes."""

from pathlib import Path
from typing import Any

import pytest
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_plans import build_plan, manifest_of

from plancc.executor import bench
from plancc.executor.cli import planrun
from plancc.executor.options import Options
from plancc.executor.preflight import Passed
from plancc.executor.request import Request
from plancc.executor.sampling import Sampling
from plancc.executor.tasks import prepare
from plancc.executor.text import read_model_text
from plancc.executor.weights import read_weights
from plancc.ir.command import exit_code_of

SPEC = TinyLlama(num_layers=1)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--chat", "--json"], "--chat writes no JSON"),
        (["--dry-run", "--chat", "--bench"], "say one of"),
        (["--chat", "--prompt", "x"], "--prompt goes with --bench, --verify or no other"),
        (["--prompt", "x", "--prompt", "y"], "--prompt, said again, goes with --verify"),
        (["--bench", "--prompt", "x", "--prompt", "y"], "said again, goes with --verify"),
        (["--bench", "--system", "x"], "--system goes with --prompt or --chat"),
        (["--bench", "--raw"], "--raw goes with --prompt"),
        (["--bench", "--prompt", "x", "--record", "r"], "--record goes with --prompt"),
        (["--prompt", "x", "--alt-weights", "w"], "--alt-weights goes with --verify"),
    ],
)
def test_flags_that_mean_nothing_together_are_refused_before_anything_is_read(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["absent.json", *flags]
    assert exit_code_of(lambda: planrun.main(words, "planrun", standalone_mode=False)) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("flags", [{"raw": True}, {"system": "Be brief."}, {}])
def test_a_benchmark_prepares_its_prompt_as_an_answer_does(
    flags: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_checkpoint(tmp_path / "toy", SPEC)
    plan = build_plan(manifest_of(folder, SPEC), (0, 1), context=256)
    asked = list[Request]()
    monkeypatch.setattr(
        bench, "run_bench", lambda session, load, request, **_: asked.append(request)
    )
    base = {
        "plan": Path(),
        "prompts": ("What?",),
        "weights": None,
        "max_tokens": 4,
        "sampling": Sampling(),
        "raw": False,
        "system": None,
        "chat": False,
        "bench": True,
        "as_json": False,
        "dry_run": False,
        "record": None,
        "report": None,
        "verbose": False,
    }
    task = prepare(Options(**(base | flags)), Passed(plan, read_weights(plan, folder), ()))
    task(None, None)  # type: ignore[arg-type]
    text = read_model_text(folder, SPEC.vocab_size)
    turns = [{"role": "system", "content": "Be brief."}] if "system" in flags else []
    turns.append({"role": "user", "content": "What?"})
    expected = text.encode_raw("What?") if "raw" in flags else text.encode_chat(turns)
    assert [request.prompt_ids for request in asked] == [expected]
