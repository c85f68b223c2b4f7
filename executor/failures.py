"""What can end a request or a run, told apart by what has to be done about it. No torch."""

from plancc.ir.errors import BadInput, RunFailed


class ContextExceeded(BadInput):
    """The prompt leaves no room for a token."""

    def __init__(self, num_tokens: int, context: int) -> None:
        super().__init__(
            f"the prompt has {num_tokens} tokens; the plan's context is {context} a slot, so a "
            f"prompt may have at most {context - 1}. Shorten it, or compile with a larger --context"
        )
        self.num_tokens, self.context = num_tokens, context


class NonFinite(RunFailed):
    """Logits that no token can be drawn from; the stages themselves are sound."""

    def __init__(self, position: int) -> None:
        super().__init__(f"the logits for position {position} are not finite")
        self.position = position


class LinkBroken(RunFailed):
    """The other process of a link is gone; who died first is for the launcher to say."""


class Closed(RunFailed):
    """The other side of a control connection has gone."""
