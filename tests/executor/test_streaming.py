"""S03: whole characters only, nothing taken back, and the sum is what the tokenizer decodes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plancc_toy_tokenizer import byte_alphabet
from tokenizers import Tokenizer, decoders, models

from plancc.executor.streaming import TextStream

BAD = "\ufffd"
WORDS = ["\u2581a", "b", "\u2581", "\u2581\u2581x", "<s>", "\u00e9", BAD, "\U0001f600", ".", "</s>"]


def _fallback(decoder: object) -> Tokenizer:
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)}
    vocab |= {word: 256 + index for index, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.decoder = decoder
    return tokenizer


def llama() -> Tokenizer:
    """SentencePiece as Llama 2 and Mistral have it."""
    return _fallback(
        decoders.Sequence(
            [
                decoders.Replace("\u2581", " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        )
    )


def metaspace() -> Tokenizer:
    return _fallback(decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]))


def byte_level() -> Tokenizer:
    """GPT-2's, with tokens that begin and end within a character."""
    alphabet = byte_alphabet()
    spelled = [b"\xf0\x9f", b"\x98\x80a", "\u00e9\U0001f600".encode(), b"a\xe2", BAD.encode()]
    tokens = [*alphabet, *("".join(alphabet[byte] for byte in word) for word in spelled)]
    vocab = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


TOKENIZERS = {"llama": llama(), "metaspace": metaspace(), "byte level": byte_level()}
BYTES = [0x20, 0x61, 0x80, 0x98, 0x9F, 0xAC, 0x82, 0xC0, 0xE2, 0xED, 0xF0, 0xFF]


def pieces_of(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    stream = TextStream(tokenizer)
    return [*(stream.push(token) for token in ids), stream.finish()]


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_the_pieces_are_the_text_of_all_tokens(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    size = tokenizer.get_vocab_size()
    token = st.sampled_from(BYTES) | st.integers(256, size - 1) | st.integers(0, size - 1)
    ids = data.draw(st.lists(token, max_size=20))
    whole = tokenizer.decode(ids, skip_special_tokens=True)
    stream, sent = TextStream(tokenizer), ""
    for index, one in enumerate(ids):
        sent += stream.push(one)
        assert whole.startswith(sent), f"after {index + 1} of {ids}: {sent!r} is not of {whole!r}"
    assert sent + stream.finish() == whole


def test_an_emoji_of_four_byte_tokens_comes_at_once_and_whole() -> None:
    ids = [0xF0, 0x9F, 0x98, 0x80]
    assert pieces_of(TOKENIZERS["byte level"], [*ids, 0x61]) == [
        "", "", "", "\U0001f600", "a", "",
    ]  # fmt: skip
    # byte fallback cannot know before the run ends: one more bad byte would spoil all of it
    assert pieces_of(TOKENIZERS["llama"], [*ids, 257]) == ["", "", "", "", "\U0001f600b", ""]


def test_a_three_byte_character_split_in_two_tokens() -> None:
    tokenizer = TOKENIZERS["byte level"]
    a_e2 = tokenizer.token_to_id("a" + byte_alphabet()[0xE2])
    assert pieces_of(tokenizer, [a_e2, 0x82, 0xAC]) == ["a", "", "\u20ac", ""]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_lone_continuation_byte_becomes_one_mark_and_does_not_stall(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    plain = 0x62 if name == "byte level" else 257
    assert pieces_of(tokenizer, [0x80, plain])[:2] in (["", BAD + "b"], [BAD, "b"])


@pytest.mark.parametrize("name", TOKENIZERS)
def test_an_endless_run_of_invalid_bytes_goes_on_coming(name: str) -> None:
    stream, sent = TextStream(TOKENIZERS[name]), 0
    for count in range(1, 200):
        sent += len(stream.push(0x80))
        assert sent >= count - 1


@pytest.mark.parametrize("name", TOKENIZERS)
def test_an_answer_cut_after_two_of_four_bytes_ends_as_the_decoder_ends_it(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    pieces = pieces_of(tokenizer, [0x61, 0xF0, 0x9F])
    assert "".join(pieces[:-1]).endswith("a") or not "".join(pieces[:-1])
    assert "".join(pieces) == tokenizer.decode([0x61, 0xF0, 0x9F])


def test_only_the_very_first_leading_space_of_sentencepiece_is_dropped() -> None:
    assert pieces_of(TOKENIZERS["llama"], [256, 256, 257, 256]) == ["a", " a", "b", " a", ""]
    assert "".join(pieces_of(TOKENIZERS["llama"], [258, 256])) == " a"


def test_a_special_token_within_a_run_of_bytes_does_not_end_it() -> None:
    tokenizer = TOKENIZERS["llama"]
    special = tokenizer.token_to_id("<s>")
    assert "".join(pieces_of(tokenizer, [0xE2, 0x82, special, 0xAC, 257])) == "\u20acb"


def test_a_long_answer_costs_the_same_a_token() -> None:
    stream = TextStream(TOKENIZERS["byte level"])
    for _ in range(500):
        stream.push(0x61)
    assert len(stream._context) + len(stream._held) < 5
