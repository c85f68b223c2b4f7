"""Prompts: templates write every special token themselves, raw prompts get the tokenizer's own."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from plancc_toy_tokenizer import write_tokenizer
from tokenizers import Tokenizer, processors

from plancc.executor.chat import _lines
from plancc.executor.chat_template import ChatTemplate
from plancc.executor.text import ModelText, read_model_text
from plancc.ir.errors import BadInput

USER = [{"role": "user", "content": "hi"}]


def model_text(folder: Path, **config: Any) -> ModelText:
    """A toy tokenizer that puts <|endoftext|> before a raw text, as Llama's does."""
    write_tokenizer(folder, 300)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return read_model_text(folder, 300)


def test_a_raw_prompt_has_one_bos(tmp_path: Path) -> None:
    text = model_text(tmp_path)
    assert text.encode_raw("hi").count(0) == 1
    assert text.encode_raw("<|endoftext|>hi") == text.encode_raw("hi")


def test_a_template_that_writes_bos_gives_one_and_one_that_does_not_gives_none(
    tmp_path: Path,
) -> None:
    with_bos = model_text(tmp_path, chat_template="{{ bos_token }}{{ messages[0].content }}")
    assert with_bos.encode_chat(USER).count(0) == 1
    without = model_text(tmp_path, chat_template="{{ messages[0].content }}")
    assert without.encode_chat(USER).count(0) == 0


def test_a_template_file_wins_over_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("J{{ messages[0].content }}")
    text = model_text(tmp_path, chat_template="C")
    assert text.decode(text.encode_chat(USER)) == "Jhi"


def test_a_named_default_is_taken_from_a_list_of_templates(tmp_path: Path) -> None:
    rows = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    text = model_text(tmp_path, chat_template=rows)
    assert text.decode(text.encode_chat(USER)) == "D"


def test_no_template_says_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--raw"):
        model_text(tmp_path, chat_template=None).encode_chat(USER)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ raise_exception('no system turns') }}", "chat template: no system turns"),
        ("{{ messages.__class__.__mro__ }}", "sandbox"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "[Rr]ange too big"),
        ("{% if %}", "chat template: "),
        ("{{ messages[5].content }}", "chat template: "),
    ],
)
def test_what_a_template_refuses_or_may_not_do_is_told(source: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        ChatTemplate(source, {}).render(USER)


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "at least one turn"),
        ([{"role": "robot", "content": "x"}], r"messages\[0\].role.*'robot'"),
        ([{"role": "user", "content": None}], r"messages\[0\].content.*NoneType"),
    ],
)
def test_turns_that_are_none_are_named(messages: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        ChatTemplate("x", {}).render(messages)


def test_a_prompt_of_no_token_or_of_no_text_is_refused_in_words(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, 300)
    text = read_model_text(tmp_path, 300)
    with pytest.raises(BadInput, match="the prompt is empty"):
        text.encode_prompt("", is_raw=True)
    assert text.encode_prompt("") == text.encode_chat([{"role": "user", "content": ""}])
    argument = b"what is \xff?".decode(errors="surrogateescape")
    for is_raw in (True, False):
        with pytest.raises(BadInput, match=r"not UTF-8 text: found byte 0xff after 'what is '"):
            text.encode_prompt(argument, is_raw=is_raw)


def test_a_typed_line_that_is_no_text_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n"), encoding="utf-8"))
    with pytest.raises(BadInput, match="the line is not UTF-8 text"):
        list(_lines())


def test_a_missing_and_a_broken_tokenizer_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"tokenizer\.json: no such tokenizer"):
        read_model_text(tmp_path, 300)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(BadInput, match=r"tokenizer\.json: not a tokenizer"):
        read_model_text(tmp_path, 300)
