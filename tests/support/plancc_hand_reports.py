"""Reports of runs written by hand, for the plans of plancc_explain_plans and plancc_hand_plans."""

from typing import Any

from plancc.ir.plan import Plan, PrefillTime, StageTime


def with_prefill(plan: Plan, prompt: int = 128, total_ns: int = 40_000_000) -> Plan:
    """The plan with a predicted prompt; its digest stays."""
    stages = tuple(StageTime(compute_ns=1, hop_ns=0) for _ in plan.stages)
    time = PrefillTime(prompt=prompt, chunks=1, total_ns=total_ns, tokens_per_s=3200.0,
                       stages=stages)  # fmt: skip
    predicted = plan.predicted.model_copy(update={"prefill": time})
    return plan.model_copy(update={"predicted": predicted})


def exact_report(plan: Plan) -> dict[str, Any]:
    """A run that took what the plan predicts, to the nanosecond and the byte, at its context."""
    decode, prefill, rank = plan.predicted.decode, plan.predicted.prefill, 0
    stages, hops, firsts = [], [], []
    for number, (stage, time) in enumerate(zip(plan.stages, decode.stages, strict=True)):
        firsts.append(rank)
        for seat in stage.ranks:
            stages.append({"stage": number, "rank": rank, "device": seat.device,
                           "compute_ms": time.compute_ns / 1e6,
                           "exchange_ms": time.exchange_ns / 1e6})  # fmt: skip
            rank += 1
    for source, target, time in zip(firsts, [*firsts[1:], 0], decode.stages, strict=True):
        hops.append({"from": source, "to": target, "payload": "hidden" if target else "step",
                     "median_us": time.hop_ns / 1e3})  # fmt: skip
    return {
        "format": "plancc.report/1",
        "plan": plan.digest,
        "repeat": 5,
        "prefill": {"tokens": prefill.prompt if prefill else 64,
                    "seconds": prefill.total_ns / 1e9 if prefill else 0.02},
        "decode": {"steps": 127, "p50_ms": decode.step_ns / 1e6, "p95_ms": 21.0,
                   "context": [plan.runtime.context - 8, plan.runtime.context]},
        "timed": {"steps": 23, "p50_ms": decode.step_ns / 1e6},
        "stages": stages,
        "hops": hops,
        "devices": [
            {"device": device.name,
             "allocated": {name: size for name, size in device.ledger.parts().items()
                           if name != "overhead"}}
            for device in plan.devices
        ],
        "machine": {"plancc": "0.1.0", "torch": "2.11.0", "processor": "made up",
                    "devices": {device.name: "Maker Card" for device in plan.devices}},
        "a key of a newer planrun": {},
    }  # fmt: skip
