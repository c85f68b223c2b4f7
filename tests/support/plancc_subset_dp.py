"""The best pipeline by a dynamic program over sets of devices, written for the tests alone.

best[set][first, last, k]: least ns of layers 0..k-1 on exactly the devices of the set (a bit each),
`last` being the one that runs layer k-1. The first device is kept because the row or token back
goes there.
"""

import numpy as np
from plancc_chain_tables import INF, ChainTables


def least_latency(tables: ChainTables) -> int | None:
    """ns of the best decode step; None where nothing fits."""
    found = min([tables.alone(), *(_of_mode(tables, mode) for mode in tables.head_modes())])
    return found if found < INF else None


def _of_mode(tables: ChainTables, mode: str) -> int:
    """Of pipelines of two devices or more."""
    names, count = tables.names, len(tables.names)
    middle = np.stack([tables.cost(n, mode, is_first=False, is_last=False).T for n in names])
    last = np.stack([tables.cost(n, mode, is_first=False, is_last=True)[:, -1] for n in names])
    hops = np.array([[tables.hop(a, b) if a != b else INF for b in names] for a in names])
    backs = np.array([[tables.back(b, a, mode) if a != b else INF for b in names] for a in names])
    best = {}
    for first, name in enumerate(names):
        best[1 << first] = np.full((count, count, tables.num_layers + 1), INF)
        best[1 << first][first, first] = tables.cost(name, mode, is_first=True, is_last=False)[0]
    found = INF
    for used in range(1, (1 << count) - 1):
        arrived = np.min(best[used][:, :, None, :] + hops[:, :, None], axis=1)
        whole = np.min(arrived + last, axis=2) + backs
        free = [name for name in range(count) if not used >> name & 1]
        found = min([found, *whole[:, free].min(axis=0).tolist()])
        if len(free) < 2:  # who takes the last of all devices takes the last layers too
            continue
        rows = np.min(arrived[:, free, None, :] + middle[free], axis=3)
        for number, name in enumerate(free):
            if used | 1 << name not in best:
                best[used | 1 << name] = np.full_like(best[used], INF)
            best[used | 1 << name][:, name] = np.minimum(rows[:, number], INF)
    return found
