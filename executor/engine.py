"""The driver's side of a run: requests become steps, logits become tokens.

Where the driver's device can draw a request's tokens by itself, it does; and where all ranks are in
this process too, a step is begun before the token that it starts with has come to the host. Else
the host draws each token from the logits.
"""

import hashlib
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import torch

from plancc.executor.failures import NonFinite
from plancc.executor.kv_pages import KvPages
from plancc.executor.ranks import LocalRanks
from plancc.executor.request import Finish, Outcome, Request, Sampled, check_request
from plancc.executor.sampling import Logits, is_finite, sample
from plancc.executor.seats import steps_in_flight
from plancc.executor.step import Drawn, Step
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
        self._rows: torch.Tensor | None = None

    def attach(self, ranks: LocalRanks) -> None:
        """The ranks to drive; `on_logits` of theirs is this engine's."""
        assert ranks.driver is not None
        self._ranks, self._driver = ranks, ranks.driver

    def on_logits(self, step: Step, logits: torch.Tensor) -> None:
        """Keep the rows that a step ends with; scratch, used before the next step begins."""
        if step.wants_logits:
            self._rows = logits

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
        clock = [time.monotonic_ns()]
        self._prefill(request.prompt_ids, slot)
        count, finish = 0, None
        for sampled in self._tokens(request, slot):
            clock.append(time.monotonic_ns())
            count += 1
            finish = self._finish(request, sampled, count)
            yield sampled
            if finish:
                break
        assert finish is not None, "there are tokens until one ends the answer"
        prefill_ns, *decode_ns = (end - begin for begin, end in pairwise(clock))
        yield Outcome(
            finish=finish,
            slot=slot,
            num_tokens=len(request.prompt_ids) + count - 1,
            prefill_ns=prefill_ns,
            decode_ns=tuple(decode_ns),
        )

    def _tokens(self, request: Request, slot: int) -> Iterator[Sampled]:
        """Without end: whoever asks knows when to stop."""
        position = len(request.prompt_ids)
        is_ahead = self._ranks.are_all_here and not _wants_logits(request)
        if is_ahead and (drawn := self._draw()) is not None:
            yield from self._tokens_ahead(request, slot, drawn)
        while True:
            with self._ranks.awaiting(is_short=position > len(request.prompt_ids)):
                sampled = self._drawn(request, position) or self._sample(request, position)
            yield sampled
            self._decode(slot, position, (sampled.token,), None, request)
            position += 1

    def _tokens_ahead(self, request: Request, slot: int, drawn: Drawn) -> Iterator[Sampled]:
        """A step is begun before the token that it starts with is here; the very first token is
        told before anything else is begun. Raises NonFinite when every rank holds that step's
        rows, so that it can say whose were not."""
        position = len(request.prompt_ids)
        told = _sampled(request, drawn, position)
        yield told
        following = self._next(slot, position, drawn, request)
        while True:
            drawn, position = following, position + 1
            if self._goes_on(request, position):
                following = self._next(slot, position, drawn, request)
            if min(drawn.ids()) < 0:
                self._decode(slot, position - 1, (told.token,), None, request)
            told = _sampled(request, drawn, position)
            yield told

    def _next(self, slot: int, position: int, drawn: Drawn, request: Request) -> Drawn:
        """Begin the step that a drawn token starts, and draw the one after it."""
        self._decode(slot, position, (), drawn, request)
        following = self._draw()
        assert following is not None, "a device that draws once draws always"
        return following

    def _goes_on(self, request: Request, position: int) -> bool:
        """Whether a token may follow that of the position."""
        count = position + 1 - len(request.prompt_ids)
        return count < request.max_tokens and position + 1 < self._context

    def _finish(self, request: Request, last: Sampled, count: int) -> Finish | None:
        """Why the answer ends here, if it does: a stop token, enough tokens, or a full context."""
        if last.is_stop:
            return "stop"
        return None if self._goes_on(request, last.position) else "length"

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

    def _decode(
        self, slot: int, position: int, tokens: tuple[int, ...], fed: Drawn | None, request: Request
    ) -> None:  # fmt: skip
        pages = self._pages.grow(slot, position + 1)
        self._ranks.begin(Step("decode", (slot,), (position,), tokens, pages, fed=fed,
                               is_timed=request.wants_times))  # fmt: skip
        self._drain()

    def _draw(self) -> Drawn | None:
        """Have the driver's device draw from the row that was just computed."""
        assert self._rows is not None, "the last chunk and every decode step want logits"
        return self._driver.model.draw(self._rows)

    def _submit(self, step: Step) -> None:
        self._fly(at_most=self._in_flight - 1)
        self._ranks.begin(step)

    def _drain(self) -> None:
        """Return when no step is under way."""
        self._fly(at_most=0)

    def _fly(self, at_most: int) -> None:
        while self._driver.num_flights > at_most:
            if not self._ranks.advance():
                self._ranks.wait()

    def _drawn(self, request: Request, position: int) -> Sampled | None:
        """The token that the device draws; None where the host has to draw it."""
        drawn = None if _wants_logits(request) else self._draw()
        return None if drawn is None else _sampled(request, drawn, position)

    def _sample(self, request: Request, position: int) -> Sampled:
        """Draw the token for `position` from the row that was just computed."""
        logits = self._logits()
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

    def _logits(self) -> Logits:
        """The row that was just computed, on the host."""
        assert self._rows is not None, "the last chunk and every decode step want logits"
        found: Logits = self._driver.model.read(self._rows)[-1].numpy()
        self._rows = None
        return found


def _wants_logits(request: Request) -> bool:
    """Whether something of the request needs logits on the host."""
    needs = request.wants_digests or request.logits_file or request.forced_ids
    return request.temperature > 0 or bool(needs)


def _sampled(request: Request, drawn: Drawn, position: int) -> Sampled:
    """Waits for the token. Raises NonFinite."""
    (token,) = drawn.ids()
    if token < 0:
        raise NonFinite(position)
    return Sampled(token=token, position=position, is_stop=token in request.stop_ids)
