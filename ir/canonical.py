"""One byte form of a document, and its digest.

Fixed key order (that of the models), LF, two spaces of indent, and whatever fits in a line of 100
characters on one line: so a changed value is a changed line, and a diff can be read.
"""

import hashlib
import json
from typing import Any

_WIDTH = 100


def to_json(value: Any) -> str:
    """Text of plain data, ending in a newline; the same data always gives the same text."""
    return _render(value, indent=0, used=0) + "\n"


def sha256_of(value: Any) -> str:
    """Hex sha256 of plain data in its shortest form, keys in the order given."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _render(value: Any, indent: int, used: int) -> str:
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if (
        (indent > 0 and used + len(line) <= _WIDTH)
        or not value
        or not isinstance(value, dict | list)
    ):
        return line
    pad, inner = "  " * indent, "  " * (indent + 1)
    if isinstance(value, list):
        rows = [_render(item, indent + 1, len(inner)) for item in value]
        return "[\n" + ",\n".join(inner + row for row in rows) + f"\n{pad}]"
    heads = [f"{inner}{json.dumps(key, ensure_ascii=False)}: " for key in value]
    rows = [
        head + _render(item, indent + 1, len(head))
        for head, item in zip(heads, value.values(), strict=True)
    ]
    return "{\n" + ",\n".join(rows) + f"\n{pad}}}"
