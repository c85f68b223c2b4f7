"""What planrun says on stderr: the load's progress, and what a run took."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from plancc.executor.seats import seats_of
from plancc.executor.session import OnLoad
from plancc.executor.weights import Weights, piece_bytes, pieces_of
from plancc.ir.plan import Plan

_MANY_BYTES = 2**28


def notes() -> Console:
    """stderr, without colours of its own."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def load_bytes(plan: Plan, weights: Weights) -> dict[str, int]:
    """What each worker is to read."""
    entries = weights.index.by_name()
    total: dict[str, int] = {}
    for seat in seats_of(plan):
        size = sum(piece_bytes(p, entries[p.spec.name]) for p in pieces_of(plan, seat))
        total[seat.worker] = total.get(seat.worker, 0) + size
    return total


@contextmanager
def hash_bar() -> Iterator[Callable[[int], None]]:
    """Bytes hashed so far, shown once they are many."""
    console = notes()
    columns = (TextColumn("checking weights"), DownloadColumn(), TransferSpeedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=None, visible=False)
        done = 0

        def on_hashed(num_bytes: int) -> None:
            nonlocal done
            done += num_bytes
            bar.update(task, completed=done, visible=done > _MANY_BYTES)

        yield on_hashed


@contextmanager
def load_bars(plan: Plan, weights: Weights) -> Iterator[OnLoad]:
    """A bar for each worker while it loads; silent where stderr is no terminal."""
    console = notes()
    columns = (TextColumn("loading {task.description}"), BarColumn(), DownloadColumn(),
               TransferSpeedColumn())  # fmt: skip
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        tasks = {
            name: bar.add_task(name, total=total)
            for name, total in load_bytes(plan, weights).items()
        }

        def on_load(done: dict[str, int]) -> None:
            for name, size in done.items():
                bar.update(tasks[name], completed=size)

        yield on_load


def timing_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """A run's timings, one subject a line."""
    load, prefill, decode = report["load"], report["prefill"], report["decode"]
    yield (
        f"load    {_size(load['bytes'])} in {load['seconds']:.2f} s, "
        f"{load['gb_s']:.2f} GB/s (memory and kernels {load['open_seconds']:.1f} s; ready after "
        f"{load['ready_seconds']:.1f} s)"
    )
    yield (
        f"prompt  {prefill['tokens']} tokens in {prefill['seconds']:.2f} s, "
        f"{prefill['tokens_per_s']:.1f} tok/s"
    )
    if decode["steps"]:
        yield (
            f"decode  {decode['steps']} steps in {decode['seconds']:.2f} s, "
            f"{decode['tokens_per_s']:.1f} tok/s; median step {decode['p50_ms']:.2f} ms "
            f"(predicted {decode['predicted_ms']:.2f} ms at the full context)"
        )
    for hop in report["hops"]:
        what = {"hidden": "rows", "partial": "partial rows"}.get(hop["payload"], "step")
        yield (
            f"hop     {what} from rank {hop['from']} to {hop['to']}: median "
            f"{hop['median_us']:.0f} us of {hop['count']}"
        )


def _size(num_bytes: int) -> str:
    """In the units of the rate beside it."""
    return f"{num_bytes / 1e9:.2f} GB" if num_bytes >= 10**9 else f"{num_bytes / 1e6:.1f} MB"
