"""What each objective is worth, by number of stages, and the shapes that reach that worth.

latency     one decode step: the sum of stages and hops
prefill     (chunks + stages - 1) beats of the slowest stage or hop
throughput  with n stages, rows = ceil(slots / n), m = min(slots, n): the ns in which every stream
            advances by one token, max(m x the slowest, the sum) at that many rows
context     the largest context that fits; among its shapes, latency
workload    the ns that one request takes when `streams` of them run together: its prompt's prefill,
            as above, and for each token of output a round as of throughput, of `streams` in place
            of slots; all at the asked context and chunk
"""

from dataclasses import dataclass

from plancc.compiler.placement.chain_choice import Target
from plancc.compiler.placement.columns import ColumnSet, column_set
from plancc.compiler.placement.cpsat import Goal
from plancc.compiler.placement.mix import Mix, Way, Weights
from plancc.compiler.placement.paths import Chains, Limits, Start, Values, best_values
from plancc.compiler.placement.problem import INF, Problem
from plancc.compiler.placement.search import least_value
from plancc.compiler.placement.times import decode_times, prompt_times


@dataclass(frozen=True)
class Option:
    """The best value with exactly `num_stages` stages, and what reaches it."""

    num_stages: int
    value: int
    columns: ColumnSet
    starts: tuple[Start, ...]
    target: Target
    goal: Goal  # what CP-SAT minimises to prove the value, `scale` ns a unit
    scale: int
    others: tuple[Way, ...] = ()  # more ways to the value, of other columns; none but of a mix


def options(problem: Problem) -> dict[int, Option]:
    """Number of stages -> its best option; counts that do not fit are absent."""
    match problem.ask.objective:
        case "latency" | "context":
            return _latency(problem)
        case "prefill":
            return _prefill(problem)
        case "throughput":
            return _throughput(problem)
        case "workload":
            return _workload(problem)


def allowed_counts(problem: Problem) -> range:
    most = min(problem.num_seats, problem.num_layers)
    if problem.ask.max_devices is not None:
        most = min(most, problem.ask.max_devices)
    return range(problem.num_seats if problem.all_seats else 1, most + 1)


def _latency(problem: Problem) -> dict[int, Option]:
    columns = column_set(problem, decode_times(problem, rows=1))
    best = best_values(Chains(columns))
    return {
        count: Option(count, value, columns, starts, Target(value, count, Limits()),
                      Goal(1, 0, num_stages=count), 1)
        for count, (value, starts) in best.items() if count in allowed_counts(problem)
    }  # fmt: skip


def _prefill(problem: Problem) -> dict[int, Option]:
    prompt = problem.ask.prompt or 1
    rows = min(problem.ask.prefill_chunk, prompt)
    chunks = -(-prompt // rows)
    columns = column_set(problem, prompt_times(problem, rows))
    found = {}
    for count, (beat, starts) in best_values(Chains(columns, "worst")).items():
        if count in allowed_counts(problem):
            beats = chunks + count - 1
            target = Target(int(INF) - 1, count, Limits(most=beat))
            goal = Goal(0, 1, num_stages=count)
            found[count] = Option(count, beats * beat, columns, starts, target, goal, beats)
    return found


def _throughput(problem: Problem) -> dict[int, Option]:
    """Counts that cannot beat the best so far are left out: more stages only count if better."""
    slots, least = problem.ask.slots, int(INF)
    found: dict[int, Option] = {}
    known: dict[int, _Folds] = {}
    for count in allowed_counts(problem):
        rows, in_flight = -(-slots // count), min(slots, count)
        if rows not in known:
            known[rows] = _both_folds(column_set(problem, decode_times(problem, rows)))
        option = _round_time(known[rows], count, in_flight, least)
        if option is not None:
            found[count] = option
            least = min(least, option.value)
    return found


@dataclass(frozen=True)
class _Folds:
    columns: ColumnSet
    total: Values
    worst: Values


def _both_folds(columns: ColumnSet) -> _Folds:
    return _Folds(columns, best_values(Chains(columns)), best_values(Chains(columns, "worst")))


def _round_time(folds: _Folds, count: int, in_flight: int, least: int) -> Option | None:
    """The least R such that some chain has its sum <= R and nothing above R / in_flight.

    Where one chain has both the least sum and the least worst, that is R; else CP-SAT finds it.
    """
    columns = folds.columns
    if count not in folds.total:
        return None
    value = max(in_flight * folds.worst[count][0], folds.total[count][0])
    if value >= least:
        return None
    goal = Goal(1, in_flight, num_stages=count)
    starts = _within(columns, count, in_flight, value)
    if starts is None:
        bound = least_value(columns, goal)
        assert bound is not None
        assert bound.is_optimal, f"no proof for {count} stages within the limit"
        value, starts = bound.value, _within(columns, count, in_flight, bound.value)
    assert starts is not None, "the subset DP finds what CP-SAT found"
    target = Target(value, count, Limits(most=value // in_flight))
    return Option(count, value, columns, starts, target, goal, 1)


def _within(columns: ColumnSet, count: int, in_flight: int, value: int) -> tuple[Start, ...] | None:
    """Every start of a chain worth at most `value`; the order of preference chooses among them."""
    chains = Chains(columns, "sum", Limits(most=value // in_flight))
    good = (start for start in chains.starts() if chains.best_by_count(start)[count] <= value)
    return tuple(good) or None


@dataclass(frozen=True)
class _Sums:
    """A decode step's columns; its least sums by start and number of stages, and least worsts."""

    columns: ColumnSet
    totals: dict[Start, list[int]]
    worst: Values


def _workload(problem: Problem) -> dict[int, Option]:
    """As of throughput, counts that cannot beat the best so far are left out."""
    work = problem.ask.workload
    assert work is not None
    rows = min(problem.ask.prefill_chunk, work.prompt)
    prefill = column_set(problem, prompt_times(problem, rows, work.prompt))
    beats = best_values(Chains(prefill, "worst"))
    least, chunks = int(INF), -(-work.prompt // rows)
    found: dict[int, Option] = {}
    known: dict[int, _Sums] = {}
    for count in allowed_counts(problem):
        together = min(work.streams, count)
        rows = -(-work.streams // count)
        if count not in beats:
            continue
        if rows not in known:
            known[rows] = _sums(column_set(problem, decode_times(problem, rows)))
        weights = Weights(count, chunks + count - 1, work.output, together if together > 1 else 0)
        option = _mixed(prefill, known[rows], weights, beats[count][0], least)
        if option is not None:
            found[count] = option
            least = option.value
    return found


def _sums(columns: ColumnSet) -> _Sums:
    chains = Chains(columns)
    totals = {start: chains.best_by_count(start) for start in chains.starts()}
    return _Sums(columns, totals, best_values(Chains(columns, "worst")))


def _mixed(
    prefill: ColumnSet, sums: _Sums, weights: Weights, beat: int, least: int
) -> Option | None:
    """The best mix if it is below `least`. CP-SAT has no model of it: `goal` is of the round."""
    count = weights.num_stages
    mix = Mix(prefill, sums.columns, weights)
    totals = {start: values[count] for start, values in sums.totals.items()}
    found = mix.least(mix.root(beat, sums.worst[count][0], totals), least)
    if found is None:
        return None
    value, (way, *others) = found
    goal = Goal(1, weights.in_flight, num_stages=count)
    return Option(count, value, way.columns, way.starts, way.target, goal, 1, tuple(others))
