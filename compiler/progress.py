"""A bar of bytes on stderr while something long goes on; silent where stderr is no terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class ByteBar:
    start: Callable[[int], None]  # hears the total once it is known
    advance: Callable[[int], None]  # hears each further piece


@contextmanager
def byte_bar(what: str) -> Iterator[ByteBar]:
    """A bar that appears with its first total and is gone when the work ends."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    columns = ("{task.description}", BarColumn(), DownloadColumn(True), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(what, total=None)
        yield ByteBar(
            start=lambda total: progress.update(task, total=total),
            advance=lambda num_bytes: progress.advance(task, num_bytes),
        )
