"""The example models and machines in plans/ parse, are fresh, and say what is published."""

from pathlib import Path

import plancc_example_models
import plancc_example_topologies
import pytest
import yaml
from plancc_builders import build_device, build_topology

from plancc.compiler.api import compile as compile_plan
from plancc.ir.kernel_spec import mixer_reads, mlp_reads
from plancc.ir.manifest import ModelManifest, read_manifest
from plancc.ir.sizes import layer_kv_bytes
from plancc.ir.tensors import rank_pieces
from plancc.ir.topology import Topology, read_topology

MODELS = sorted(plancc_example_models.MODELS.glob("*.yaml"))
TOPOLOGIES = sorted(plancc_example_topologies.TOPOLOGIES.glob("*.yaml"))
MEASURED = {"two-h200"}
"""Machines that planprobe measured; the others are put together by a generator."""

# Parameters as the publishers state them (the count of the stored tensors), GB read a token in
# bfloat16 and the MLP's share of it as shared tables of model shapes give them.
PUBLISHED = {
    "llama-3.1-8b": (8_030_261_248, 15.01, 0.75),
    "llama-3.1-70b": (70_553_706_496, 139.0, 0.81),
    "llama-3.3-70b": (70_553_706_496, 139.0, 0.81),
    "llama-3.1-405b": (405_853_388_800, None, None),
    "llama-2-13b": (13_015_864_320, None, None),
    "llama-3.2-3b": (3_212_749_824, None, None),
    "smollm2-135m": (134_515_008, 0.27, 0.59),
    "mistral-7b": (7_241_732_096, None, None),
    "mistral-small-24b": (23_572_403_200, None, None),
    "qwen3-4b": (4_022_468_096, None, None),
    "qwen3-14b": (14_768_307_200, None, None),
    "qwen3-235b-a22b": (235_093_634_560, None, None),
    "mixtral-8x7b": (46_702_792_704, None, None),
    "gemma-3-270m": (268_098_176, 0.54, 0.26),
    "qwen3-8b": (8_190_735_360, 15.14, 0.72),
    "qwen3-32b": (32_762_123_264, 63.97, 0.79),
    "qwen3-30b-a3b": (30_532_122_624, 6.08, 0.60),
    "qwen3.6-27b": (26.90e9, 51.2, 0.67),
    "qwen3.6-35b-a3b": (34.66e9, 5.89, 0.39),
    "qwen3-next-80b-a3b": (79.67e9, 7.13, 0.48),
    "gemma-3-27b": (27_432_406_640, None, None),
}
# Models whose weights are not all bfloat16: parameters, those a token meets, bytes of the files.
QUANTISED = {
    "deepseek-v3": (671_026_419_200, 36.6e9, 671.0e9),  # fp8: about a byte a parameter
    "gpt-oss-120b": (116_829_156_672, 5.13e9, 60.8 * 2**30),
}
FP32_STATE_MB = {"qwen3.6-27b": 151, "qwen3.6-35b-a3b": 62.9, "qwen3-next-80b-a3b": 75.5}
KV_KIB = {"qwen3.6-27b": 64, "qwen3.6-35b-a3b": 20, "qwen3-next-80b-a3b": 24}


def model(name: str) -> ModelManifest:
    return read_manifest(plancc_example_models.MODELS / f"{name}.yaml")


def total_bytes(model: ModelManifest) -> int:
    blocks = sum(block.weight_bytes for block in model.blocks)
    if model.has_tied_head:
        embed = model.block("embed")
        assert embed is not None
        blocks -= embed.weight_bytes
    return blocks + sum(layer.weight_bytes for layer in model.layers)


def test_each_example_model_is_written_as_its_generator_says() -> None:
    texts = plancc_example_models.texts()
    assert {path.stem: path.read_text() for path in MODELS} == texts
    assert set(texts) == set(PUBLISHED) | set(QUANTISED)


def test_each_example_machine_is_written_as_its_generator_says() -> None:
    texts = plancc_example_topologies.texts()
    written = {path.stem: path.read_text() for path in TOPOLOGIES if path.stem not in MEASURED}
    assert written == texts


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_bytes_are_those_of_the_published_parameter_count(name: str) -> None:
    parameters, read_gb, mlp_share = PUBLISHED[name]
    found = model(name)
    if isinstance(parameters, int):
        assert total_bytes(found) == 2 * parameters
    else:
        assert total_bytes(found) == pytest.approx(2 * parameters, rel=2e-4)
    if read_gb is None:
        return
    mlp = sum(sum(mlp_reads(layer, 1)) for layer in found.layers)
    head = found.block("head")
    assert head is not None
    read = mlp + sum(sum(mixer_reads(layer)) for layer in found.layers) + head.weight_bytes
    assert read / 1e9 == pytest.approx(read_gb, abs=0.06)
    assert mlp / read == pytest.approx(mlp_share, abs=0.006)


@pytest.mark.parametrize("name", sorted(QUANTISED))
def test_quantised_models_weigh_what_their_files_do_and_work_on_what_a_token_meets(
    name: str,
) -> None:
    parameters, active, file_bytes = QUANTISED[name]
    found = model(name)
    assert total_bytes(found) == pytest.approx(file_bytes, rel=0.01)
    head = found.block("head")
    assert head is not None
    met = sum(layer.flops_per_token or 0 for layer in found.layers) / 2 + head.weight_bytes / 2
    assert met == pytest.approx(active, rel=0.01)
    assert counted(found, *SHAPES[name]) == pytest.approx(parameters, rel=1e-4)


# (MLP width, bits of a weight in an expert, numbers of an expert beside its three matrices)
SHAPES = {"deepseek-v3": (2048, 8.0 * (1 + 4 / 2**14), 0), "gpt-oss-120b": (2880, 4.25, 3 * 2880)}


def counted(found: ModelManifest, width: int, bits: float, beside: int) -> float:
    """Parameters, read back from bytes: experts by their shape, all else by what is left."""
    expert = 3 * found.hidden_size * width
    total = 0.0
    for layer in found.layers:
        mixer_bits = bits if found.name == "DeepSeek-V3" else 16
        total += layer.mixer.weight_bytes * 8 / mixer_bits
        mlp = layer.mlp
        assert mlp is not None
        if mlp.kind != "moe":
            total += mlp.weight_bytes * 8 / bits
            continue
        assert mlp.expert_bytes == pytest.approx(expert * bits / 8 + beside * 2, abs=1)
        total += mlp.num_experts * (expert + beside)
        shared = expert if found.name == "DeepSeek-V3" else 0
        total += shared + (mlp.shared_bytes - shared * bits / 8) / 2
    return total + sum(block.weight_bytes / 2 for block in found.blocks)


def test_every_example_model_compiles() -> None:
    device = build_device("gpu0", free=2**40, read_gb_s=4000)
    topology = build_topology([device])
    for path in MODELS:
        plan = compile_plan(read_manifest(path), topology)
        assert len(plan.stages) == 1
        assert plan.predicted.decode.step_ns > 0


@pytest.mark.parametrize("name", sorted(FP32_STATE_MB))
def test_hybrid_models_keep_the_state_and_the_cache_they_are_known_for(name: str) -> None:
    found = model(name)
    state = sum(layer.state_bytes_per_slot for layer in found.layers)
    assert FP32_STATE_MB[name] <= state / 1e6 <= 1.03 * FP32_STATE_MB[name]
    per_token = sum(layer.mixer.kv_bytes_per_token or 0 for layer in found.layers)
    assert per_token == KV_KIB[name] * 1024
    assert [layer.mixer.kind for layer in found.layers[:4]] == ["gdn"] * 3 + ["attention"]


def test_windowed_layers_of_gemma_are_five_in_six() -> None:
    windows = [layer.mixer.window for layer in model("gemma-3-27b").layers]
    assert (windows.count(1024), windows.count(None)) == (52, 10)
    assert all(windows[index] is None for index in range(5, 62, 6))


@pytest.mark.parametrize(
    "name", ["llama-3.1-8b", "llama-3.1-70b", "llama-3.3-70b", "llama-3.1-405b", "mistral-7b",
             "smollm2-135m", "llama-2-13b", "llama-3.2-3b", "mistral-small-24b"])  # fmt: skip
def test_models_of_the_llama_family_name_their_tensors(name: str) -> None:
    found = model(name)
    assert found.family == "llama"
    pieces = rank_pieces(found, (0, len(found.layers)), blocks=("embed", "head"))
    elements = 0
    for piece in pieces:
        size = 1
        for dim in piece.shape:
            size *= dim
        elements += size
    assert 2 * elements == total_bytes(found)


@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.stem)
def test_each_machine_parses_and_says_where_its_numbers_come_from(path: Path) -> None:
    topology = read_topology(path)
    assert topology.name == path.stem
    assert len(topology.links) == len(topology.devices) * (len(topology.devices) - 1)
    comment = [line for line in path.read_text().splitlines() if line.startswith("#")]
    if path.stem in MEASURED:
        assert "measured by planprobe on 20" in comment[0]
    else:
        assert len(comment) > len(plancc_example_topologies.STAND_INS)
    for device in topology.devices:
        assert 0 < device.read_curve().us(10**9)
        assert device.budget_bytes > device.overhead_bytes


def test_eight_unequal_cards_hold_the_70b_with_8192_tokens() -> None:
    found = model("llama-3.1-70b")
    topology = read_topology(plancc_example_topologies.TOPOLOGIES / "mixed-8.yaml")
    cache = sum(
        layer_kv_bytes(found, layer, context=8192, slots=1, prefill_chunk=512,
                       kv_dtype="bfloat16")
        for layer in found.layers
    )  # fmt: skip
    budgets = [device.budget_bytes - device.overhead_bytes for device in topology.devices]
    assert len(budgets) == 8
    assert max(budgets) < total_bytes(found) + cache < 0.6 * sum(budgets)
    rates = {(link.from_, link.to): link.curve().us(16384) for link in topology.links}
    assert sum(rates[pair] != rates[pair[::-1]] for pair in rates) > 40


def test_the_machine_that_the_guide_writes_by_hand_is_one_that_compiles() -> None:
    text = (plancc_example_topologies.TOPOLOGIES.parents[1] / "docs" / "machines.md").read_text()
    block = text.split("```yaml\n")[1].split("```")[0]
    topology = Topology.model_validate(yaml.safe_load(block))
    assert len(compile_plan(model("qwen3-14b"), topology).devices) == 2
