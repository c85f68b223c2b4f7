"""Text of a growing answer, piece by piece: whole characters only, and never taken back.

The pieces of a stream, joined, are what the tokenizer's own decoder makes of all tokens at once.
Two kinds of decoder let later tokens change earlier text, so text is held back until they cannot:

byte level     every token is bytes, and invalid UTF-8 becomes U+FFFD. Only a last, incomplete
               character can change; it shows as one trailing U+FFFD.
byte fallback  a run of tokens <0xNN> becomes its text if the whole run is UTF-8, else one U+FFFD
               a byte. A run is held while it may still turn out either way: until it ends, or
               until no further byte can make it valid.

Tokens are decoded again from the last point at which everything before had been sent, with one
token of context (decoders treat the first token of a text in their own way), so a step costs the
same however long the answer is.
"""

import json
import re
from collections.abc import Sequence

from tokenizers import Tokenizer

_REPLACEMENT = "\ufffd"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TextStream:
    """One answer. `push` returns text that is final; `finish` returns the rest, once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self._special = {token for token, added_token in added.items() if added_token.special}
        self._is_fallback = "ByteFallback" in _decoder_kinds(tokenizer)
        self._context: list[int] = []  # sent whole, decoded again only for what follows
        self._held: list[int] = []
        self._sent = ""  # of the text of context and held

    def push(self, token: int) -> str:
        """Text that this token makes final; often "" for a part of a character."""
        if token in self._special or self._tokenizer.id_to_token(token) is None:
            return ""
        self._held.append(token)
        final = self._final_text()
        piece = final[len(self._sent) :]
        self._sent = final if piece else self._sent
        if len(self._sent) == len(self._text(self._held)) and not self._ends_in_bytes():
            self._start_anew()
        return piece

    def finish(self) -> str:
        """What is still held, as the decoder gives it for a text that ends here."""
        rest = self._text(self._held)[len(self._sent) :]
        self._context, self._held, self._sent = [], [], ""
        return rest

    def _start_anew(self) -> None:
        """Everything is sent: keep the last token that left text, as context."""
        self._context = [*self._context, *self._held]
        while len(self._context) > 1 and self._decode(self._context[1:]):
            self._context.pop(0)
        self._held, self._sent = [], self._decode(self._context)

    def _final_text(self) -> str:
        """The text so far, less what later tokens could change."""
        if self._is_fallback:
            return self._text(self._held[: self._open_run()])
        text = self._text(self._held)
        return text[:-1] if text.endswith(_REPLACEMENT) else text

    def _open_run(self) -> int:
        """Where the trailing run of byte tokens begins, if it may still become text or not."""
        data, start = bytearray(), len(self._held)
        while start and (byte := self._byte(self._held[start - 1])) is not None:
            data.insert(0, byte)
            start -= 1
        return start if data and _may_become_text(data) else len(self._held)

    def _ends_in_bytes(self) -> bool:
        return self._is_fallback and bool(self._held) and self._byte(self._held[-1]) is not None

    def _byte(self, token: int) -> int | None:
        match = _BYTE_TOKEN.fullmatch(self._tokenizer.id_to_token(token) or "")
        return int(match.group(1), 16) if match else None

    def _text(self, tokens: Sequence[int]) -> str:
        return self._decode([*self._context, *tokens])

    def _decode(self, tokens: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text


def _may_become_text(data: bytes | bytearray) -> bool:
    """True if the bytes are UTF-8, or are its beginning."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return True


def _decoder_kinds(tokenizer: Tokenizer) -> set[str]:
    """Types in the tokenizer's decoder, sequences opened."""
    decoder = json.loads(tokenizer.to_str()).get("decoder") or {}
    parts = decoder.get("decoders", [decoder])
    return {part.get("type", "") for part in parts}
