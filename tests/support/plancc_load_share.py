"""Load each quarter of a file of matrices, several ways, and say what it took: one JSON a line.

peak is the growth of this process's resident memory; read is what the kernel counted.
"""

import json
import re
import sys
from pathlib import Path

import torch

from plancc.executor.weight_loader import RangeReader, load_rank
from plancc.ir.safetensors_file import read_header
from plancc.ir.tensors import TensorPiece, TensorSpec
from plancc.ir.weight_index import TensorEntry


class Share:
    def __init__(self, pieces: list[TensorPiece], dtype: torch.dtype) -> None:
        self._tensors = {piece: torch.empty(piece.shape, dtype=dtype) for piece in pieces}

    def pieces(self) -> tuple[TensorPiece, ...]:
        return tuple(self._tensors)

    def parameter(self, piece: TensorPiece) -> torch.Tensor:
        return self._tensors[piece]


def proc(name: str, field: str) -> int:
    text = Path(f"/proc/self/{name}").read_text()
    found = re.search(rf"^{field}:\s+(\d+)", text, re.MULTILINE)
    assert found is not None
    return int(found.group(1))


def pieces_of(mode: str, worker: int) -> list[TensorPiece]:
    names, span = [f"t{index:02d}" for index in range(64)], (worker * 256, (worker + 1) * 256)
    if mode in ("pipeline", "staged"):
        return [TensorPiece(TensorSpec(name, (1024, 1024))) for name in names[worker::4]]
    return [TensorPiece(TensorSpec(name, (1024, 1024), mode), span) for name in names]  # type: ignore[arg-type]


def main(path: Path) -> None:
    entries = {
        row.name: TensorEntry(
            name=row.name, dtype=row.dtype, shape=row.shape, file=row.file, offset=row.offset,
            bytes=row.bytes, sha256="0" * 64,
        )
        for row in read_header(path)
    }  # fmt: skip
    _load(path, Share(pieces_of("pipeline", 0)[:1], torch.float32), entries)  # code comes in
    for mode in ("pipeline", "rows", "columns", "staged"):
        dtype = torch.bfloat16 if mode == "staged" else torch.float32
        for worker in range(4):
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
            before, read = proc("status", "VmRSS"), proc("io", "rchar")
            share = Share(pieces_of(mode, worker), dtype)
            counted = _load(path, share, entries)
            row = {
                "mode": mode,
                "worker": worker,
                "counted": counted,
                "read": proc("io", "rchar") - read,
                "peak": (proc("status", "VmHWM") - before) * 1024,
                "is_mapped": path.name in Path("/proc/self/maps").read_text(),
            }
            print(json.dumps(row))
            del share


def _load(path: Path, share: "Share", entries: dict[str, TensorEntry]) -> int:
    """Bytes read."""
    with RangeReader(path.parent, lambda count: None, num_threads=4) as reader:
        load_rank(share, share.pieces(), entries, reader)  # type: ignore[arg-type]
    return reader.bytes_read


if __name__ == "__main__":
    main(Path(sys.argv[1]))
