"""Tokenizers built from GGUF fields split and merge as the models' own do."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_gguf import Gguf, write_gguf
from tokenizers import Regex, Tokenizer, pre_tokenizers
from transformers.convert_slow_tokenizer import TikTokenConverter
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from plancc.compiler.gguf_import.import_gguf import import_gguf
from plancc.compiler.gguf_import.tokenizer_json import build_tokenizer
from plancc.compiler.gguf_import.vocabulary import Vocabulary
from plancc.compiler.gguf_import.word_splits import word_split

TEXTS = [
    "Hello world! It's 2024, we'LL see.",
    "  two  blanks\tand tabs \n\n  lines\r\n",
    "1234567 3.14159 x86_64 \u00bd \u2463",
    "Caf\u00e9 de\u0301ja\u0300 vu, na\u00efve",
    "emoji \U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 flag \U0001f1eb\U0001f1f7",
    "\u65e5\u672c\u8a9e\u30c6\u30ad\u30b9\u30c8 \u0e44\u0e17\u0e22 \u0627\u0644",
    "if(a<b){return ~c^d;} // $x+=1|2",
    "",
    " ",
]


def words(split: Any, text: str) -> list[str]:
    return [word for word, _ in split.pre_tokenize_str(text)]


def split_by(*patterns: Any) -> Any:
    steps = [pre_tokenizers.Split(Regex(each), "isolated") if isinstance(each, str) else each
             for each in patterns]  # fmt: skip
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*steps, bytes_only])


GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)  # has its own expression


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-2", GPT2),
        ("smollm", pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), GPT2])),
        ("llama-bpe", split_by(TikTokenConverter().pattern)),
        ("qwen2", split_by(PRETOKENIZE_REGEX)),
    ],
)
@pytest.mark.parametrize("text", TEXTS)
def test_words_are_split_as_in_the_published_tokenizer(name: str, expected: Any, text: str) -> None:
    assert words(word_split(name), text) == words(expected, text)


def test_the_default_split_keeps_punctuation_and_digits_apart() -> None:
    assert words(word_split("default"), "ab12345, c++") == ["ab", "123", "45", ",", "\u0120c", "++"]


def test_a_byte_level_tokenizer_comes_back_as_it_went_in(tmp_path: Path) -> None:
    spec = TinyLlama(vocab_size=285)
    original = write_checkpoint(tmp_path / "original", spec)
    import_gguf(write_gguf(tmp_path / "toy.gguf", Gguf(spec)), tmp_path / "imported")
    one = Tokenizer.from_file(str(original / "tokenizer.json"))
    two = Tokenizer.from_file(str(tmp_path / "imported" / "tokenizer.json"))
    for text in [*TEXTS, "<|im_start|>user\nhi<|im_end|>\n"]:
        assert one.encode(text).ids == two.encode(text).ids
        assert two.decode(one.encode(text).ids) == one.decode(one.encode(text).ids)
    configs = [json.loads((folder / "tokenizer_config.json").read_text())
               for folder in (original, tmp_path / "imported")]  # fmt: skip
    for key in ("bos_token", "eos_token", "add_bos_token", "chat_template"):
        assert configs[0][key] == configs[1][key]


def test_control_tokens_are_special_and_user_tokens_are_only_whole(tmp_path: Path) -> None:
    spec = TinyLlama(vocab_size=285)
    types = [3, 3, 3] + [1] * 281 + [4]
    made = Gguf(spec, fields={"tokenizer.ggml.token_type": types})
    import_gguf(write_gguf(tmp_path / "toy.gguf", made), tmp_path / "toy")
    tokenizer = Tokenizer.from_file(str(tmp_path / "toy" / "tokenizer.json"))
    special = {token.content: token.special
               for token in tokenizer.get_added_tokens_decoder().values()}  # fmt: skip
    assert special == {"<|endoftext|>": True, "<|im_start|>": True, "<|im_end|>": True,
                       tokenizer.id_to_token(284): False}  # fmt: skip
    ids = tokenizer.encode("<|im_start|>a<|im_end|>").ids
    assert (ids[0], ids[-1], len(ids)) == (1, 2, 3)
    assert tokenizer.decode(ids) == "a"


@pytest.mark.parametrize(
    ("pre", "fields", "begins"),
    [
        ("gpt-2", {}, False),
        ("llama-bpe", {}, True),
        ("gpt-2", {"tokenizer.ggml.add_bos_token": True}, True),
        ("llama-bpe", {"tokenizer.ggml.add_bos_token": False}, False),
    ],
)
def test_a_text_begins_with_bos_where_the_model_wants_it(
    tmp_path: Path, pre: str, fields: dict[str, Any], begins: bool
) -> None:
    import_gguf(write_gguf(tmp_path / "toy.gguf", Gguf(pre=pre, fields=fields)), tmp_path / "toy")
    tokenizer = Tokenizer.from_file(str(tmp_path / "toy" / "tokenizer.json"))
    ids = tokenizer.encode("ab").ids
    assert (ids[0] == 0) == begins
    assert tokenizer.encode("ab", add_special_tokens=False).ids == ids[int(begins) :]
    said = json.loads((tmp_path / "toy" / "tokenizer_config.json").read_text())["add_bos_token"]
    assert said == begins


@pytest.fixture(scope="module")
def pieces() -> dict[str, Any]:
    text = Path(__file__).with_name("sentencepiece_700.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def sentence_piece(pieces: dict[str, Any]) -> Vocabulary:
    return Vocabulary(
        where="toy.gguf", model="llama", pre="default", tokens=tuple(pieces["pieces"]),
        types=tuple(pieces["types"]), merges=(), scores=tuple(pieces["scores"]),
        special={"unk": 0, "bos": 1, "eos": 2}, add_bos=True, add_eos=False,
        add_space_prefix=True, chat_template=None)  # fmt: skip


def test_a_scored_vocabulary_encodes_as_sentencepiece_encodes(pieces: dict[str, Any]) -> None:
    tokenizer = build_tokenizer(sentence_piece(pieces))
    assert len(pieces["encoded"]) > 8
    for text, ids in pieces["encoded"]:
        assert tokenizer.encode(text).ids == [1, *ids], text
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_a_text_may_end_with_eos_and_begin_without_a_blank(pieces: dict[str, Any]) -> None:
    vocabulary = replace(sentence_piece(pieces), add_bos=False, add_eos=True,
                         add_space_prefix=False)  # fmt: skip
    tokenizer = build_tokenizer(vocabulary)
    ids = tokenizer.encode("the").ids
    assert ids[-1] == 2
    assert not tokenizer.id_to_token(ids[0]).startswith("\u2581")
    assert tokenizer.decode(ids) == "the"
