"""What was asked of planrun, as its modules hand it on."""

from dataclasses import dataclass
from pathlib import Path

from plancc.executor.request import Request
from plancc.executor.sampling import Sampling


@dataclass(frozen=True)
class Options:
    """The flags of one planrun."""

    plan: Path
    prompt: str | None
    weights: Path | None
    max_tokens: int
    sampling: Sampling
    raw: bool
    system: str | None
    chat: bool
    bench: bool
    as_json: bool
    dry_run: bool
    record: Path | None
    report: Path | None
    verbose: bool
    verify: Path | None = None
    repeat: int = 1
    prompt_tokens: int | None = None

    def request(self, prompt_ids: tuple[int, ...], stop_ids: tuple[int, ...]) -> Request:
        """A request of these flags."""
        return Request(
            prompt_ids=prompt_ids,
            max_tokens=self.max_tokens,
            stop_ids=stop_ids,
            temperature=self.sampling.temperature,
            top_k=self.sampling.top_k,
            top_p=self.sampling.top_p,
            seed=self.sampling.seed,
            wants_digests=self.record is not None,
        )
