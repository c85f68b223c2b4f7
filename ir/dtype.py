"""Names of number formats and their bytes."""

from typing import Literal

DType = Literal["float32", "float16", "bfloat16"]

ITEMSIZE: dict[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2}
"""Bytes of one number of a format that a model can be run in."""

SAFETENSORS_DTYPE: dict[str, str] = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""The names that safetensors headers use, and ours."""

SAFETENSORS_ITEMSIZE: dict[str, int] = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1,
    "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "U32": 4, "U64": 8,
}  # fmt: skip
