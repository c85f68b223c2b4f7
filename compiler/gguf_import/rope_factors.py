"""Llama 3's rotary scaling, recovered from the divisors that GGUF stores in its place.

GGUF keeps one divisor a rotary pair (tensor rope_freqs.weight) and not the four numbers that gave
them, so the released ones are tried and must give every stored divisor back.
"""

import math
from typing import Any

from plancc.compiler.gguf_import.gguf_file import GgufFile
from plancc.ir.errors import BadInput

LOW, HIGH, ORIGINAL = 1.0, 4.0, 8192  # of Llama 3.1, 3.2 and 3.3
_TOLERANCE = 1e-4


def llama3_scaling(file: GgufFile, *, theta: float, head_dim: int) -> dict[str, Any] | None:
    """The `rope_scaling` that gives the stored divisors; None where all of them are 1.

    Raises BadInput when Llama 3's numbers do not give them.
    """
    found = [float(value) for value in file.tensors["rope_freqs.weight"].data.reshape(-1)]
    factor = round(max(found), 4)
    if factor == 1.0 and min(found) == 1.0:
        return None
    expected = llama3_divisors(factor, theta=theta, head_dim=head_dim)
    close = len(found) == len(expected) and all(
        math.isclose(a, b, rel_tol=_TOLERANCE) for a, b in zip(found, expected, strict=True)
    )
    if not close:
        raise BadInput(f"{file.path}: tensor rope_freqs.weight: expected the divisors of Llama 3 "
                       f"with factor {factor:g}, low {LOW:g}, high {HIGH:g}, original {ORIGINAL}; "
                       f"found others")  # fmt: skip
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": LOW,
        "high_freq_factor": HIGH,
        "original_max_position_embeddings": ORIGINAL,
    }


def llama3_divisors(factor: float, *, theta: float, head_dim: int) -> list[float]:
    """What each inverse frequency is divided by: 1 for short waves, `factor` for long ones."""
    divisors = []
    for pair in range(head_dim // 2):
        turns = ORIGINAL / (2 * math.pi * theta ** (2 * pair / head_dim))
        share = min(1.0, max(0.0, (turns - LOW) / (HIGH - LOW)))
        divisors.append(1 / ((1 - share) / factor + share))
    return divisors
