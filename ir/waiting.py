"""Sums of an MLP's tiles that wait in memory while a prompt's rows pass, in a chunk layout.

A program sums a block of rows and columns; sums of finished subtrees wait until their siblings
are done, HELD of them in registers.
"""

PROGRAMS = 132
"""Programs that are sure of room; where a device could run more, it runs these."""
BLOCK = 128
"""Rows, and columns, of a program's sums."""
HELD = 2
_FP32 = 4


def waiting_bytes(tiles: int, rows: int, columns: int, itemsize: int) -> int:
    """Of a model whose numbers have itemsize bytes; float32 sums are few and wait in registers."""
    if itemsize == _FP32:
        return 0
    programs = min(PROGRAMS, -(-rows // BLOCK) * -(-columns // BLOCK))
    return programs * waiting_sums(tiles) * BLOCK * BLOCK * _FP32


def waiting_sums(tiles: int) -> int:
    """How many of a program's sums wait in memory at a time, at most: one a level of the tree."""
    return max(0, (tiles - 1).bit_length() - HELD)
