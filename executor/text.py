"""Text to token ids and back, with what lies beside the weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from plancc.executor.chat_template import ChatTemplate, Message, read_chat_template, special_tokens
from plancc.executor.stop_tokens import read_stop_ids
from plancc.executor.streaming import TextStream
from plancc.ir.errors import BadInput


@dataclass(frozen=True)
class ModelText:
    """A model's tokenizer, its chat template if it has one, and the ids that end an answer."""

    tokenizer: Tokenizer
    template: ChatTemplate | None
    stop_ids: tuple[int, ...]
    bos_id: int | None

    def encode_prompt(
        self, prompt: str, *, system: str | None = None, is_raw: bool = False
    ) -> tuple[int, ...]:
        """Ids of one question: through the chat template if there is one, unless it is to be raw.
        Raises BadInput for no token, for what is no text, and for a system turn without a template.
        """
        if is_raw or (self.template is None and system is None):
            return self.encode_raw(prompt)
        turns = [{"role": "system", "content": system}] if system else []
        return self.encode_chat([*turns, {"role": "user", "content": prompt}])

    def encode_raw(self, text: str) -> tuple[int, ...]:
        """Ids of a plain text, with what the tokenizer adds of its own; never two BOS."""
        _refuse_bytes(text)
        ids = self._ids(text, adds_special=True)
        return tuple(ids[1:] if self.bos_id is not None and ids[:2] == [self.bos_id] * 2 else ids)

    def encode_chat(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Ids of a conversation, ready for the model's turn; the template writes every special
        token itself. Raises BadInput when the model has no template."""
        if self.template is None:
            raise BadInput("the model has no chat template (chat_template.jinja, or chat_template "
                           "in tokenizer_config.json): use --raw")  # fmt: skip
        for message in messages:
            _refuse_bytes(str(message.get("content", "")))
        text = self.template.render(messages)
        return tuple(self._ids(text, adds_special=False))

    def _ids(self, text: str, *, adds_special: bool) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=adds_special).ids
        if not ids:
            raise BadInput("the prompt is empty: it has no token to begin with")
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text

    def stream(self) -> TextStream:
        return TextStream(self.tokenizer)


def _refuse_bytes(text: str) -> None:
    """Raises BadInput for bytes that are not UTF-8: surrogates, as Python reads an argument."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        byte = ord(text[error.start]) & 0xFF
        raise BadInput(f"the prompt is not UTF-8 text: found byte 0x{byte:02x} after "
                       f"{text[: error.start][-20:]!r}") from None  # fmt: skip


def read_model_text(folder: Path, vocab_size: int) -> ModelText:
    """What a model's folder says about text. Raises BadInput naming the file that is wrong."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise BadInput(f"{path}: no such tokenizer; a prompt cannot be read without it")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing more special
        raise BadInput(f"{path}: not a tokenizer: {error}") from None
    bos = special_tokens(folder).get("bos_token")
    return ModelText(
        tokenizer=tokenizer,
        template=read_chat_template(folder),
        stop_ids=read_stop_ids(folder, tokenizer, vocab_size),
        bos_id=tokenizer.token_to_id(bos) if bos is not None else None,
    )
