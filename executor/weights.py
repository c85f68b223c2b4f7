"""Which folder holds a plan's weights, and whether they are the ones it was made for. No torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from plancc.executor.seats import Seat, seats_of
from plancc.ir.dtype import SAFETENSORS_DTYPE, SAFETENSORS_ITEMSIZE
from plancc.ir.errors import BadInput
from plancc.ir.plan import Plan
from plancc.ir.tensors import TensorPiece, rank_pieces
from plancc.ir.weight_folder import index_of, read_weight_folder
from plancc.ir.weight_index import TensorEntry, WeightIndex

WEIGHTS_VARIABLE = "PLANCC_WEIGHTS"


@dataclass(frozen=True)
class Weights:
    """A folder with the index that was just read from it; files in it that are no part of it."""

    folder: Path
    index: WeightIndex
    sha256: str
    warnings: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()


def find_folder(
    plan: Plan, plan_path: Path, asked: Path | None, environment: Mapping[str, str]
) -> Path:
    """--weights, else $PLANCC_WEIGHTS/NAME, else the manifest's source beside the plan.

    Raises BadInput naming every place that was looked at.
    """
    if asked is not None:
        if not asked.is_dir():
            raise BadInput(f"--weights {asked}: no such folder")
        return asked
    root, source = environment.get(WEIGHTS_VARIABLE), plan.weights.source if plan.weights else None
    places = {
        f"${WEIGHTS_VARIABLE}/{plan.model.name}": Path(root) / plan.model.name if root else None,
        "the plan's weights.source": plan_path.parent / source if source else None,
    }
    for place in places.values():
        if place is not None and place.is_dir():
            return place
    tried = "; ".join(
        f"{name}: {'not set' if place is None else f'{place} is no folder'}"
        for name, place in places.items()
    )
    raise BadInput(f"no weights of {plan.model.name} found ({tried}); say --weights DIR, or "
                   f"--alt-weights DIR for the plan of --verify")  # fmt: skip


def read_weights(
    plan: Plan, folder: Path, on_hashed: Callable[[int], None] = lambda num_bytes: None
) -> Weights:
    """Index the folder anew, with the plan's kind of fingerprint; `on_hashed` hears of the bytes.

    Raises BadInput for files that are absent, cut or wrong.
    """
    found = read_weight_folder(folder)
    kind = plan.weights.fingerprint if plan.weights else "sampled"
    index = index_of(found, kind, hashed=on_hashed)
    return Weights(folder, index, index.digest(), found.warnings, found.strays)


def fingerprint_problem(plan: Plan, weights: Weights) -> str | None:
    """Both fingerprints where they differ, and what else tells that these are other weights."""
    assert plan.weights is not None
    if weights.sha256 == plan.weights.sha256:
        return None
    hints = _coverage_problems(plan, weights.index)
    other = f"; they are of another model: {hints[0]}" if hints else ""
    return (
        f"weights {weights.folder}: the plan was made for fingerprint {plan.weights.sha256[:16]}, "
        f"found {weights.sha256[:16]} ({plan.weights.fingerprint}){other}"
    )


def pieces_of(plan: Plan, seat: Seat) -> tuple[TensorPiece, ...]:
    """What a rank has to read, in load order."""
    return rank_pieces(
        plan.model,
        seat.layers,
        share=seat.tiles if seat.group else None,
        has_mixer=seat.group is None or seat.group.holds_rows,
        blocks=tuple(name for name in seat.blocks if name in ("embed", "head")),
    )


def piece_bytes(piece: TensorPiece, entry: TensorEntry) -> int:
    """Bytes of the piece in its file."""
    return prod(piece.shape) * SAFETENSORS_ITEMSIZE[entry.dtype]


def check_entry(piece: TensorPiece, entry: TensorEntry | None) -> str | None:
    """What is wrong with the file's tensor for this piece, if anything."""
    name, shape = piece.spec.name, list(piece.spec.shape)
    if entry is None:
        return f"tensor {name}: the plan needs it, the folder has none"
    if list(entry.shape) != shape:
        return f"tensor {name} in {entry.file}: expected shape {shape}, found {list(entry.shape)}"
    if entry.dtype not in SAFETENSORS_DTYPE:
        known = ", ".join(SAFETENSORS_DTYPE)
        return f"tensor {name} in {entry.file}: expected dtype {known}, found {entry.dtype}"
    return None


def _coverage_problems(plan: Plan, index: WeightIndex) -> tuple[str, ...]:
    entries = index.by_name()
    pieces = (piece for seat in seats_of(plan) for piece in pieces_of(plan, seat))
    found = (check_entry(piece, entries.get(piece.spec.name)) for piece in pieces)
    return tuple(problem for problem in found if problem)


def coverage_problem(plan: Plan, index: WeightIndex) -> str | None:
    """The first tensor that the plan needs and the folder lacks or has otherwise; and how many."""
    problems = _coverage_problems(plan, index)
    if not problems:
        return None
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"weights: {problems[0]}{more}"
