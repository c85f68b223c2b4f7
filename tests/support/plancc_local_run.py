"""A whole plan in this process: every rank on one thread, every link local, no processes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from plancc.executor.engine import Engine
from plancc.executor.opening import link_up, open_models
from plancc.executor.pulse import Pulse
from plancc.executor.request import Outcome, RankReport, Request, Sampled
from plancc.executor.seats import seats_of
from plancc.executor.step_codec import ReportAsk
from plancc.executor.weight_loader import RangeReader, load_rank
from plancc.executor.weights import pieces_of
from plancc.ir.plan import Plan
from plancc.ir.weight_folder import weight_index

FAKE = {"fake": "plancc_fake_backend:FakeBackend"}
REAL = FAKE | {"cpu": "plancc.executor.backend.cpu:CpuBackend"}


@dataclass
class LocalRun:
    plan: Plan
    folder: Path
    backends: Mapping[str, str] = field(default_factory=lambda: REAL)
    reports: list[RankReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        entries = weight_index(self.folder).by_name()
        opened = open_models(self.plan, seats_of(self.plan), self.backends)
        with RangeReader(self.folder, on_bytes=lambda count: None) as reader:
            for item in opened:
                load_rank(item.model, pieces_of(self.plan, item.seat), entries, reader)
        self.bytes_read = reader.bytes_read
        self.engine = Engine(self.plan)
        self.ranks = link_up(
            self.plan, opened, None, Pulse(),
            on_logits=self.engine.on_logits, on_report=self.reports.append,
        )  # fmt: skip
        self.engine.attach(self.ranks)

    def answer(self, prompt: Sequence[int], max_tokens: int = 8, **fields: object) -> "Answer":
        request = Request.model_validate(
            {"prompt_ids": tuple(prompt), "max_tokens": max_tokens, "wants_digests": True} | fields
        )
        rows = list(self.engine.generate(request))
        outcome = rows.pop()
        assert isinstance(outcome, Outcome)
        self.reports.clear()
        self.engine.ask_reports(ReportAsk(outcome.slot, outcome.num_tokens, wants_kv=True))
        kv = {layer: text for report in self.reports for layer, text in report.kv_sha256.items()}
        sampled = tuple(row for row in rows if isinstance(row, Sampled))
        return Answer(sampled, outcome.finish, outcome.num_tokens, kv)


@dataclass(frozen=True)
class Answer:
    """What must be equal on every placement."""

    sampled: tuple[Sampled, ...]
    finish: str
    num_tokens: int
    kv: dict[int, str]

    @property
    def tokens(self) -> list[int]:
        return [row.token for row in self.sampled]
