"""A model's chat template: turns of a conversation to the text that the model was trained on."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from plancc.ir.document import read_json, read_text
from plancc.ir.errors import BadInput

ROLES = ("system", "user", "assistant", "tool")
Message = Mapping[str, Any]


@dataclass(frozen=True)
class ChatTemplate:
    """A template with the model's own special tokens, by name."""

    source: str
    tokens: Mapping[str, str]

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """The conversation as text, special tokens included.

        The template runs sandboxed. Raises BadInput with its own message where it refuses.
        """
        from jinja2 import TemplateError
        from jinja2.exceptions import SecurityError

        check_messages(messages)
        try:
            template = _environment().from_string(self.source)
            text: str = template.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=add_generation_prompt,
                **self.tokens,
            )
            return text
        except SecurityError as error:
            raise BadInput(f"chat template: not allowed in the sandbox: {error}") from None
        except (TemplateError, TypeError, ValueError, OverflowError, LookupError) as error:
            raise BadInput(f"chat template: {error}") from None


def check_messages(messages: Sequence[Message]) -> None:
    """Raises BadInput naming the turn that is no turn."""
    if not messages:
        raise BadInput("messages: expected at least one turn, found none")
    for index, message in enumerate(messages):
        if message.get("role") not in ROLES:
            raise BadInput(f"messages[{index}].role: expected one of {', '.join(ROLES)}, found "
                           f"{message.get('role')!r}")  # fmt: skip
        if not isinstance(message.get("content"), str):
            raise BadInput(f"messages[{index}].content: expected text, found "
                           f"{type(message.get('content')).__name__}")  # fmt: skip


def read_chat_template(folder: Path) -> ChatTemplate | None:
    """chat_template.jinja, else the one in tokenizer_config.json (its `default`, where several)."""
    config = read_config(folder, "tokenizer_config.json")
    path = folder / "chat_template.jinja"
    source = read_text(path, "template") if path.is_file() else config.get("chat_template")
    if isinstance(source, list):
        named = {row["name"]: row["template"] for row in source}
        source = named.get("default") or next(iter(named.values()), None)
    if not source:
        return None
    return ChatTemplate(str(source), special_tokens(folder))


def special_tokens(folder: Path) -> dict[str, str]:
    """bos_token, eos_token and their like, as text."""
    rows = read_config(folder, "special_tokens_map.json")
    rows |= read_config(folder, "tokenizer_config.json")
    tokens = {}
    for name, value in rows.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            tokens[name] = text
    return tokens


def read_config(folder: Path, name: str) -> dict[str, Any]:
    """A JSON object beside the weights; {} where there is none."""
    path = folder / name
    if not path.is_file():
        return {}
    value = read_json(path, "configuration")
    if not isinstance(value, dict):
        raise BadInput(f"{path}: expected an object, found {type(value).__name__}")
    return value


def _environment() -> Any:
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _to_json(value: Any, indent: int | None = None) -> str:
    """Not jinja's own, which escapes for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)
