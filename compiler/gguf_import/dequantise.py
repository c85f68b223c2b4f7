"""Stored GGUF rows as plain numbers of the wanted format, a block of rows at a time."""

from collections.abc import Iterator
from typing import Any

from plancc.compiler.gguf_import.tensor_map import TensorCopy
from plancc.ir.errors import BadInput

_BLOCK_ELEMENTS = 1 << 22  # 16 MiB of float32


def encoded_blocks(copy: TensorCopy, dtype: str) -> Iterator[bytes]:
    """The tensor's bytes in order, little-endian, some rows at a time.

    Raises BadInput for a format that cannot be dequantised, or values beyond float16's range.
    """
    if len(copy.shape) == 1:  # one stored row, or `shape[0]` numbers that row order may move
        yield _encode(_dequantise(copy, copy.source.data.reshape(-1))[_rows(copy)], copy, dtype)
        return
    rows, columns = copy.shape
    step = max(1, _BLOCK_ELEMENTS // columns)
    for first in range(0, rows, step):
        data = copy.source.data[copy.row_order(first, min(rows, first + step))]
        yield _encode(_dequantise(copy, data), copy, dtype)


def to_bfloat16(values: Any) -> Any:
    """float32 as the upper 16 bits, rounded to nearest, ties to even; NaN stays NaN."""
    import numpy as np

    bits = np.ascontiguousarray(values, dtype="<f4").view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    nan = np.isnan(values)
    return np.where(nan, bits >> np.uint32(16) | np.uint32(0x40), rounded).astype("<u2")


def _rows(copy: TensorCopy) -> Any:
    return copy.row_order(0, copy.shape[0])


def _dequantise(copy: TensorCopy, data: Any) -> Any:
    import gguf
    import numpy as np

    kind = gguf.GGMLQuantizationType[copy.source.kind]
    try:
        values = gguf.quants.dequantize(np.ascontiguousarray(data), kind)
    except NotImplementedError:
        raise BadInput(f"tensor {copy.source.name}: format {copy.source.kind} cannot be "
                       f"dequantised by gguf") from None  # fmt: skip
    return values


def _encode(values: Any, copy: TensorCopy, dtype: str) -> bytes:
    import numpy as np

    if dtype == "bfloat16":
        return bytes(to_bfloat16(values).tobytes())
    if dtype == "float32":
        return bytes(values.astype("<f4", copy=False).tobytes())
    with np.errstate(over="ignore"):
        halves = values.astype("<f2")
    if not np.isfinite(halves).all():
        largest = float(np.abs(values).max())
        raise BadInput(f"tensor {copy.source.name}: {largest:g} is beyond float16's 65504; "
                       f"use --dtype bfloat16")  # fmt: skip
    return bytes(halves.tobytes())
