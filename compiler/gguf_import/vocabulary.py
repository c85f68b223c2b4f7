"""What GGUF says of a tokenizer, as plain values."""

from dataclasses import dataclass

from plancc.compiler.gguf_import.gguf_file import GgufFile
from plancc.ir.errors import BadInput

UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4  # token types of GGUF
_NORMAL = 1
_BEGINS_WITH_BOS = ("llama-bpe", "llama3", "llama-v3")


@dataclass(frozen=True)
class Vocabulary:
    """`model` is GGUF's: gpt2 (byte-level, with merges) or llama (SentencePiece, with scores)."""

    where: str
    model: str
    pre: str  # name of the split into words, gpt2 only
    tokens: tuple[str, ...]
    types: tuple[int, ...]
    merges: tuple[str, ...]
    scores: tuple[float, ...]
    special: dict[str, int]  # bos, eos, unk, pad
    add_bos: bool
    add_eos: bool
    add_space_prefix: bool
    chat_template: str | None

    def of_type(self, kind: int) -> list[str]:
        """Tokens of one type, by id."""
        return [text for text, found in zip(self.tokens, self.types, strict=True) if found == kind]


def read_vocabulary(file: GgufFile, vocab_size: int) -> Vocabulary:
    """The tokenizer's fields. Raises BadInput where they are absent or contradict each other."""
    tokens = tuple(file.need("tokenizer.ggml.tokens"))
    where = str(file.path)
    if len(tokens) != vocab_size:
        raise BadInput(f"{where}: field tokenizer.ggml.tokens: expected {vocab_size} tokens (rows "
                       f"of token_embd.weight), found {len(tokens)}")  # fmt: skip
    if len(set(tokens)) != len(tokens):
        raise BadInput(f"{where}: field tokenizer.ggml.tokens: expected each token once, found "
                       f"{len(tokens) - len(set(tokens))} doubled")  # fmt: skip
    types = tuple(file.get("tokenizer.ggml.token_type", [_NORMAL] * len(tokens)))
    if len(types) != len(tokens):
        raise BadInput(f"{where}: field tokenizer.ggml.token_type: expected {len(tokens)} types, "
                       f"found {len(types)}")  # fmt: skip
    model = str(file.need("tokenizer.ggml.model"))
    pre = str(file.get("tokenizer.ggml.pre", "default"))
    begins = model == "llama" or pre in _BEGINS_WITH_BOS
    return Vocabulary(
        where=where,
        model=model,
        pre=pre,
        tokens=tokens,
        types=types,
        merges=tuple(file.get("tokenizer.ggml.merges", [])),
        scores=tuple(file.get("tokenizer.ggml.scores", [])),
        special=_special(file, len(tokens)),
        add_bos=bool(file.get("tokenizer.ggml.add_bos_token", begins)),
        add_eos=bool(file.get("tokenizer.ggml.add_eos_token", False)),
        add_space_prefix=bool(file.get("tokenizer.ggml.add_space_prefix", True)),
        chat_template=file.get("tokenizer.chat_template"),
    )


def _special(file: GgufFile, num_tokens: int) -> dict[str, int]:
    """The ids that have a name in tokenizer_config.json; those that end a turn are checked too."""
    names = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
    found: dict[str, int] = {}
    for theirs, ours in (names | {"eot": None, "eom": None}).items():
        key = f"tokenizer.ggml.{theirs}_token_id"
        token = file.get(key)
        if token is None:
            continue
        if not 0 <= token < num_tokens:
            raise BadInput(f"{file.path}: field {key}: expected an id below {num_tokens}, found "
                           f"{token}")  # fmt: skip
        if ours is not None:
            found[ours] = int(token)
    return found
