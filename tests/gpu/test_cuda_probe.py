"""planprobe on a card: a topology of it, and links between two ranks that share it."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("no CUDA device here", allow_module_level=True)

from plancc_probe_seats import seats

from plancc.executor.backend.cuda import CudaBackend
from plancc.executor.backend.cuda_devices import device_of
from plancc.executor.backend.cuda_host import find_cards, visible_cards
from plancc.executor.backends import host_of
from plancc.executor.probe_cuda import CudaProbe
from plancc.executor.probe_local import LocalProbe
from plancc.executor.probe_payload import KIB, MIB, payload_problem
from plancc.ir.topology import Topology, read_topology

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]


def planprobe(*flags: str) -> dict[str, Any]:
    code = "from plancc.executor.probe_cli import main; main()"
    path = os.pathsep.join(filter(None, (str(ROOT / ".src"), os.environ.get("PYTHONPATH"))))
    done = subprocess.run([sys.executable, "-P", "-c", code, *flags, "--json"], text=True,
                          capture_output=True, timeout=300,
                          env={**os.environ, "PYTHONPATH": path})  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture(scope="module")
def uuid() -> str:
    return visible_cards(find_cards().cards, os.environ)[0].uuid


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("probe") / "card.topo.yaml"


@pytest.fixture(scope="module")
def topology(path: Path, uuid: str) -> Topology:
    answer = planprobe("-o", str(path), "--cards", uuid)
    print(json.dumps(answer["topology"]["devices"]), f"in {answer['seconds']} s")
    assert answer["warnings"] == []
    assert answer["seconds"] < 120  # 40 once the kernels have been compiled
    return read_topology(path)


def test_a_card_has_what_its_driver_says_and_an_overhead(topology: Topology, uuid: str) -> None:
    (card,) = topology.devices
    assert (card.kind, card.uuid, card.threads) == ("cuda", uuid, None)
    assert card.free_bytes <= card.total_bytes
    assert 100 * MIB < card.overhead_bytes < 4096 * MIB
    assert topology.links == topology.exchanges == ()


def test_rates_are_finite_and_rise(topology: Topology) -> None:
    (card,) = topology.devices
    assert card.read_points is not None
    assert card.matmul_points is not None
    assert [size for size, _ in card.read_points][::12] == [8 * KIB, 1024 * MIB]
    for (size, us), (larger, more_us) in pairwise(card.read_points):
        assert isfinite(us)
        assert 0 < us <= more_us
        if size >= MIB:  # large kernels are not slower
            assert size / us < 1.2 * larger / more_us
    assert card.matmul_points[0][1] < card.matmul_points[-1][1]
    assert card.attention_tflops is not None
    assert 0 < card.attention_tflops < 2 * card.matmul_points[-1][1]
    assert 0.1 < card.launch_us < 20


def test_refresh_finds_the_card_again(topology: Topology, path: Path) -> None:
    answer = planprobe("--refresh", str(path), "--quick")
    assert answer["topology"]["devices"][0]["uuid"] == topology.devices[0].uuid
    assert {row["what"] for row in answer["changes"]} >= {"gpu0 overhead", "gpu0 launch"} or (
        topology.devices[0].name != "gpu0"
    )


def test_the_driver_and_torch_mean_one_card_by_a_uuid(uuid: str) -> None:
    device = device_of(uuid)
    free = host_of("cuda").free_bytes(uuid)
    assert free is not None
    held = torch.zeros(512 * MIB, dtype=torch.uint8, device=device)
    torch.cuda.synchronize(device)
    after = host_of("cuda").free_bytes(uuid)
    assert after is not None
    assert free - after >= 400 * MIB
    del held


@pytest.fixture(scope="module")
def two(uuid: str) -> LocalProbe:
    """Two ranks on one card."""
    return seats(CudaBackend(), "a", "b", can_reach=CudaProbe().can_reach, uuid=uuid)


def test_rows_between_two_ranks_of_a_card_arrive_direct_and_staged(two: LocalProbe) -> None:
    assert two.mode("a", "b") == ("p2p", None)
    staged = payload_problem(lambda size: two.carry("a", "b", size, is_staged=True))
    assert staged is None


def test_a_hop_is_shorter_direct_than_through_the_host(two: LocalProbe) -> None:
    sizes = [64, 8 * KIB, 4 * MIB, 64 * MIB]
    direct = two.hop_us("a", "b", False, sizes, 0.05)
    staged = two.hop_us("a", "b", True, sizes, 0.05)
    exchange = two.exchange_us(["a", "b"], [], sizes[:2], 0.05)
    print(f"hop us of {sizes}: direct {direct}, staged {staged}; exchange {exchange}")
    assert all(isfinite(us) and us > 0 for us in (*direct, *staged, *exchange))
    assert direct[-1] < staged[-1]
