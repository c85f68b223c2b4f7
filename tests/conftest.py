"""Golden files: text that is reviewed when it changes. `--update-golden` writes it anew.

And the order of all tests.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

FIRST = ("oracle/test_placement_is_optimal", "executor/test_backend_cpu_bits", "e2e/", "oracle/",
         "compiler/test_golden_plans", "kernels/test_gpu", "compiler/test_explain", "compiler/",
         "kernels/", "executor/")  # fmt: skip
GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest first: a worker that begins it last is alone. Before processes that would
    each compile the CPU kernels, a file that does. pytest-xdist: with --no-loadscope-reorder.
    """
    items.sort(key=lambda item: _place_of(item.nodeid))


def _place_of(nodeid: str) -> int:
    return next((at for at, part in enumerate(FIRST) if part in nodeid), len(FIRST))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Assert that a text equals the golden file of a name, or write it when asked to."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8", newline="\n")
        assert path.exists(), f"no golden file {name}: run pytest --update-golden"
        assert text == path.read_text(encoding="utf-8"), f"{name} differs: see --update-golden"

    return compare
