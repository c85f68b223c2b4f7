"""Files of at most 250 lines, functions of at most 40: what a reader can hold at once."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAX_FILE_LINES = 250
MAX_FUNCTION_LINES = 40
SOURCES = sorted(
    path
    for room in ("compiler", "executor", "ir", "kernels")
    for path in (ROOT / room).rglob("*.py")
)
BANNED_NAMES = {"util.py", "utils.py", "helpers.py", "common.py", "misc.py", "manager.py"}


def function_lines(item: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body, its docstring left out: contracts may be long, code may not."""
    first = item.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    start = item.body[1].lineno if documented and len(item.body) > 1 else first.lineno
    return (item.end_lineno or start) - start + 1


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_source_file_is_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_FILE_LINES
    long = [
        f"{item.name}: {function_lines(item)} lines"
        for item in ast.walk(ast.parse(text))
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
        and function_lines(item) > MAX_FUNCTION_LINES
    ]
    assert long == []
    assert path.name not in BANNED_NAMES
    assert text.isascii() or path.name == "render_bars.py"
