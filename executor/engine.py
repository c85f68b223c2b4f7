"""The driver's side of a run: requests become steps, logits become tokens."""

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from plancc.executor.failures import NonFinite
from plancc.executor.kv_pages import KvPages
from plancc.executor.ranks import LocalRanks
from plancc.executor.request import Outcome, Request, Sampled, check_request
from plancc.executor.sampling import Logits, is_finite, sample
from plancc.executor.seats import steps_in_flight
from plancc.executor.step import Step
from plancc.executor.step_codec import ReportAsk
from plancc.ir.plan import Plan


class Engine:
    """Runs one request at a time over all stages of a plan; lives where the head is."""

    def __init__(self, plan: Plan) -> None:
        runtime = plan.runtime
        assert plan.model.vocab_size is not None, "a plan that has a head has a vocabulary"
        self._context, self._chunk = runtime.context, runtime.prefill_chunk
        self._vocab_size = plan.model.vocab_size
        self._in_flight = steps_in_flight(plan)
        self._free_slots = list(range(runtime.slots))
        self._pages = KvPages(
            context=runtime.context,
            page_tokens=runtime.page_tokens,
            pages=runtime.pages,
            slots=runtime.slots,
        )
        self._logits: Logits | None = None

    def attach(self, ranks: LocalRanks) -> None:
        """The ranks to drive; `on_logits` of theirs is this engine's."""
        assert ranks.driver is not None
        self._ranks, self._driver = ranks, ranks.driver

    def on_logits(self, step: Step, logits: torch.Tensor) -> None:
        """Keep the row that a step ends with; scratch, read before the next step begins."""
        if step.wants_logits:
            self._logits = logits[-1].numpy(force=True)

    def generate(self, request: Request) -> Iterator[Sampled | Outcome]:
        """Tokens as they are drawn, then the outcome. Closing it early gives the slot back.

        Raises ContextExceeded before any stage is touched, NonFinite, or what a link raises.
        """
        check_request(request, context=self._context, vocab_size=self._vocab_size)
        slot = min(self._free_slots)
        self._free_slots.remove(slot)
        try:
            yield from self._answer(request, slot)
        finally:
            self._drain()
            self._pages.release(slot)
            self._free_slots.append(slot)

    def ask_reports(self, ask: ReportAsk) -> None:
        """Every rank answers through its `on_report`: those of this process before this returns."""
        self._driver.report(ask)
        while self._ranks.advance():
            pass

    def _answer(self, request: Request, slot: int) -> Iterator[Sampled | Outcome]:
        start = time.monotonic_ns()
        self._prefill(request.prompt_ids, slot)
        num_tokens, decode_ns = len(request.prompt_ids), []
        sampled = self._sample(request, num_tokens)
        prefill_ns = time.monotonic_ns() - start
        yield sampled
        count = 1
        while not (finish := _finish(request, sampled, count, num_tokens, self._context)):
            start = time.monotonic_ns()
            self._decode(slot, num_tokens, sampled.token)
            num_tokens += 1
            sampled = self._sample(request, num_tokens)
            decode_ns.append(time.monotonic_ns() - start)
            count += 1
            yield sampled
        yield Outcome(
            finish="stop" if finish == "stop" else "length",
            slot=slot,
            num_tokens=num_tokens,
            prefill_ns=prefill_ns,
            decode_ns=tuple(decode_ns),
        )

    def _prefill(self, prompt_ids: tuple[int, ...], slot: int) -> None:
        """Chunks, as many under way as there are stages; logits of the last row only."""
        for first in range(0, len(prompt_ids), self._chunk):
            ids = prompt_ids[first : first + self._chunk]
            end = first + len(ids)
            self._submit(
                Step(
                    phase="prompt",
                    slots=(slot,),
                    positions=(first,),
                    token_ids=ids,
                    pages=self._pages.grow(slot, end),
                    wants_logits=end == len(prompt_ids),
                )
            )
        self._drain()

    def _decode(self, slot: int, position: int, token: int) -> None:
        pages = self._pages.grow(slot, position + 1)
        self._submit(Step("decode", (slot,), (position,), (token,), pages))
        self._drain()

    def _submit(self, step: Step) -> None:
        self._fly(at_most=self._in_flight - 1)
        self._driver.submit(step)
        self._ranks.advance()

    def _drain(self) -> None:
        """Return when no step is under way."""
        self._fly(at_most=0)

    def _fly(self, at_most: int) -> None:
        while self._driver.num_flights > at_most:
            if not self._ranks.advance():
                self._ranks.wait()

    def _sample(self, request: Request, position: int) -> Sampled:
        """Draw the token for `position` from the row that was just computed."""
        logits, self._logits = self._logits, None
        assert logits is not None, "the last chunk and every decode step want logits"
        if not is_finite(logits):
            raise NonFinite(position)
        digest = hashlib.sha256(logits.tobytes()) if request.wants_digests else None
        if request.logits_file:
            with Path(request.logits_file).open("ab") as file:
                file.write(logits.tobytes())
        index = position - len(request.prompt_ids)
        if index < len(request.forced_ids):
            token = request.forced_ids[index]
        else:
            token = sample(logits, request.sampling(), position)
        return Sampled(
            token=token,
            position=position,
            is_stop=token in request.stop_ids,
            logits_sha256=digest.hexdigest() if digest else None,
        )


def _finish(
    request: Request, last: Sampled, count: int, num_tokens: int, context: int
) -> str | None:
    """Why the answer ends here, if it does: a stop token, enough tokens, or a full context."""
    if last.is_stop:
        return "stop"
    return "length" if count == request.max_tokens or num_tokens + 1 == context else None
