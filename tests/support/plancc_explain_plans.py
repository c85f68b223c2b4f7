"""Plans by hand to explain: TP groups of both kinds between pipeline stages, values round."""

from typing import Any

from plancc_hand_plans import hand_data, restamp

from plancc.ir.plan import Plan

GIB = 2**30


def group_plan(**top: Any) -> Plan:
    """d0 | d1+d2 replicated | d3+d4 owned over 30 layers of 1 GiB, a step of 20 ms."""
    data = hand_data((6, 18, 30))
    data |= {
        "model": _model(),
        "devices": [_device(f"d{i}", used) for i, used in enumerate((9.5, 11.5, 6.5, 11.0, 6.0))],
        "stages": [
            _stage((0, 6), "single", {"d0": (0, 16)}, ["embed"]),
            _stage((6, 18), "replicated", {"d1": (0, 12), "d2": (12, 16)}, []),
            _stage((18, 30), "owned", {"d3": (0, 8), "d4": (8, 16)}, ["head"]),
        ],
        "predicted": {"decode": _decode(), "prefill": None},
        "alternatives": [
            {"shape": "one device", "verdict": "does not fit", "short_bytes": 20 * GIB,
             "device": "d1"},
            {"shape": "pipeline of 5 stages", "verdict": "slower", "value": 22_000_000},
            {"shape": "TP of 5 devices", "verdict": "slower", "value": 26_000_000},
            {"shape": "pipeline of groups", "verdict": "chosen", "value": 20_000_000},
            {"shape": "full TP", "verdict": "slower", "value": 31_000_000, "note": "priced only"},
        ],
    }  # fmt: skip
    data["provenance"]["solver"] |= {"value": 20_000_000, "bound": 20_000_000,
                                     "best": 19_800_000, "best_bound": 19_800_000}  # fmt: skip
    return restamp(Plan.model_validate(data | top))


def _model() -> dict[str, Any]:
    layer = {
        "mixer": {"kind": "attention", "weight_bytes": GIB // 4, "kv_bytes_per_token": 4096},
        "mlp": {"kind": "swiglu", "weight_bytes": 3 * GIB // 4, "intermediate_size": 4096},
    }
    return {
        "name": "hand", "dtype": "bfloat16", "hidden_size": 64, "max_context": 128,
        "layers": [layer] * 30,
        "blocks": [{"name": "embed", "weight_bytes": GIB // 2, "place": "first"},
                   {"name": "head", "weight_bytes": GIB // 2, "place": "last"}],
    }  # fmt: skip


def _device(name: str, used_gib: float) -> dict[str, Any]:
    used, budget = int(used_gib * GIB), 12 * GIB
    parts = {"weights": used - GIB, "kv": GIB // 2, "state": 0, "blocks": GIB // 4,
             "hop_buffers": GIB // 8, "workspace": GIB // 8, "overhead": 0}  # fmt: skip
    return {
        "name": name, "host": "h0", "kind": "made-up", "budget_bytes": budget,
        "ledger": {**parts, "total": used, "free_after": budget - used},
    }  # fmt: skip


def _stage(
    layers: tuple[int, int], mixer: str, shares: dict[str, tuple[int, int]], blocks: list[str]
) -> dict[str, Any]:
    ranks = [{"device": name, "mlp_tiles": list(share)} for name, share in shares.items()]
    return {"layers": list(layers), "mixer": mixer, "ranks": ranks, "blocks": blocks}


def _decode() -> dict[str, Any]:
    times = ((6_000_000, 0, 50_000), (5_000_000, 1_000_000, 50_000), (6_400_000, 1_450_000, 50_000))
    return {
        "step_ns": 20_000_000, "tokens_per_s": 50.0,
        "stages": [{"compute_ns": compute, "exchange_ns": exchange, "hop_ns": hop}
                   for compute, exchange, hop in times],
    }  # fmt: skip
