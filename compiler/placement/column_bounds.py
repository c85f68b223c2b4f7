"""Columns that no chain as good as a known one can use: what is left is quick to prove.

A Lagrangian relaxation: a seat may be used again, at a price `u` for each use; the prices are paid
back once. The shortest path over (layer, seat) is then a lower bound of every chain's sum, whatever
the prices, and a column through which even the shortest path costs more than the known chain is in
no better one. Prices follow the subgradient (uses - 1), with Polyak's step.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plancc.compiler.placement.columns import ColumnSet
from plancc.compiler.placement.problem import INF

Floats = NDArray[np.float64]
Kept = dict[str, NDArray[np.bool_]]
"""Head mode -> [seats, L + 1, L + 1] the columns that may matter."""

ROUNDS = 160
SLACK_NS = 1.0  # more than float64 can err by in a sum of a few ns counts below 2^50


def kept_columns(
    columns: ColumnSet, most: int, *, most_column: int | None = None, num_stages: int | None = None
) -> Kept:
    """The columns of chains whose sum is at most `most` and whose every stage is `most_column`."""
    return {
        mode: _Relaxation(columns, mode, most, most_column, num_stages).run()
        for mode in columns.problem.head_modes
    }


@dataclass
class _Prices:
    seat: Floats
    stage: float  # of one stage more or less than asked


class _Relaxation:
    def __init__(
        self, columns: ColumnSet, mode: str, most: int, most_column: int | None, count: int | None
    ) -> None:
        problem = columns.problem
        self.most, self.count = float(most), count
        self.num_seats, self.num_layers = problem.num_seats, problem.num_layers
        priced = columns.by_key[mode, 0].priced(most=most_column)
        self.cost = np.where(priced < INF, priced.astype(np.float64), np.inf)
        self.hop = columns.times.hop.astype(np.float64)
        np.fill_diagonal(self.hop, np.inf)
        if problem.in_order:
            self.hop[np.tril_indices(self.num_seats)] = np.inf
        # the first seat is forgotten on the way, so the way back is the nearest seat's
        back = columns.back(mode).astype(np.float64)
        np.fill_diagonal(back, np.inf)
        self.home = back.min(axis=1) if self.num_seats > 1 else np.zeros(1)

    def run(self) -> NDArray[np.bool_]:
        prices, step, best, stale = _Prices(np.zeros(self.num_seats), 0.0), 1.0, -np.inf, 0
        for _ in range(ROUNDS):
            ahead, paid = self._ahead(prices)
            bound = self._bound(ahead, prices)
            if bound > self.most + SLACK_NS:
                self.cost[:] = np.inf
                break
            stale = 0 if bound > best else stale + 1
            best = max(best, bound)
            if stale > 8:
                step, stale = step / 2, 0
            if stale == 0:
                self._drop(ahead, paid, prices)
            if not self._follow(ahead, paid, prices, step * (self.most - bound + SLACK_NS)):
                break
        return np.isfinite(self.cost)

    def _owed(self, prices: _Prices) -> float:
        return float(prices.seat.sum()) + prices.stage * (self.count or 0)

    def _paid(self, prices: _Prices) -> Floats:
        return self.cost + (prices.seat + prices.stage)[:, None, None]

    def _ahead(self, prices: _Prices) -> tuple[Floats, Floats]:
        """[L + 1, seats] least cost of what follows a stage on a seat that ends at a layer."""
        paid, last = self._paid(prices), self.num_layers
        ahead = np.full((last + 1, self.num_seats), np.inf)
        ahead[last] = self.home
        for layer in range(last - 1, 0, -1):
            stage = (paid[:, layer, :] + ahead.T).min(axis=1)  # [seats] a stage from here on
            ahead[layer] = (self.hop + stage[None, :]).min(axis=1)
        return ahead, paid

    def _bound(self, ahead: Floats, prices: _Prices) -> float:
        paid = self._paid(prices)[:, 0, :]
        return min(self._one_stage(), float((paid + self._open(ahead)).min()) - self._owed(prices))

    def _open(self, ahead: Floats) -> Floats:
        """What follows a first stage; a stage that is all has been priced apart."""
        after = ahead.T.copy()
        after[:, self.num_layers] = np.inf
        return after

    def _one_stage(self) -> float:
        if self.count not in (None, 1):
            return float("inf")
        return float(self.cost[:, 0, self.num_layers].min())

    def _drop(self, ahead: Floats, paid: Floats, prices: _Prices) -> None:
        """Take away the columns whose best path is dearer than the known chain."""
        behind = np.full((self.num_layers + 1, self.num_seats), np.inf)  # up to a stage's begin
        behind[0] = 0.0
        ended = np.full((self.num_layers + 1, self.num_seats), np.inf)
        for layer in range(self.num_layers):
            if layer:
                behind[layer] = (ended[layer][:, None] + self.hop).min(axis=0)
            ended = np.minimum(ended, (behind[layer][:, None] + paid[:, layer, :]).T)
        through = behind.T[:, :, None] + paid + ahead.T[:, None, :] - self._owed(prices)
        whole = self.cost[:, 0, self.num_layers].copy()
        self.cost[through > self.most + SLACK_NS] = np.inf
        is_good = whole <= self.most if self.count in (None, 1) else np.zeros(len(whole), bool)
        self.cost[:, 0, self.num_layers] = np.where(is_good, whole, np.inf)

    def _follow(self, ahead: Floats, paid: Floats, prices: _Prices, reach: float) -> bool:
        """Move the prices by the shortest path's uses; False where it is a chain."""
        uses, stages = np.zeros(self.num_seats), 0
        total = paid[:, 0, :] + self._open(ahead)
        if not np.isfinite(total.min()):
            return False
        seat, end = (int(k) for k in np.unravel_index(total.argmin(), total.shape))
        while True:
            uses[seat] += 1
            stages += 1
            if end == self.num_layers:
                break
            after = self.hop[seat][:, None] + paid[:, end, :] + ahead.T
            seat, end = (int(k) for k in np.unravel_index(after.argmin(), after.shape))
        slope = uses - 1.0
        slope[(slope < 0) & (prices.seat <= 0)] = 0.0
        by_count = float(stages - self.count) if self.count is not None else 0.0
        length = float((slope**2).sum()) + by_count**2
        if length == 0:
            return False
        prices.seat = np.maximum(0.0, prices.seat + reach / length * slope)
        prices.stage += reach / length * by_count
        return True
