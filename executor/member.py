"""What the launcher knows of one worker, and how it tells that one is lost or stuck."""

from collections.abc import Sequence
from dataclasses import dataclass

from plancc.executor.control import Control
from plancc.executor.messages import Beat, Failed
from plancc.executor.spawn import Process
from plancc.ir.errors import BadInput, ClearNo, PlanccError, RunFailed
from plancc.ir.plan import Timeouts, Worker

MISSED_BEATS = 5  # of silence: a busy machine may delay one or two


@dataclass
class Member:
    """Times are of the launcher's monotonic clock, in seconds."""

    worker: Worker
    ranks: tuple[int, ...]
    process: Process
    started: float
    pid: int
    control: Control | None = None
    is_closed: bool = False
    last_seen: float = 0.0
    moved_at: float = 0.0
    beat: Beat | None = None

    @property
    def name(self) -> str:
        """'worker h0.w1 (rank 1, host h0, pid 4711)'."""
        ranks = "rank" if len(self.ranks) == 1 else "ranks"
        numbers = ", ".join(map(str, self.ranks))
        return (
            f"worker {self.worker.name} ({ranks} {numbers}, host {self.worker.host}, "
            f"pid {self.pid})"
        )

    def hear(self, beat: Beat) -> None:
        before = self.beat
        if before is None or _has_moved(before, beat):
            self.moved_at = self.last_seen
        self.beat = beat

    def loss(self, now: float, timeouts: Timeouts) -> str | None:
        """Why this worker counts as lost, if it does: dead, silent, never heard of, or stuck."""
        if self.is_closed or self.process.popen.poll() is not None:
            return self.process.how_it_ended()
        if self.control is None:
            is_late = now - self.started > timeouts.start_s
            return f"it has not connected within {timeouts.start_s:g} s" if is_late else None
        limit = timeouts.start_s if self.beat is None else silence_limit_s(timeouts)
        if now - self.last_seen > limit:
            return f"no heartbeat for {limit:g} s"
        is_loading = self.beat is not None and self.beat.phase == "load"
        if is_loading and now - self.moved_at > timeouts.load_s:
            return f"nothing was loaded or computed for {timeouts.load_s:g} s"
        return None


def silence_limit_s(timeouts: Timeouts) -> float:
    """Seconds without a heartbeat after which a worker counts as lost."""
    return MISSED_BEATS * timeouts.heartbeat_s


def all_wait(members: Sequence[Member], now: float, timeouts: Timeouts) -> bool:
    """True when every worker has waited for another one for as long as a step may stand still.

    A worker that computes is never stuck, however long it takes: it beats.
    """
    return all(
        member.beat is not None
        and member.beat.is_waiting
        and now - member.moved_at > timeouts.step_s
        for member in members
    )


def error_of(member: Member, message: Failed) -> PlanccError:
    """What a worker said it failed of, with who it was; the exit code stays its own."""
    kinds = {BadInput.exit_code: BadInput, ClearNo.exit_code: ClearNo}
    kind = kinds.get(message.exit_code, RunFailed)
    return kind(f"{member.name} failed in {message.phase}: {message.text}")


def _has_moved(before: Beat, beat: Beat) -> bool:
    """By work done; the CPU time of a waiting worker is its heart's own."""
    if before.progress != beat.progress or before.phase != beat.phase:
        return True
    return not beat.is_waiting and before.cpu_ticks != beat.cpu_ticks
