"""Plans written by hand, so that what judges plans is not tested with what makes them."""

from typing import Any

from plancc.ir.plan import Plan

HIDDEN = 64
ROW_BYTES = HIDDEN * 2
KERNELS = {
    "embed": "gather/1",
    "norm": "rmsnorm/1",
    "linear": "row_dot/1",
    "attention": "paged_blocks/1",
    "mlp": "tile_tree/1",
    "head": "row_dot/1",
    "sample": "seeded_topk/1",
}


def hand_plan(cuts: tuple[int, ...] = (3, 6, 10), *, head: str = "last", **top: Any) -> Plan:
    """A plan of one device a stage: stage i ends at layer cuts[i]. Values are round, not priced."""
    plan = Plan.model_validate(hand_data(cuts, head=head) | top)
    return restamp(plan)


def restamp(plan: Plan) -> Plan:
    """The plan with the digest that its content has."""
    return plan.model_copy(update={"digest": plan.computed_digest()})


def hand_data(cuts: tuple[int, ...] = (3, 6, 10), *, head: str = "last") -> dict[str, Any]:
    """The same as plain data, digest not computed."""
    firsts = (0, *cuts[:-1])
    count = len(cuts)
    blocks: list[list[str]] = [[] for _ in cuts]
    blocks[0].append("embed")
    blocks[0 if head == "first" else -1].append("head")
    return {
        "format": "plancc.plan/1",
        "digest": "",
        "provenance": {"plancc": "0.1.0", "solver": _proof()},
        "inputs": {
            "model": {"name": "hand", "sha256": "0" * 64},
            "topology": {"name": "desk", "sha256": "1" * 64},
        },
        "ask": {"context": 128, "prompt": 128, "kv_dtype": "bfloat16"},
        "model": _model(cuts[-1]),
        "devices": [_device(index) for index in range(count)],
        "stages": [
            {
                "layers": [first, end],
                "ranks": [{"device": f"d{index}", "mlp_tiles": [0, 1]}],
                "blocks": blocks[index],
            }
            for index, (first, end) in enumerate(zip(firsts, cuts, strict=True))
        ],
        "links": _links(count, head),
        "programs": [
            {
                "rank": index,
                "stage": index,
                "device": f"d{index}",
                "instructions": _instructions(index, (first, end), count, head),
            }
            for index, (first, end) in enumerate(zip(firsts, cuts, strict=True))
        ],
        "runtime": _runtime(count),
        "weights": {"source": None, "format": "safetensors", "fingerprint": "sampled",
                    "sha256": "2" * 64},
        "predicted": {"decode": _decode(count), "prefill": None},
    }  # fmt: skip


def _proof() -> dict[str, Any]:
    return {
        "name": "by hand", "version": "1", "space": "none", "status": "optimal",
        "objective": "latency", "value": 1000, "bound": 1000, "best": 1000, "best_bound": 1000,
        "gap": 0.0,
    }  # fmt: skip


def _model(num_layers: int) -> dict[str, Any]:
    layer = {
        "mixer": {"kind": "attention", "weight_bytes": 1000, "kv_bytes_per_token": 16},
        "mlp": {"kind": "swiglu", "weight_bytes": 2000},
    }
    return {
        "name": "hand", "dtype": "bfloat16", "hidden_size": HIDDEN, "max_context": 128,
        "layers": [layer] * num_layers,
        "blocks": [{"name": "embed", "weight_bytes": 100, "place": "first"},
                   {"name": "head", "weight_bytes": 100, "place": "last"}],
    }  # fmt: skip


def _device(index: int) -> dict[str, Any]:
    parts = {"weights": 900, "kv": 50, "state": 0, "blocks": 10, "hop_buffers": 20,
             "workspace": 15, "overhead": 5}  # fmt: skip
    return {
        "name": f"d{index}", "host": "h0", "kind": "cpu", "budget_bytes": 1200,
        "ledger": {**parts, "total": 1000, "free_after": 200},
    }  # fmt: skip


def _links(count: int, head: str) -> list[dict[str, Any]]:
    """Hops in stage order, the row back where the head is first, then the step to each other."""
    hops = [(rank, rank + 1) for rank in range(count - 1)]
    hops += [(count - 1, 0)] if head == "first" and count > 1 else []
    driver = 0 if head == "first" else count - 1
    steps = [(driver, rank) for rank in range(count) if rank != driver]
    rows = [(pair, "hidden", ROW_BYTES) for pair in hops] + [(pair, "step", 8) for pair in steps]
    return [
        {"from": pair[0], "to": pair[1], "payload": payload, "transport": "gloo",
         "bytes_per_row": size, "slots": 2}
        for pair, payload, size in rows
    ]  # fmt: skip


def _instructions(
    rank: int, layers: tuple[int, int], count: int, head: str
) -> list[dict[str, Any]]:
    """The convention, case by case, as the documents tell it."""
    run = {"op": "run", "segment": 0, "layers": list(layers), "embed": rank == 0, "head": False}
    last, first_step = count - 1, count - 1 + (head == "first" and count > 1)
    if count == 1:
        return [{**run, "head": True}, {"op": "sample"}]
    steps = [{"op": "send", "link": first_step + index} for index in range(last)]
    send = {"op": "send", "link": rank}
    arrival = [{"op": "recv", "link": rank - 1}] if rank else []
    freed = [{"op": "free", "link": rank - 1}] if rank else []
    if head == "first" and rank == 0:
        final = {"op": "run", "segment": 1, "layers": [0, 0], "embed": False, "head": True}
        back = [{"op": "recv", "link": last}, final, {"op": "free", "link": last}]
        return [*steps, run, send, *back, {"op": "sample"}]
    if head != "first" and rank == last:
        return [*steps, *arrival, {**run, "head": True}, *freed, {"op": "sample"}]
    heard = [{"op": "recv", "link": first_step + rank - (head == "first")}]
    return [*heard, *arrival, run, *freed, send]


def _runtime(count: int) -> dict[str, Any]:
    return {
        "context": 128, "slots": 1, "page_tokens": 16, "pages": 8, "prefill_chunk": 512,
        "dtype": "bfloat16", "kv_dtype": "bfloat16", "kernels": KERNELS,
        "hosts": [{"name": "h0", "address": "127.0.0.1"}],
        "workers": [{"name": f"h0.w{index}", "host": "h0", "devices": [f"d{index}"], "threads": 1}
                    for index in range(count)],
    }  # fmt: skip


def _decode(count: int) -> dict[str, Any]:
    return {
        "step_ns": 1000, "tokens_per_s": 1e6,
        "stages": [{"compute_ns": 1000 // count, "hop_ns": 0} for _ in range(count)],
    }  # fmt: skip
