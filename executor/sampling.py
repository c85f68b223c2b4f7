"""From logits to a token. The noise depends on (seed, position) only, never on what ran beside."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plancc.ir.errors import BadInput

_FIRST_LOOKS = (1024, 8192)  # candidates for top-p that are tried before all are sorted
Logits = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Sampling:
    """temperature 0 is greedy. top_k 0 and top_p 1 keep every token."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises BadInput naming the setting, what was found and what is possible."""
        for name, found, is_right, expected in (
            ("temperature", self.temperature, 0 <= self.temperature < float("inf"), "0 or more"),
            ("top-k", self.top_k, self.top_k >= 0, "0 (all) or more"),
            ("top-p", self.top_p, 0 < self.top_p <= 1, "above 0, at most 1"),
            ("seed", self.seed, 0 <= self.seed < 2**64, "0 to 2**64 - 1"),
        ):
            if not is_right:
                raise BadInput(f"{name}: expected {expected}, found {found}")


def is_finite(logits: Logits) -> bool:
    """One pass: NaN and infinities survive a sum; a sum that overflows is looked at again."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(logits.sum()) or np.isfinite(logits).all())


def sample(logits: Logits, sampling: Sampling, position: int) -> int:
    """The token that stands at `position`. logits: [vocab_size], finite. Ties: the lowest id."""
    if sampling.temperature == 0:
        return int(logits.argmax())
    kept = _kept(logits, sampling)
    mass = np.cumsum(_weights(logits[kept], sampling, logits.max()))
    drawn = uniform(sampling.seed, position) * mass[-1]
    return int(kept[np.searchsorted(mass, drawn, side="right").clip(max=len(kept) - 1)])


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) with 53 bits, the same everywhere for the same seed and position."""
    raw = np.random.Philox(key=seed, counter=[position, 0, 0, 0]).random_raw()
    return float(int(raw) >> 11) * 2.0**-53


def _kept(logits: Logits, sampling: Sampling) -> npt.NDArray[np.int64]:
    """Ids that may be drawn, ascending: of the top k, the fewest whose mass reaches top p."""
    size = len(logits)
    top_k = min(sampling.top_k or size, size)
    if sampling.top_p >= 1:
        return np.arange(size) if top_k == size else np.sort(_best(logits, top_k))
    if top_k < size:
        order = _best(logits, top_k)
        mass = np.cumsum(_weights(logits[order], sampling, logits.max()))
        return np.sort(order[: _cut(mass, sampling.top_p * mass[-1])])
    wanted = sampling.top_p * _weights(logits, sampling, logits.max()).sum()
    for count in (*_FIRST_LOOKS, size):  # a full sort costs ten times as much as the first look
        order = _best(logits, min(count, size))
        mass = np.cumsum(_weights(logits[order], sampling, logits.max()))
        if mass[-1] >= wanted:
            break
    return np.sort(order[: _cut(mass, wanted)])


def _weights(logits: Logits, sampling: Sampling, highest: np.float32) -> npt.NDArray[np.float64]:
    scaled: npt.NDArray[np.float64] = (logits.astype(np.float64) - highest) / sampling.temperature
    return np.exp(scaled)


def _cut(mass: npt.NDArray[np.float64], wanted: float) -> int:
    """How many of the best it takes for their mass to reach what is wanted; at least one."""
    return int(np.searchsorted(mass, wanted)) + 1


def _best(logits: Logits, count: int) -> npt.NDArray[np.int64]:
    """The `count` largest, best first, the lower id first among equals; no full sort."""
    border = np.partition(logits, len(logits) - count)[len(logits) - count]
    candidates = np.flatnonzero(logits >= border)
    order = np.lexsort((candidates, -logits[candidates]))
    return candidates[order[:count]]
