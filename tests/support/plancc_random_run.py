"""A plan in this process with random weights, made on its devices: no files, opened in seconds.

The same name gives the same numbers, whoever holds which part of a tensor, so what two placements
of a model compute can be compared bit for bit.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from zlib import crc32

import torch
from plancc_gpu_groups import part_of

from plancc.executor.engine import Engine
from plancc.executor.opening import link_up, open_models
from plancc.executor.pulse import Pulse
from plancc.executor.record import kv_of_layers
from plancc.executor.request import Outcome, RankReport, Request, Sampled
from plancc.executor.seats import seats_of
from plancc.executor.step_codec import ReportAsk
from plancc.executor.verify import Seen
from plancc.ir.plan import Plan

_TIMED_TOKENS = 40


class RandomRun:
    """An opened plan and its driver."""

    def __init__(self, plan: Plan, backends: Mapping[str, str]) -> None:
        self.plan, self._reports = plan, list[RankReport]()
        self._seats = seats_of(plan)
        opened = open_models(plan, self._seats, backends)
        for item in opened:
            for piece in item.model.pieces():
                fill(piece, item.model.parameter(piece))
        if torch.cuda.is_available():
            for number in range(torch.cuda.device_count()):
                torch.cuda.synchronize(number)
        self._engine = Engine(plan)
        self._ranks = link_up(plan, opened, None, Pulse(), on_logits=self._engine.on_logits,
                              on_report=self._reports.append)  # fmt: skip
        self._engine.attach(self._ranks)

    def prompt(self, count: int) -> tuple[int, ...]:
        """Ids that mean nothing."""
        return tuple(7919 * (i + 1) % (self.plan.model.vocab_size or 1) for i in range(count))

    def answer(self, prompt: int, tokens: int, **fields: Any) -> tuple[list[Sampled], Outcome]:
        asked = Request(prompt_ids=self.prompt(prompt), max_tokens=tokens, **fields)
        *rows, outcome = self._engine.generate(asked)
        assert isinstance(outcome, Outcome)
        return [row for row in rows if isinstance(row, Sampled)], outcome

    def see(self, prompt: int, tokens: int, **fields: Any) -> Seen:
        """What must be the same on every placement. Raises RunFailed where ranks of a group that
        keep the same KV have not."""
        sampled, outcome = self.answer(prompt, tokens, **fields)
        return Seen(tuple(sampled), self.kv_of(outcome))

    def kv_of(self, outcome: Outcome) -> dict[int, str]:
        """Of the KV that an answer left, by layer."""
        return kv_of_layers(self._asked(outcome, wants_kv=True))

    def parts(self, prompt: int) -> dict[str, Any]:
        """Medians, us: each rank's segments a step; by stage that sends hidden rows to another,
        the slowest of its hops; by stage that is a group, an exchange of one layer.

        Of a group's ranks the one that waits least: the others wait for slower ones too.
        """
        _, outcome = self.answer(prompt, _TIMED_TOKENS, wants_times=True)
        reports = self._asked(outcome, wants_kv=False)
        hops: dict[int, float] = {}
        for index, link in enumerate(self.plan.links):
            source, target = (self._seats[rank].stage for rank in (link.from_, link.to))
            if link.payload == "hidden" and source != target:
                sent, got = reports[link.from_].sent[index], reports[link.to].received[index]
                us = median_us(b - a for a, b in zip(sent, got, strict=True))
                hops[source] = max(us, hops.get(source, us))
        exchanges: dict[int, float] = {}
        for seat in self._seats:
            if times := reports[seat.rank].exchange_ns:
                us = round(median_us(times) / (seat.layers[1] - seat.layers[0]), 1)
                exchanges[seat.stage] = min(us, exchanges.get(seat.stage, us))
        segments = [median_us(reports[seat.rank].run_ns) for seat in self._seats]
        return {"segments_us": segments, "hops_us": hops, "exchange_us_a_layer": exchanges}

    def _asked(self, outcome: Outcome, *, wants_kv: bool) -> dict[int, RankReport]:
        self._reports.clear()
        self._engine.ask_reports(ReportAsk(outcome.slot, outcome.num_tokens, wants_kv=wants_kv))
        return {report.rank: report for report in self._reports}


def median_us(times_ns: Iterable[int]) -> float:
    return round(statistics.median(times_ns) / 1e3, 1)


def fill(piece: Any, view: torch.Tensor) -> None:
    """The same numbers for the same piece of a tensor, whoever holds it."""
    whole = torch.empty(piece.spec.shape, dtype=view.dtype, device=view.device)
    seed = crc32(piece.spec.name.encode())
    whole.normal_(generator=torch.Generator(view.device).manual_seed(seed))
    if whole.dim() == 1:
        whole.mul_(0.1).add_(1.0)
    else:
        whole.mul_(piece.spec.shape[1] ** -0.5)
    view.copy_(part_of(whole, piece))


def digest_of(words: Sequence[object]) -> str:
    """Eight digits that stand for a list."""
    return f"{crc32(' '.join(map(str, words)).encode()):08x}"
