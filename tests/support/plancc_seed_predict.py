"""What the cost model and the compiler say to every row of plans/seeds/rows.yaml.

Nothing here looks at a row's value: predictions come from the model and the machine alone.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from plancc_seed_calibrate import at_rate, calibrated
from plancc_seed_systems import (
    SHORT_CONTEXT,
    System,
    machine,
    mlp_only_tp,
    pipeline,
    step_ns,
    systems,
)

from plancc.compiler.api import compile as compile_plan
from plancc.compiler.cost.compute import Work
from plancc.compiler.cost.full_tp import full_tp_exchange_ns, full_tp_step_ns
from plancc.ir.ask import Ask
from plancc.ir.errors import DoesNotFit
from plancc.ir.manifest import ModelManifest
from plancc.ir.plan import Plan
from plancc.ir.topology import Topology

GIB, GB = 2**30, 10**9
FULL_CONTEXT = 262144
CHUNK = 1024
VERIFY_ROWS = 4  # MTP3: a sequence has up to four columns in a step, over one state and KV
HALVES = {"gpu0": 32, "gpu1": 32}

Prediction = Callable[[ModelManifest, Topology], Any]


@cache
def predictions(system: str) -> dict[str, Any]:
    """Row name -> what we say, for every row that we can say something to."""
    found = systems()[system]
    if found.machine is None:
        return _other_cards(found)
    said = {name: say(found.model, found.machine) for name, say in SAYS[system].items()}
    return {name: round(value, 3) if isinstance(value, float) else value
            for name, value in said.items()}  # fmt: skip


def _tok_s(model: ModelManifest, topology: Topology, layers: dict[str, int], head: str) -> float:
    return 1e9 / step_ns(model, topology, pipeline(model, layers, head=head))


def _plan(model: ModelManifest, topology: Topology, **ask: Any) -> Plan:
    return compile_plan(model, topology, Ask(**({"prefill_chunk": CHUNK, "tp": "off"} | ask)))


def _fits(model: ModelManifest, topology: Topology, **ask: Any) -> bool:
    try:
        _plan(model, topology, **ask)
    except DoesNotFit:
        return False
    return True


def _fits_at_full(model: ModelManifest, topology: Topology, **ask: Any) -> bool:
    return _fits(model, topology, context=FULL_CONTEXT, **ask)


def _free_after_gib(model: ModelManifest, topology: Topology) -> float:
    """Of the tightest card, at the cut that the compiler chooses."""
    plan = _plan(model, topology, context=FULL_CONTEXT, head="first")
    return min(device.ledger.free_after for device in plan.devices) / GIB


def _kv_and_state_gb(model: ModelManifest, topology: Topology) -> float:
    plan = _plan(model, topology, context=FULL_CONTEXT)
    return sum(device.ledger.kv + device.ledger.state for device in plan.devices) / GB


def _ledger_gb(parts: tuple[str, ...], place: int, **ask: Any) -> Prediction:
    def say(model: ModelManifest, topology: Topology) -> float:
        ledger = _plan(model, topology, **ask).devices[place].ledger
        return float(sum(getattr(ledger, part) for part in parts)) / GB

    return say


def _prefill_tok_s(layers: dict[str, int]) -> Prediction:
    def say(model: ModelManifest, topology: Topology) -> float:
        plan = _plan(model, topology, context=8192, prompt=8192, head="first",
                     devices=tuple(layers), stage_layers=tuple(layers.values()))  # fmt: skip
        assert plan.predicted.prefill is not None
        return plan.predicted.prefill.tokens_per_s

    return say


def _boundary_us(rows: int = 1) -> Prediction:
    return lambda model, topology: topology.links[0].curve().us(rows * 4 * model.hidden_size)


def _names(topology: Topology) -> list[str]:
    return [device.name for device in topology.devices]


def _full_tp_ns(model: ModelManifest, topology: Topology, rows: int = 1) -> int:
    work = Work(rows, SHORT_CONTEXT, model.dtype)
    return full_tp_step_ns(_columns(model, rows), topology, _names(topology), work)


def _pipeline_ns(model: ModelManifest, topology: Topology, rows: int = 1) -> int:
    stages = pipeline(model, HALVES, head="first")
    return step_ns(_columns(model, rows), topology, stages, rows=rows)


def _columns(model: ModelManifest, rows: int) -> ModelManifest:
    """The model as `rows` columns see it: those of one sequence read its state once."""
    layers = [layer.model_copy(update={
        "state_bytes_per_slot": layer.state_bytes_per_slot // min(rows, VERIFY_ROWS)
    }) for layer in model.layers]  # fmt: skip
    return model.model_copy(update={"layers": tuple(layers)})


def _full_tp_speedup(rows: int) -> Prediction:
    return lambda model, topology: (
        _pipeline_ns(model, topology, rows) / _full_tp_ns(model, topology, rows)
    )


def _mlp_only_ns(model: ModelManifest, topology: Topology) -> int:
    return step_ns(model, topology, mlp_only_tp(model, topology))


def _exchanges_of_a_chunk_ms(model: ModelManifest, topology: Topology) -> float:
    one = full_tp_exchange_ns(model, topology, _names(topology), CHUNK)
    return 2 * len(model.layers) * one / 1e6


@cache
def _plan_across_hosts() -> Plan:
    found = systems()["tensorsharp-2x2-a40"]
    assert found.machine is not None
    return _plan(found.model, found.machine, tp="auto")


def _shape_across_hosts(model: ModelManifest, topology: Topology) -> str:
    """pipeline: no group of the chosen plan spans hosts, and full TP over all would be slower."""
    plan, host = _plan_across_hosts(), {device.name: device.host for device in topology.devices}
    spread = {len({host[rank.device] for rank in stage.ranks}) for stage in plan.stages}
    crossed = len({device.host for device in plan.devices}) > 1
    slower = _full_tp_ns(model, topology) > plan.predicted.decode.step_ns
    return "pipeline" if spread == {1} and crossed and slower else "tensor parallel"


def _full_tp_over_pipeline(model: ModelManifest, topology: Topology) -> float:
    return _full_tp_ns(model, topology) / _plan_across_hosts().predicted.decode.step_ns


def _wait_share(model: ModelManifest, topology: Topology) -> float:
    both = step_ns(model, topology, pipeline(model, {"r4060ti": 20, "r5080": 28}, head="last"))
    plan = _plan(model, topology, devices=("r4060ti", "r5080"), stage_layers=(20, 28))
    return 1 - plan.predicted.decode.stages[0].compute_ns / both


CARDS = {"rtx3090": "RTX 3090", "rtx4090": "RTX 4090", "rtx5090": "RTX 5090",
         "a100": "A100 PCIe 40GB"}  # fmt: skip


def _other_cards(found: System) -> dict[str, Any]:
    """The pair of 3090 with other cards in it."""
    said: dict[str, Any] = {}
    model, layers = found.model, len(found.model.layers)
    for name in sorted({row.name.split("_")[0] for row in found.rows}):
        topology = at_rate(machine("2x3090"), calibrated()[CARDS[name]])
        one = _tok_s(model, topology, {"gpu0": layers}, "last")
        two = _tok_s(model, topology, {"gpu0": layers // 2, "gpu1": layers // 2}, "first")
        said |= {f"{name}_one_card_tok_s": round(one, 1),
                 f"{name}_split_ratio": round(two / one, 3)}  # fmt: skip
    return said


_ONE, _TWO = ("gpu0",), ("gpu0", "gpu1")
_CUT: dict[str, Any] = {"stage_layers": (21, 19), "devices": _TWO, "head": "last"}
_CHARGE = ("weights", "blocks", "kv", "state", "hop_buffers", "workspace", "overhead")

SAYS: dict[str, dict[str, Prediction]] = {
    "ninfer-27b-2x3090": {
        "decode_two_stages_tok_s": lambda m, t: _tok_s(m, t, HALVES, "first"),
        "boundary_us_per_token": _boundary_us(),
        "weights_first_card_gib_at_32_32": lambda m, t: GB / GIB * _ledger_gb(
            ("weights", "blocks"), 0, stage_layers=(32, 32), devices=_TWO, head="first")(m, t),
        "fits_one_card_at_262144": lambda m, t: _fits_at_full(m, t, devices=_ONE),
        "fits_two_cards_at_262144": _fits_at_full,
        "free_after_gib_at_262144": _free_after_gib,
        "step_ms_mlp_only_tp": lambda m, t: _mlp_only_ns(m, t) / 1e6,
        "step_ms_full_tp": lambda m, t: _full_tp_ns(m, t) / 1e6,
        "kv_reservation_gb_at_262144": _kv_and_state_gb,
        "prefill_tok_s_one_card": _prefill_tok_s({"gpu0": 64}),
        "prefill_tok_s_two_stages": _prefill_tok_s(HALVES),
    },
    "ninfer-27b-2xa4000": {
        "fits_one_card": lambda m, t: _fits(m, t, devices=_ONE),
        "fits_two_cards_at_262144": _fits_at_full,
        "free_after_gib_at_262144": _free_after_gib,
        "mlp_only_tp_speedup_1_column": lambda m, t: _pipeline_ns(m, t) / _mlp_only_ns(m, t),
        "full_tp_speedup_1_column": _full_tp_speedup(1),
        "full_tp_speedup_4_columns": _full_tp_speedup(4),
        "full_tp_speedup_16_columns": _full_tp_speedup(16),
        "full_tp_loses_at_32_columns": lambda m, t: _full_tp_speedup(32)(m, t) < 1,
        "full_tp_exchange_ms_per_1024_prompt_tokens": _exchanges_of_a_chunk_ms,
        "weights_gib_per_card": lambda m, t: GB / GIB * _ledger_gb(
            ("weights", "blocks"), 0, head="first")(m, t),
    },
    "magnitude-35b-a3b-2x3090": {
        "fits_one_card": lambda m, t: _fits(m, t, devices=_ONE),
        "fits_at_21_19": lambda m, t: _fits(m, t, **_CUT),
        "weights_first_card_gb_at_21_19": _ledger_gb(("weights", "blocks"), 0, **_CUT),
        "weights_second_card_gb_at_21_19": _ledger_gb(("weights", "blocks"), 1, **_CUT),
        "charge_first_card_gb_at_21_19": _ledger_gb(_CHARGE, 0, **_CUT),
        "charge_second_card_gb_at_21_19": _ledger_gb(_CHARGE, 1, **_CUT),
        "boundary_us_decode": _boundary_us(),
        "decode_tok_s": lambda m, t: _tok_s(m, t, {"gpu0": 21, "gpu1": 19}, "last"),
    },
    "tensorsharp-2x2-a40": {
        "chosen_across_hosts": _shape_across_hosts,
        "full_tp_over_pipeline_step": _full_tp_over_pipeline,
        "exchange_us_across_hosts": lambda m, t: full_tp_exchange_ns(m, t, _names(t), 1) / 1e3,
    },
    "strata-4060ti-5080": {"share_of_a_window_that_stage_0_waits": _wait_share},
}  # fmt: skip
