"""The best pipeline as a mixed-integer program, for a solver that plancc does not use.

A path from layer 0 to the last: columns (device, first layer, end layer) and hops (device, device,
layer) are its arcs; every device has one column at most. The row or token back is paid for the pair
of its last and its first device.
"""

from plancc_chain_tables import INF, ChainTables


def least_latency(tables: ChainTables, solver: str = "highs") -> int | None:
    """ns of the best decode step over head modes; None where nothing fits."""
    found = [tables.alone(), *(_best(tables, mode, solver) for mode in tables.head_modes())]
    return min(found) if min(found) < INF else None


def _best(tables: ChainTables, mode: str, solver: str) -> int:
    """Of pipelines of two devices or more."""
    from ortools.linear_solver.python import model_builder as mb

    model, names, end = mb.Model(), tables.names, tables.num_layers
    leaves: dict[tuple[str, int], list[mb.Variable]] = {}
    enters: dict[tuple[str, int], list[mb.Variable]] = {}
    costs: list[tuple[int, mb.Variable]] = []
    firsts: dict[str, list[mb.Variable]] = {name: [] for name in names}
    lasts: dict[str, list[mb.Variable]] = {name: [] for name in names}
    for name in names:
        mine = []
        for i, j, cost in _columns(tables, name, mode):
            column = model.new_bool_var(f"{name}.{i}.{j}")
            mine.append(column)
            costs.append((cost, column))
            (firsts[name] if i == 0 else enters.setdefault((name, i), [])).append(column)
            (lasts[name] if j == end else leaves.setdefault((name, j), [])).append(column)
        model.add(mb.LinearExpr.sum(mine) <= 1)
    hops_out: dict[tuple[str, int], list[mb.Variable]] = {}
    hops_in: dict[tuple[str, int], list[mb.Variable]] = {}
    for one, k in sorted(leaves):
        for two in names:
            if (two, k) in enters and one != two:
                hop = model.new_num_var(0, 1, f"{one}.{two}.{k}")
                costs.append((tables.hop(one, two), hop))
                hops_out.setdefault((one, k), []).append(hop)
                hops_in.setdefault((two, k), []).append(hop)
    for node in sorted(leaves):
        model.add(mb.LinearExpr.sum(leaves[node]) == mb.LinearExpr.sum(hops_out.get(node, [])))
    for node in sorted(enters):
        model.add(mb.LinearExpr.sum(enters[node]) == mb.LinearExpr.sum(hops_in.get(node, [])))
    back = {(a, b): model.new_num_var(0, 1, f"{a}.{b}.back") for a in names for b in names
            if a != b}  # fmt: skip
    costs += [(tables.back(a, b, mode), pair) for (a, b), pair in back.items()]
    for name in names:
        leaving = [pair for (last, _), pair in back.items() if last == name]
        coming = [pair for (_, first), pair in back.items() if first == name]
        model.add(mb.LinearExpr.sum(lasts[name]) == mb.LinearExpr.sum(leaving))
        model.add(mb.LinearExpr.sum(firsts[name]) == mb.LinearExpr.sum(coming))
    model.add(mb.LinearExpr.sum(list(back.values())) == 1)
    model.minimize(mb.LinearExpr.weighted_sum([x for _, x in costs], [cost for cost, _ in costs]))
    return _solved(model, costs, solver)


def _columns(tables: ChainTables, name: str, mode: str) -> list[tuple[int, int, int]]:
    end, found = tables.num_layers, []
    roles = {
        (is_first, is_last): tables.cost(name, mode, is_first=is_first, is_last=is_last)
        for is_first in (False, True) for is_last in (False, True)
    }  # fmt: skip
    for i in range(end):
        for j in range(i + 1, end + 1):
            cost = int(roles[i == 0, j == end][i, j])
            if cost < INF and (i, j) != (0, end):
                found.append((i, j, cost))
    return found


def _solved(model: object, costs: list[tuple[int, object]], solver: str) -> int:
    """The value summed again in integers from what the solver chose."""
    from ortools.linear_solver.python import model_builder as mb

    engine = mb.Solver(solver)
    assert engine.solver_is_supported(), f"this OR-Tools has no {solver}"
    engine.set_solver_specific_parameters("mip_rel_gap = 0" if solver == "highs" else "")
    status = engine.solve(model)
    if status in (mb.SolveStatus.INFEASIBLE, mb.SolveStatus.MODEL_INVALID):
        return INF
    assert status == mb.SolveStatus.OPTIMAL, status
    return sum(cost * round(engine.value(variable)) for cost, variable in costs)
