"""Checker and compiler sum the same bytes and ns, each by its own code, on random placements."""

import random
from dataclasses import replace
from typing import Any

import pytest
from plancc_builders import build_device, build_manifest, build_topology

from plancc.compiler.check import content_problems
from plancc.compiler.compilation import Compilation
from plancc.compiler.cost.predict import predict
from plancc.compiler.freeze import draft_plan
from plancc.compiler.passes.annotate import annotate
from plancc.compiler.passes.build import build
from plancc.compiler.passes.lower import lower
from plancc.compiler.passes.place import seated
from plancc.compiler.placement.placement import PlacedStage, Placement
from plancc.ir.ask import Ask
from plancc.ir.manifest import ModelManifest, ModelShape
from plancc.ir.plan import Proof
from plancc.ir.topology import Topology
from plancc.ir.verify import verify

Random = random.Random


def random_layer(rng: Random, index: int) -> dict[str, Any]:
    kind = rng.choice(["attention", "attention", "gdn", "other"])
    mixer: dict[str, Any] = {"kind": kind, "weight_bytes": rng.randrange(1, 10**8)}
    if kind == "attention":
        mixer |= rng.choice([
            {"kv_bytes_per_token": rng.randrange(0, 9999)},
            {"num_heads": 8, "num_kv_heads": rng.choice([1, 2, 8]), "head_dim": 64},
            {"num_heads": 8, "head_dim": 64, "k_dim": 576, "v_dim": 512},
        ])  # fmt: skip
        mixer["window"] = rng.choice([None, None, rng.randrange(1, 4000)])
    mlp = rng.choice([
        None,
        {"kind": "swiglu", "weight_bytes": rng.randrange(10**9), "intermediate_size": 8192},
        {"kind": "mlp", "weight_bytes": rng.randrange(10**9), "uncut_bytes": 4096},
        {"kind": "moe", "num_experts": 64, "experts_per_token": rng.randrange(1, 8),
         "expert_bytes": rng.randrange(1, 10**7), "shared_bytes": rng.randrange(10**6)},
    ])  # fmt: skip
    return {
        "mixer": mixer,
        "mlp": mlp,
        "state_bytes_per_slot": rng.choice([0, rng.randrange(10**7)]),
        "workspace_bytes": rng.choice([0, rng.randrange(10**7)]),
        "flops_per_token": rng.choice([None, None, rng.uniform(1e6, 1e12)]),
    }


def random_model(rng: Random) -> ModelManifest:
    layers = [random_layer(rng, index) for index in range(rng.randrange(2, 9))]
    tied = rng.choice(["embed", None])
    blocks = [
        {"name": "embed", "weight_bytes": rng.randrange(1, 10**9), "place": "first"},
        {"name": "head", "weight_bytes": rng.randrange(1, 10**9), "place": "last", "tied_to": tied,
         "workspace_bytes": rng.randrange(10**6)},
        {"name": "eyes", "weight_bytes": rng.randrange(1, 10**9), "place": "any"},
    ]  # fmt: skip
    shape = ModelShape.model_validate(
        {
            "name": "random", "dtype": rng.choice(["bfloat16", "float32"]), "hidden_size": 512,
            "vocab_size": rng.choice([None, 32000]), "max_context": 131072, "layers": layers,
            "geometry": rng.choice([None, {"norm_eps": 1e-5}]), "blocks": blocks,
        }
    )  # fmt: skip
    return build_manifest(shape)


def random_device(rng: Random, index: int) -> Any:
    rates = rng.choice([
        {"tflops": {"bfloat16": 31.7, "float32": 7.3}},
        {"matmul_points": [(16, 1.93), (1024, 57.7)]},
        {"tflops": {"bfloat16": 57.7, "float32": 7.3}, "matmul_points": [(16, 1.93), (1024, 57.7)]},
        {},
    ])  # fmt: skip
    points = [(33554432, rng.uniform(40, 60)), (234881024, rng.uniform(250, 300))]
    return build_device(
        f"d{index}", 10**13, gb_s=rng.uniform(5, 2000),
        read_points=rng.choice([None, points]), launch_us=rng.choice([0, 2.5, 16.1, 4.35]),
        overhead_bytes=rng.randrange(10**9), reserve_bytes=rng.randrange(10**9),
        threads=rng.choice([None, 1]), host=rng.choice(["h0", "h1"]), **rates,
    )  # fmt: skip


def random_topology(rng: Random) -> Topology:
    devices = [random_device(rng, index) for index in range(rng.randrange(1, 5))]
    links = {
        (a.name, b.name): {"points": [(20480, rng.uniform(10, 20)), (655360, rng.uniform(40, 90))],
                           "mode": rng.choice(["p2p", "staged", "network", "local"])}
        for a in devices for b in devices if a is not b or rng.random() < 0.2
    }  # fmt: skip
    return build_topology(devices, links=links)


def random_placement(rng: Random, model: ModelManifest, topology: Topology) -> Placement:
    """Any cut, any devices in any order, a repeated one among them; eyes anywhere."""
    count = rng.randrange(1, min(4, len(model.layers)) + 1)
    names = [rng.choice(topology.devices).name for _ in range(count)]
    cuts = sorted(rng.sample(range(1, len(model.layers)), count - 1))
    blocks: list[list[str]] = [[] for _ in range(count)]
    blocks[0].append("embed")
    blocks[rng.choice([0, -1])].append("head")
    blocks[rng.randrange(count)].append("eyes")
    stages = []
    for index, layers in enumerate(zip([0, *cuts], [*cuts, len(model.layers)], strict=True)):
        tiles = [layer.mlp.num_tiles for layer in model.layers[slice(*layers)]
                 if layer.mlp is not None and layer.mlp.kind != "moe"]  # fmt: skip
        whole = ((0, max(tiles, default=1)),)
        stages.append(PlacedStage(layers, (names[index],), whole, blocks=tuple(blocks[index])))
    proof = Proof(name="dice", version="0", space="one", status="optimal", objective="latency",
                  value=1, bound=1, best=1, best_bound=1, gap=0.0)  # fmt: skip
    return Placement(tuple(stages), rng.randrange(1, 20000), proof)


def compiled(rng: Random) -> Compilation:
    """The passes over a thrown placement in place of the solver's."""
    model, topology = random_model(rng), random_topology(rng)
    placement = random_placement(rng, model, topology)
    ask = Ask(
        context=placement.context, slots=rng.randrange(1, 5),
        prefill_chunk=rng.choice([1, 64, 512]),
        devices=tuple(name for stage in placement.stages for name in stage.devices),
        prompt=rng.randrange(1, placement.context + 1), workers=rng.choice(["host", "device"]),
    ).filled(model.max_context, model.dtype)  # fmt: skip
    step = predict(model, topology, ask, placement).decode.step_ns
    numbers = {"value": step, "bound": step, "best": step, "best_bound": step}
    placement = replace(placement, proof=placement.proof.model_copy(update=numbers))
    state = annotate(build(Compilation(manifest=model, topology=topology, ask=ask)))
    return replace(state, graph=seated(state.graph, placement), placement=placement)


@pytest.mark.parametrize("seed", range(150))
def test_the_checker_finds_nothing_in_what_was_lowered(seed: int) -> None:
    state = compiled(Random(seed))
    verify(state.graph)
    lowered = lower(state)
    verify(lowered.graph)
    assert content_problems(draft_plan(lowered), state.manifest, state.topology) == ()
