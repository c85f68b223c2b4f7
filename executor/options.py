"""What was asked of planrun, as its modules hand it on."""

from dataclasses import dataclass
from pathlib import Path

from plancc.executor.request import Request
from plancc.executor.sampling import Sampling


@dataclass(frozen=True)
class Options:
    """The flags of one planrun."""

    plan: Path
    prompts: tuple[str, ...]
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
    alt_weights: Path | None = None
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


def flags_problem(options: Options) -> str | None:
    """Why flags do not go together, if they do not."""
    has_prompt, verifies = bool(options.prompts), options.verify is not None
    num_modes = options.chat + options.bench + verifies
    if num_modes > 1 or not (num_modes or has_prompt or options.dry_run):
        return "say one of --prompt TEXT, --chat, --bench, --verify or --dry-run"
    if options.raw and (options.chat or options.system is not None):
        return "--raw uses no chat template: it goes with neither --chat nor --system"
    if options.bench and options.prompt_tokens is not None and has_prompt:
        return "--prompt-tokens says how long a prompt without words is"
    if options.chat and options.as_json:
        return "--chat writes no JSON: leave out --json"
    return _lonely_flag(options, has_prompt=has_prompt, verifies=verifies)


def _lonely_flag(options: Options, *, has_prompt: bool, verifies: bool) -> str | None:
    """The first flag that means nothing without another one."""
    is_alone = not (options.chat or options.bench or verifies)
    has_words = has_prompt or options.chat
    rows = (
        ("--prompt", has_prompt, "--bench, --verify or no other", not options.chat),
        ("--prompt, said again,", len(options.prompts) > 1, "--verify", verifies),
        ("--raw", options.raw, "--prompt", has_prompt),
        ("--system", options.system is not None, "--prompt or --chat", has_words),
        ("--record", options.record is not None, "--prompt", has_prompt and is_alone),
        ("--report", options.report is not None, "--bench", options.bench),
        ("--repeat", options.repeat != 1, "--bench", options.bench),
        ("--prompt-tokens", options.prompt_tokens is not None, "--bench", options.bench),
        ("--alt-weights", options.alt_weights is not None, "--verify", verifies),
    )
    return next((f"{name} goes with {needs}" for name, is_given, needs, is_there in rows
                 if is_given and not is_there), None)  # fmt: skip
