"""A beat: what stages that work at the same time can each be given, again and again.

Stages that share a device take turns on it. So a beat is the most that any device has to do for one
chunk, or one step, of all its stages, or any hop. A prompt fills as many beats as there are devices
that work at the same time.
"""

from collections.abc import Sequence

from plancc.ir.plan import StageTime

Names = tuple[str, ...]


def beat_ns(stages: Sequence[Names], times: Sequence[StageTime]) -> int:
    """The busiest device or hop; `stages` are each stage's devices, in rank order."""
    busy: dict[str, int] = {}
    for names, time in zip(stages, times, strict=True):
        for name in names:
            busy[name] = busy.get(name, 0) + time.compute_ns + time.exchange_ns
    return max(*busy.values(), *(time.hop_ns for time in times))


def prompt_beats(chunks: int, leads: Sequence[str]) -> int:
    """From the first chunk's begin to the last one's end; `leads` are the stages' first devices."""
    return chunks + len(set(leads)) - 1
