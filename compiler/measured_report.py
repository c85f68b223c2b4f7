"""The report of `planrun --bench --report`, as far as it is compared with a plan's predictions."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from plancc.ir.document import parse_document, read_json
from plancc.ir.errors import BadInput
from plancc.ir.plan import Plan

REPORT_FORMAT = "plancc.report/1"
Amount = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    """A newer planrun may tell more than is read here."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class MeasuredDecode(_Part):
    """context: tokens that the first and the last step attended to."""

    steps: Count
    p50_ms: Amount
    p95_ms: Amount
    context: tuple[Count, Count]


class MeasuredPrefill(_Part):
    tokens: Count
    seconds: Amount


class MeasuredStage(_Part):
    """A rank of a stage; None: not timed."""

    stage: Count
    rank: Count
    compute_ms: Amount | None
    exchange_ms: Amount | None


class MeasuredHop(_Part):
    from_: Annotated[Count, Field(alias="from")]
    to: Count
    payload: str
    median_us: Amount


class MeasuredDevice(_Part):
    device: str
    allocated: dict[str, Count]  # by ledger column
    peak_bytes: Count | None = None


class MeasuredTimed(_Part):
    """The run whose parts were timed: its whole step."""

    steps: Count
    p50_ms: Amount


class MeasuredMachine(_Part):
    plancc: str
    torch: str
    processor: str
    devices: dict[str, str]


class MeasuredReport(_Part):
    plan: str
    repeat: Count = 1
    prefill: MeasuredPrefill
    decode: MeasuredDecode
    stages: tuple[MeasuredStage, ...]
    hops: tuple[MeasuredHop, ...]
    devices: tuple[MeasuredDevice, ...]
    timed: MeasuredTimed | None = None  # planrun --prompt --json times all in one run,
    machine: MeasuredMachine | None = None  # and tells no machine


def read_measured(path: Path, plan: Plan, plan_path: Path) -> MeasuredReport:
    """The report in a file. Raises BadInput for another document, or one of another plan."""
    report = parse_document(MeasuredReport, read_json(path, "report"), str(path), REPORT_FORMAT)
    if report.plan != plan.digest:
        raise BadInput(
            f"--measured {path}: the report is of plan {report.plan}, {plan_path} is plan "
            f"{plan.digest}; give the plan that was run, or measure this one with "
            f"planrun {plan_path} --bench --report"
        )
    return report
