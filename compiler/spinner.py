"""A sign of life on stderr for work that takes longer than a second, where someone looks."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE_S = 1.0


@contextmanager
def spinner(words: str) -> Iterator[None]:
    """Show `words` beside a spinner while the block runs, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_spin, args=(words, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _spin(words: str, done: threading.Event) -> None:
    if done.wait(PATIENCE_S):
        return
    from rich.console import Console  # nobody pays for it who does not wait

    with Console(stderr=True).status(words):
        done.wait()
