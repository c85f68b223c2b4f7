"""Which room may import which, read from the source: compiler -> ir, executor -> ir and kernels."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("compiler", "executor", "ir", "kernels")
ALLOWED = {
    "compiler": {"compiler", "ir"},
    "executor": {"executor", "ir", "kernels"},
    "ir": {"ir"},
    "kernels": {"kernels"},
}
# What a room may use besides the standard library.
LIBRARIES = {
    "compiler": {"click", "gguf", "networkx", "numpy", "ortools", "pydantic", "pydantic_core",
                 "rich", "safetensors", "tokenizers", "yaml"},
    "executor": {"click", "jinja2", "numpy", "psutil", "pydantic", "pynvml", "rich",
                 "safetensors", "tokenizers", "torch", "yaml"},
    "ir": {"click", "numpy", "pydantic", "yaml"},
    "kernels": {"llvmlite", "numba", "numpy", "torch", "triton"},
}  # fmt: skip
# Asked for only where they are used: importing them costs more than a quick command may take.
LAZY = {"gguf", "networkx", "ortools", "rich", "safetensors", "tokenizers", "transformers", "yaml"}
JUDGES = ("check.py", "check_ask.py", "check_buffers.py", "check_clock.py", "check_groups.py",
          "check_links.py", "check_memory.py", "check_rank_clock.py", "check_runtime.py",
          "check_time.py", "check_transfers.py")  # fmt: skip


def sources(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def imports(path: Path, *, at_top: bool = False) -> Iterator[tuple[int, str]]:
    """(line, module) of each import; only those that run when the file is imported, if at_top."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    for item in tree.body if at_top else ast.walk(tree):
        if isinstance(item, ast.Import):
            yield from ((item.lineno, alias.name) for alias in item.names)
        elif isinstance(item, ast.ImportFrom):
            module = item.module or ""
            yield item.lineno, "." * item.level + module
            if module == "plancc":
                yield from ((item.lineno, f"plancc.{alias.name}") for alias in item.names)


def breaches(room: str) -> Iterator[str]:
    for path in sources(room):
        for line, module in imports(path):
            where = f"{path.relative_to(ROOT)}:{line}"
            top, *rest = module.split(".")
            if top == "plancc":
                if rest and rest[0] not in ALLOWED[room]:
                    yield f"{where}: {room} may not import {module}"
            elif module.startswith(".") or top in ROOMS:
                yield f"{where}: import plancc.*, not {module}"
            elif top not in sys.stdlib_module_names and top not in LIBRARIES[room]:
                yield f"{where}: {room} may not import {module}"


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_its_arrows_allow(room: str) -> None:
    assert sources(room), f"no sources in {room}"
    assert list(breaches(room)) == []


def test_a_wrong_arrow_would_be_seen(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("def f():\n    from plancc import executor\n    import torch.nn\n")
    found = {module for _, module in imports(file)}
    assert found == {"plancc", "torch.nn", "plancc.executor"}
    assert list(imports(file, at_top=True)) == []


@pytest.mark.parametrize("room", ["compiler", "ir"])
def test_slow_libraries_are_imported_where_they_are_used(room: str) -> None:
    allowed = {
        "compiler/render_explain.py",
        "compiler/render_measured.py",
        "compiler/render_sensitivity.py",
        "compiler/render_show.py",
        "compiler/render_timeline.py",
        "compiler/spinner.py",
    }  # reached only by who draws
    early = [
        f"{path.relative_to(ROOT)}:{line}: {module}"
        for path in sources(room)
        for line, module in imports(path, at_top=True)
        if module.split(".")[0] in LAZY and str(path.relative_to(ROOT)) not in allowed
        and "placement" not in path.parts and "gguf_import" not in path.parts
    ]  # fmt: skip
    assert early == []


@pytest.mark.parametrize("name", JUDGES)
def test_the_checker_shares_nothing_with_what_it_judges(name: str) -> None:
    banned = ("plancc.compiler.placement", "plancc.compiler.cost", "plancc.compiler.freeze",
              "plancc.compiler.links", "plancc.compiler.programs", "plancc.compiler.passes",
              "plancc.compiler.pipeline", "plancc.compiler.api")  # fmt: skip
    found = [module for _, module in imports(ROOT / "compiler" / name)]
    assert [module for module in found if module.startswith(banned)] == []
    own = {f"plancc.compiler.{judge.removesuffix('.py')}" for judge in JUDGES}
    assert {module for module in found if module.startswith("plancc.compiler")} <= own


def test_every_file_of_the_checker_is_among_the_judges() -> None:
    assert sorted(path.name for path in (ROOT / "compiler").glob("check*.py")) == sorted(JUDGES)


@pytest.mark.parametrize("room", ["compiler", "ir"])
def test_no_device_kind_is_known_to_what_decides(room: str) -> None:
    """`kind` is a name for people; a branch on it would tie plans to one maker's devices.

    One place says which kind lays out scratch in blocks where a topology does not.
    """
    known = [
        f"{path.relative_to(ROOT)}:{item.lineno}"
        for path in sources(room)
        for item in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(item, ast.Constant) and item.value in ("cuda", "rocm", "cpu", "mps")
    ]
    assert [place.split(":")[0] for place in known] == ["ir/topology.py"] * (room == "ir")
