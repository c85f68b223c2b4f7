"""Times of nothing: where only bytes are asked about."""

import numpy as np

from plancc.compiler.placement.problem import Problem
from plancc.compiler.placement.times import Times


def no_times(problem: Problem) -> Times:
    seats = problem.num_seats
    flat, square = np.zeros(seats, np.int64), np.zeros((seats, seats), np.int64)
    layers = np.zeros((seats, problem.num_layers + 1), np.int64)
    return Times(layers=layers, embed=flat, head=flat, hop=square, token=square)
