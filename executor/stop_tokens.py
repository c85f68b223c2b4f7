"""Which tokens end an answer: every file of a model that names one is heard."""

from pathlib import Path

from tokenizers import Tokenizer

from plancc.executor.chat_template import read_config, special_tokens
from plancc.ir.errors import BadInput

_FILES = ("config.json", "generation_config.json")


def read_stop_ids(folder: Path, tokenizer: Tokenizer, vocab_size: int) -> tuple[int, ...]:
    """eos_token_id (an id or a list) of both configs, and the tokenizer's eos_token; ascending.

    Raises BadInput for an id that is no token of the model. () where no file names one: such an
    answer ends by its length.
    """
    found: set[int] = set()
    for name in _FILES:
        value = read_config(folder, name).get("eos_token_id")
        for token in value if isinstance(value, list) else [value]:
            if token is not None:
                found.add(_checked(token, folder / name, vocab_size))
    text = special_tokens(folder).get("eos_token")
    if text is not None and (token := tokenizer.token_to_id(text)) is not None:
        found.add(_checked(token, folder / "tokenizer_config.json", vocab_size))
    return tuple(sorted(found))


def _checked(token: object, path: Path, vocab_size: int) -> int:
    if type(token) is not int or not 0 <= token < vocab_size:
        raise BadInput(f"{path}: field eos_token_id: expected ids from 0 to {vocab_size - 1}, "
                       f"found {token!r}")  # fmt: skip
    return token
