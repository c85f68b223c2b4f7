"""tokenizer.json and its two companions, built with `tokenizers` from GGUF's fields."""

from typing import TYPE_CHECKING, Any

from plancc.compiler.gguf_import.vocabulary import CONTROL, UNKNOWN, USER_DEFINED, Vocabulary
from plancc.compiler.gguf_import.word_splits import WORD_SPLITS, word_split
from plancc.ir.errors import BadInput

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SPACE = "\u2581"  # SentencePiece's visible blank
_KEEPS_WHOLE_WORDS = ("llama-bpe", "llama3", "llama-v3")  # a word in the vocabulary is not split


def build_tokenizer(vocabulary: Vocabulary) -> "Tokenizer":
    """A tokenizer that encodes as the GGUF file says.

    Raises BadInput for a model or a word split that is not known here.
    """
    builders = {"gpt2": _byte_level, "llama": _sentence_piece}
    if vocabulary.model not in builders:
        raise BadInput(f"{vocabulary.where}: field tokenizer.ggml.model: expected one of "
                       f"{', '.join(builders)}, found {vocabulary.model!r}")  # fmt: skip
    tokenizer = builders[vocabulary.model](vocabulary)
    _add_tokens(tokenizer, vocabulary)
    _add_ends(tokenizer, vocabulary)
    return tokenizer


def tokenizer_config(vocabulary: Vocabulary, max_context: int) -> dict[str, Any]:
    """tokenizer_config.json: names of special tokens, and the chat template."""
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": vocabulary.add_bos,
        "add_eos_token": vocabulary.add_eos,
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_context,
    }
    config |= special_tokens_map(vocabulary)
    if vocabulary.chat_template:
        config["chat_template"] = vocabulary.chat_template
    return config


def special_tokens_map(vocabulary: Vocabulary) -> dict[str, str]:
    return {f"{name}_token": vocabulary.tokens[token]
            for name, token in vocabulary.special.items()}  # fmt: skip


def _byte_level(vocabulary: Vocabulary) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, normalizers

    if vocabulary.pre not in WORD_SPLITS:
        raise BadInput(f"{vocabulary.where}: field tokenizer.ggml.pre: expected one of "
                       f"{', '.join(WORD_SPLITS)}, found {vocabulary.pre!r}")  # fmt: skip
    model = models.BPE(
        vocab=_ids(vocabulary),
        merges=[_pair(merge, vocabulary.where) for merge in vocabulary.merges],
        ignore_merges=vocabulary.pre in _KEEPS_WHOLE_WORDS,
        fuse_unk=False,
        byte_fallback=False,
    )
    tokenizer = Tokenizer(model)
    if vocabulary.pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = word_split(vocabulary.pre)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentence_piece(vocabulary: Vocabulary) -> "Tokenizer":
    """SentencePiece's BPE: the pair whose merged piece scores best is merged first."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    if len(vocabulary.scores) != len(vocabulary.tokens):
        raise BadInput(
            f"{vocabulary.where}: field tokenizer.ggml.scores: expected "
            f"{len(vocabulary.tokens)} scores, found {len(vocabulary.scores)}"
        )
    unknown = vocabulary.of_type(UNKNOWN)
    model = models.BPE(
        vocab=_ids(vocabulary),
        merges=piece_merges(vocabulary),
        unk_token=unknown[0] if unknown else None,
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    steps: list[Any] = [normalizers.Prepend(_SPACE)] if vocabulary.add_space_prefix else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE)])
    undo: list[Any] = [decoders.Strip(" ", 1, 0)] if vocabulary.add_space_prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *undo]
    )
    return tokenizer


def piece_merges(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Every way to make a piece of two others, best score first; equal scores by id."""
    normal = {
        text: (-score, index)
        for index, (text, kind, score) in enumerate(
            zip(vocabulary.tokens, vocabulary.types, vocabulary.scores, strict=True)
        )
        if kind not in (CONTROL, UNKNOWN)
    }
    found = []
    for text, rank in normal.items():
        for border in range(1, len(text)):
            left, right = text[:border], text[border:]
            if left in normal and right in normal:
                found.append((rank, border, left, right))
    return [(left, right) for _, _, left, right in sorted(found)]


def _ids(vocabulary: Vocabulary) -> dict[str, int]:
    return {token: index for index, token in enumerate(vocabulary.tokens)}


def _pair(merge: str, where: str) -> tuple[str, str]:
    parts = merge.split(" ")
    if len(parts) != 2:
        raise BadInput(
            f"{where}: field tokenizer.ggml.merges: expected two pieces, found {merge!r}"
        )
    return parts[0], parts[1]


def _add_tokens(tokenizer: "Tokenizer", vocabulary: Vocabulary) -> None:
    """Control tokens are special (left out of decoded text); user-defined ones are only whole."""
    from tokenizers import AddedToken

    special = vocabulary.of_type(CONTROL)
    if vocabulary.model == "llama":
        special = vocabulary.of_type(UNKNOWN) + special
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    tokenizer.add_tokens(
        [AddedToken(t, special=False, normalized=False) for t in vocabulary.of_type(USER_DEFINED)]
    )


def _add_ends(tokenizer: "Tokenizer", vocabulary: Vocabulary) -> None:
    """The begin and end tokens that a plain text gets; a chat template writes its own."""
    from tokenizers import processors

    ends = {"bos": vocabulary.add_bos, "eos": vocabulary.add_eos}
    ids = {name: vocabulary.special[name] for name in ends
           if ends[name] and name in vocabulary.special}  # fmt: skip
    if not ids:
        return
    tokens = {name: vocabulary.tokens[token] for name, token in ids.items()}
    first, last = tokens.get("bos"), tokens.get("eos")
    single = [part for part in (first, "$A", last) if part]
    pair = [*single, *(f"{part}:1" for part in (first, "$B", last) if part)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single,
        pair=pair,
        special_tokens=[(tokens[name], token) for name, token in ids.items()],
    )
