"""A byte-level BPE tokenizer of any size from 64 ids, with a ChatML template.

Ids 0..2 are SPECIAL_TOKENS. With 259 ids or more every byte has a token, so any text round-trips
and one character may span several tokens; with fewer, what has no token becomes <|endoftext|>.
"""

import json
from pathlib import Path
from typing import Any

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_MERGES = (
    "Ġ t", "h e", "Ġ a", "Ġt he", "i n", "r e", "o n", "Ġ w", "e r", "Ġ s", "n d", "o u", "i s",
    "e n", "a t", "Ġ o", "i t", "o r", "Ġ c", "e s", "in g", "Ġo f", "Ġa nd", "l l", "Ġ b", "ou r",
)  # fmt: skip


def byte_alphabet() -> list[str]:
    """GPT-2's character for each byte: itself where printable, else one from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in printable]
    chars = {byte: chr(byte) for byte in printable}
    chars |= {byte: chr(256 + index) for index, byte in enumerate(hidden)}
    return [chars[byte] for byte in range(256)]


def write_tokenizer(folder: Path, vocab_size: int) -> None:
    """tokenizer.json, tokenizer_config.json and special_tokens_map.json."""
    endoftext, _, im_end = SPECIAL_TOKENS
    names = {"bos_token": endoftext, "eos_token": im_end, "unk_token": endoftext}
    _write(folder / "tokenizer.json", _tokenizer(vocab_size))
    _write(folder / "special_tokens_map.json", names)
    _write(
        folder / "tokenizer_config.json",
        names
        | {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "add_bos_token": False,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )


def _tokenizer(vocab_size: int) -> dict[str, Any]:
    tokens, merges = toy_vocabulary(vocab_size)
    vocab = {token: index for index, token in enumerate(tokens)}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": index, "content": text, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": True}
            for index, text in enumerate(SPECIAL_TOKENS)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                          "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                    "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": SPECIAL_TOKENS[0],
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": merges},
    }  # fmt: skip


def toy_vocabulary(vocab_size: int) -> tuple[list[str], list[list[str]]]:
    """Tokens by id (special ones, bytes from letters and blanks on, merged ones), and merges."""
    order = [*b" \nabcdefghijklmnopqrstuvwxyz.,?!'ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"]
    order += [byte for byte in range(256) if byte not in order]
    alphabet = byte_alphabet()
    tokens = [*SPECIAL_TOKENS, *(alphabet[byte] for byte in order)][:vocab_size]
    merges = []
    for pair in _MERGES[: max(0, vocab_size - len(tokens))]:
        left, right = pair.split(" ")
        tokens.append(left + right)
        merges.append([left, right])
    return tokens, merges


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
