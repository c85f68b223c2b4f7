"""plancc compile --tp: what it makes of a small model on four cards, and what it refuses to try."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from plancc_examples import KIB, tiny_manifest, write_documents
from plancc_tp_cases import four_devices

from plancc.compiler.cli import plancc
from plancc.ir.command import exit_code_of
from plancc.ir.manifest import ModelManifest
from plancc.ir.plan import Plan, read_plan
from plancc.ir.topology import Topology

ASK = ("--context", "64", "--prefill-chunk", "16")
Compile = Callable[..., tuple[int, str]]


def write_topology(path: Path, topology: Topology) -> None:
    path.write_text(yaml.safe_dump(topology.model_dump(mode="json", by_alias=True)))


def write_manifest(path: Path, manifest: ModelManifest) -> None:
    data = json.loads(manifest.model_dump_json())
    path.write_text(yaml.safe_dump({"format": "plancc.model/1", **data}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """model.yaml, and topo.yaml with four cards of which two are needed at least."""
    write_documents(tmp_path)
    write_topology(tmp_path / "topo.yaml", four_devices(900))
    return tmp_path


@pytest.fixture
def compiled(folder: Path, capsys: pytest.CaptureFixture[str]) -> Compile:
    """Exit code and stderr of `plancc compile`; the plan goes to folder/plan.json."""

    def invoke(*flags: str) -> tuple[int, str]:
        words = ["compile", *(str(folder / name) for name in ("model.yaml", "topo.yaml")), *ASK,
                 *flags, "-o", str(folder / "plan.json")]  # fmt: skip
        code = exit_code_of(lambda: plancc.main(words, "plancc", standalone_mode=False))
        captured = capsys.readouterr()
        assert captured.out == ""
        assert "Traceback" not in captured.err
        return code, captured.err

    return invoke


def ranks_of(plan: Plan) -> list[int]:
    return [len(stage.ranks) for stage in plan.stages]


def refuses(done: tuple[int, str], folder: Path, code: int, *words: str) -> None:
    """One error that has all these words, and no file."""
    assert done[0] == code, done[1]
    assert done[1].lower().count("error:") == 1
    for word in words:
        assert word in done[1], done[1]
    assert not (folder / "plan.json").exists()


@pytest.mark.parametrize("said", ["off", "1"])
def test_without_groups_every_stage_is_one_card(said: str, compiled: Compile, folder: Path) -> None:
    assert compiled("--tp", said)[0] == 0
    plan = read_plan(folder / "plan.json")
    assert set(ranks_of(plan)) == {1}
    assert plan.ask.tp == ("off" if said == "off" else 1)
    (row,) = [row for row in plan.alternatives if row.shape == "MLP tensor parallelism"]
    assert (row.verdict, row.note) == ("not allowed", f"--tp {said}")


def test_two_means_that_every_stage_is_a_pair(compiled: Compile, folder: Path) -> None:
    assert compiled("--tp", "2")[0] == 0
    assert ranks_of(read_plan(folder / "plan.json")) == [2, 2]


@pytest.mark.parametrize("flags", [("--tp", "auto"), ()], ids=["said", "not said"])
def test_auto_takes_groups_where_they_pay(
    flags: Sequence[str], compiled: Compile, folder: Path
) -> None:
    assert compiled(*flags)[0] == 0
    plan = read_plan(folder / "plan.json")
    assert max(ranks_of(plan)) > 1
    assert plan.ask.tp == "auto"


def test_a_plan_with_groups_is_shown_and_found_sound(
    compiled: Compile, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And diff tells it from one without."""
    for name, said in (("groups.json", "2"), ("cards.json", "off")):
        assert compiled("--tp", said)[0] == 0
        (folder / "plan.json").rename(folder / name)
    files = ("--model", folder / "model.yaml", "--topo", folder / "topo.yaml")
    asked: list[tuple[int, tuple[Any, ...], str]] = [
        (0, ("check", folder / "groups.json", *files), "sound"),
        (0, ("show", folder / "groups.json"), "d0"),
        (1, ("diff", folder / "cards.json", folder / "groups.json"), "layers"),
    ]
    for code, words, found in asked:
        named = [str(word) for word in words]
        done = exit_code_of(lambda w=named: plancc.main(w, "plancc", standalone_mode=False))
        captured = capsys.readouterr()
        assert (done, captured.err) == (code, "")
        assert found in captured.out


@pytest.mark.parametrize("said", ["0", "-2", "2.5", "some", "", "2,2"])
def test_a_size_that_is_none_is_named(said: str, compiled: Compile, folder: Path) -> None:
    refuses(compiled("--tp", said), folder, 2, "--tp")


def test_more_ranks_than_cards_are_refused_with_both_numbers(
    compiled: Compile, folder: Path
) -> None:
    refuses(compiled("--tp", "5"), folder, 2, "--tp 5: 4 device(s) found")


def test_more_ranks_than_asked_cards_are_refused_too(compiled: Compile, folder: Path) -> None:
    refuses(compiled("--tp", "3", "--devices", "d0,d3"), folder, 2, "--tp 3: 2 device(s) found")
    refuses(compiled("--tp", "3", "--max-devices", "2"), folder, 2, "--max-devices 2", "--tp 3")


UNCUT: list[tuple[dict[str, Any] | None, str]] = [
    (None, "no MLP"),
    ({"kind": "moe", "num_experts": 8, "experts_per_token": 2, "expert_bytes": 9000}, "experts"),
    ({"kind": "swiglu", "weight_bytes": 90000}, "intermediate_size"),
    ({"kind": "swiglu", "weight_bytes": 90000, "intermediate_size": 192, "tiles": 1}, "1 tile"),
]


@pytest.mark.parametrize(("mlp", "why"), UNCUT, ids=["none", "experts", "bytes only", "one tile"])
def test_a_group_everywhere_names_the_layer_that_cannot_be_cut_and_why(
    mlp: dict[str, Any] | None, why: str, compiled: Compile, folder: Path
) -> None:
    """Layer 4 of 6; with --tp auto the others may still be cut."""
    manifest = tiny_manifest()
    layers = list(manifest.layers)
    layers[4] = type(layers[4]).model_validate({**layers[4].model_dump(), "mlp": mlp})
    write_manifest(folder / "model.yaml", manifest.model_copy(update={"layers": tuple(layers)}))
    refuses(compiled("--tp", "2"), folder, 2, "--tp 2: layer 4 of tiny", why, "--tp auto")
    assert compiled("--tp", "auto")[0] == 0


def test_a_refusal_that_only_the_size_of_groups_causes_says_so(
    compiled: Compile, folder: Path
) -> None:
    """One card of 60 KiB: 10 of overhead, and a tile of all six layers is 54."""
    machine, size = four_devices(1500), 60 * KIB
    full = machine.devices[3].model_copy(update={"free_bytes": size, "total_bytes": size})
    devices = (*machine.devices[:3], full)
    write_topology(folder / "topo.yaml", machine.model_copy(update={"devices": devices}))
    refuses(compiled("--tp", "4"), folder, 1, "without --tp 4 it fits")
    assert compiled()[0] == 0


def test_hosts_that_were_never_measured_together_are_named_as_the_reason(
    compiled: Compile, folder: Path
) -> None:
    machine = four_devices(1500)
    hosts = [machine.hosts[0].model_copy(update={"name": f"h{i}"}) for i in range(4)]
    devices = [device.model_copy(update={"host": f"h{i}"})
               for i, device in enumerate(machine.devices)]  # fmt: skip
    update = {"hosts": tuple(hosts), "devices": tuple(devices), "exchanges": ()}
    write_topology(folder / "topo.yaml", machine.model_copy(update=update))
    code, error = compiled("--tp", "2")
    assert code in (1, 2)
    assert "--tp 2" in error
    assert "short by 0 B" not in error


def test_a_card_asked_for_twice_and_a_group_size_are_not_both_honoured(
    compiled: Compile, folder: Path
) -> None:
    write_topology(folder / "topo.yaml", four_devices(1500))
    refuses(compiled("--tp", "2", "--devices", "d0,d1,d0"), folder, 2, "--tp 2")
