"""Seeded random questions that name a device twice or more: every seat of it is a stage."""

import random
from itertools import pairwise

from plancc_random import Question, random_question


def random_seat_question(seed: int, objective: str) -> Question:
    """2 to 4 seats on 1 to 3 devices, in any order, now and then with cuts; budgets are ample."""
    rng = random.Random(f"seats/{seed}/{objective}")
    model, topology, _ = random_question(seed, objective)
    names = [device.name for device in topology.devices][:3]
    count = rng.randint(2, min(4, len(model.layers)))
    seats = [rng.choice(names) for _ in range(count - 1)]
    seats.insert(rng.randint(0, count - 1), rng.choice(seats))
    cuts = sorted(rng.sample(range(1, len(model.layers)), count - 1))
    ends = [0, *cuts, len(model.layers)]
    layers = tuple(b - a for a, b in pairwise(ends))
    asked = {"devices": tuple(seats), "max_devices": None, "pin": {}, "tp": "off",
             "stage_layers": layers if rng.random() < 0.2 else None}  # fmt: skip
    devices = tuple(
        one.model_copy(update={"free_bytes": one.free_bytes * rng.choice([2, 4, 4]),
                               "total_bytes": one.total_bytes * 4})
        for one in topology.devices
    )  # fmt: skip
    _, _, ask = random_question(seed, objective, **asked)
    return model, topology.model_copy(update={"devices": devices}), ask
