"""What each objective is worth, by number of stages, and the shapes that reach that worth.

latency     one decode step: the sum of stages and hops
prefill     (chunks + stages - 1) beats of the slowest stage or hop
throughput  with n stages, rows = ceil(slots / n), m = min(slots, n): the ns in which every stream
            advances by one token, max(m x the slowest, the sum) at that many rows
            (both where every stage has a device of its own; else see options_by_search)
context     the largest context that fits; among its shapes, latency
workload    the ns that one request takes when `streams` of them run together: its prompt's prefill,
            as above, and for each token of output a round as of throughput, of `streams` in place
            of slots; all at the asked context and chunk
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from plancc.compiler.placement.chain_choice import Target
from plancc.compiler.placement.columns import ColumnSet, column_set
from plancc.compiler.placement.cpsat import Goal
from plancc.compiler.placement.margin import within_margin
from plancc.compiler.placement.mix import Floor, Mix, Way, Weights
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


def _workload(problem: Problem) -> dict[int, Option]:
    """As of throughput, counts that cannot beat a smaller one are left out.

    So are those beyond the margin of what some chain is known to be worth, but for one device.
    """
    least, found = int(INF), {}
    mixes = list(_mixes(problem))
    most = within_margin(problem, min((mix.known for mix in mixes), default=0))
    for mix in mixes:
        best = mix.least(least if mix.weights.num_stages == 1 else min(least, most + 1))
        if best is not None:
            least, (way, *others) = best
            count = way.target.num_stages
            # CP-SAT has no model of a mix: the goal is of the round alone
            goal = Goal(1, mix.weights.in_flight, num_stages=count)
            found[count] = Option(count, least, way.columns, way.starts, way.target, goal, 1,
                                  tuple(others))  # fmt: skip
    return found


def _mixes(problem: Problem) -> Iterator[Mix]:
    """A search for each number of stages that fits."""
    work, counts = problem.ask.workload, allowed_counts(problem)
    assert work is not None
    chunk = min(problem.ask.prefill_chunk, work.prompt)
    prefill = column_set(problem, prompt_times(problem, chunk, work.prompt))
    beats = best_values(Chains(prefill, "worst"))
    for rows, alike in groupby(counts, lambda count: -(-work.streams // count)):
        fitting = [count for count in alike if count in beats]
        if not fitting:
            continue
        decode = column_set(problem, decode_times(problem, rows))
        worsts, totals = _least_worsts_and_sums(decode, fitting[-1])
        for count in fitting:
            weights = Weights(count, -(-work.prompt // chunk) + count - 1, work.output,
                              min(work.streams, count))  # fmt: skip
            sums = {start: values[count] for start, values in totals.items()}
            yield Mix(prefill, decode, weights, Floor(beats[count][0], worsts[count][0], sums))


def _least_worsts_and_sums(
    columns: ColumnSet, most_stages: int
) -> tuple[Values, dict[Start, list[int]]]:
    chains = Chains(columns)
    sums = {start: chains.best_by_count(start, most_stages) for start in chains.starts()}
    return best_values(Chains(columns, "worst"), most_stages), sums
