"""The same input gives the same bytes: whatever the hash seed, the folder, the number of cores,
the order in which a file lists devices and links, and what order-keeping names it gives them.
"""

import difflib
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from plancc_examples import tiny_ask, tiny_manifest, tiny_plan, write_documents
from plancc_random_groups import random_group_question
from plancc_tp_cases import four_devices

from plancc.compiler.api import compile as compile_plan
from plancc.compiler.placement.place import place
from plancc.ir.errors import DoesNotFit
from plancc.ir.plan import Plan
from plancc.ir.topology import Topology

ROOT = Path(__file__).resolve().parents[2]
RUN = "from plancc.compiler.cli import main; main()"


def compile_in(folder: Path, seed: str, cores: str, *flags: str) -> bytes:
    """The bytes that a process of its own prints, in a folder, with a seed, on some cores."""
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT / ".src")}
    pinned = ["taskset", "-c", cores] if shutil.which("taskset") else []
    words = [*pinned, sys.executable, "-P", "-c", RUN, "compile", "model.yaml", "topo.yaml",
             "--context", "64", "--prefill-chunk", "16", *flags, "-o", "-"]  # fmt: skip
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def shuffled(topology: Topology, seed: int) -> Topology:
    """The same file with its rows in another order."""
    rng, data = random.Random(seed), topology.model_dump(mode="json", by_alias=True)
    for name in ("hosts", "devices", "links", "exchanges"):
        rng.shuffle(data[name])
    for row in data["exchanges"]:
        rng.shuffle(row["group"])
    return Topology.model_validate(data)


def renamed(topology: Topology, names: dict[str, str]) -> Topology:
    text = json.dumps(topology.model_dump(mode="json", by_alias=True))
    return Topology.model_validate(json.loads(with_names(text, names)))


def with_names(text: str, names: dict[str, str]) -> str:
    return re.sub(r"\b(" + "|".join(names) + r")\b", lambda found: names[found[0]], text)


def group_plan(topology: Topology) -> Plan:
    plan = compile_plan(tiny_manifest(), topology, tiny_ask())
    assert max(len(stage.ranks) for stage in plan.stages) > 1
    return plan


@pytest.mark.parametrize("flags", [("--objective", "throughput", "--slots", "3")])
def test_two_processes_give_the_same_bytes(tmp_path: Path, flags: tuple[str, ...]) -> None:
    available = sorted(os.sched_getaffinity(0))
    one, two = tmp_path / "one", tmp_path / "a b" / "two"
    for folder in (one, two):
        folder.mkdir(parents=True)
        write_documents(folder)
    first = compile_in(one, "1", str(available[0]), *flags)
    second = compile_in(two, "4242", ",".join(map(str, available[:2])), *flags)
    assert first == second
    assert first.startswith(b'{\n  "format": "plancc.plan/1"')


def test_one_process_gives_the_bytes_of_another(tmp_path: Path) -> None:
    write_documents(tmp_path)
    assert compile_in(tmp_path, "7", "0") == tiny_plan().to_json().encode()


def test_two_processes_give_the_same_groups_of_files_in_other_orders(tmp_path: Path) -> None:
    plans = []
    for seed, cores in (("1", "0"), ("4242", "0,1")):
        folder = tmp_path / seed
        folder.mkdir()
        _, topo = write_documents(folder)
        rows = shuffled(four_devices(900), int(seed)).model_dump(mode="json", by_alias=True)
        topo.write_text(yaml.safe_dump(rows, sort_keys=False))
        plans.append(compile_in(folder, seed, cores, "--tp", "2"))
    assert plans[0] == plans[1]
    assert [len(stage["ranks"]) for stage in json.loads(plans[0])["stages"]] == [2, 2]


def test_twenty_compiles_of_files_in_any_order_give_the_same_bytes() -> None:
    texts = {group_plan(shuffled(four_devices(), seed)).to_json() for seed in range(20)}
    assert len(texts) == 1


def test_other_names_in_the_same_order_give_the_same_plan_under_these_names() -> None:
    names = {"d0": "card", "d1": "cpu", "d2": "gpu", "d3": "zeta"}
    before, after = group_plan(four_devices()), group_plan(renamed(four_devices(), names))
    assert with_names(without_digests(before), names) == without_digests(after)


def without_digests(plan: Plan) -> str:
    kept = plan.model_copy(update={"digest": "", "inputs": plan.inputs.model_copy(
        update={"topology": plan.inputs.topology.model_copy(update={"sha256": ""})})})  # fmt: skip
    return kept.to_json()


@pytest.mark.parametrize("seed", range(10))
def test_random_questions_are_answered_alike_in_any_order_and_under_other_names(seed: int) -> None:
    """Names keep their order, so ties fall alike; shapes and proofs are the same but for names."""
    model, topology, ask = random_group_question(seed, pin={}, devices=None)
    names = {f"g{i}": f"n{i}" for i in range(9)}
    found = []
    for other in (topology, shuffled(topology, seed), renamed(topology, names)):
        try:
            found.append(with_names(repr(place(model, other, ask)), names))
        except DoesNotFit as error:
            found.append(with_names(str(error), names))
    assert found[0] == found[1] == found[2]


def test_a_moved_layer_changes_at_most_forty_lines() -> None:
    plans = [tiny_plan(devices=("d2", "d1"), stage_layers=cut) for cut in ((3, 3), (4, 2))]
    before, after = (plan.to_json().splitlines() for plan in plans)
    delta = [line for line in difflib.ndiff(before, after) if line[:1] in "+-"]
    removed = sum(line.startswith("-") for line in delta)
    assert 0 < removed <= 40
    assert len(delta) - removed <= 40
