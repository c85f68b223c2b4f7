"""Scratch of one rank, by name: the executor allocates these, the ledger counts them.

A step carries at most `Capacity.rows` rows, which arrive and leave in the model's format. How they
pass through the layers is the device's layout:

block   PROMPT_BLOCK_ROWS prompt rows (or every decode row) at a time through all layers. Rows
        between kernels are float32, and wide scratch is a block, not a chunk.
chunk   all rows of a step through each layer, in the model's format; decode rows are filled up to
        a power of two and their attention is cut in splits. What steers a step lies beside: page
        tables, positions, tokens, rotary frequencies.

No matrix is ever copied. Scratch of a chunk never depends on how many layers a rank has.
"""

from dataclasses import dataclass
from typing import Literal, assert_never

from plancc.ir.dtype import ITEMSIZE
from plancc.ir.layers import DenseMlp, Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.sizes import PAGE_TOKENS, kv_rows_per_slot, step_rows
from plancc.ir.waiting import waiting_bytes

Layout = Literal["block", "chunk"]
PROMPT_BLOCK_ROWS = 64
ALIGN_BYTES = 16
"""Borders of buffers within an allocation: the widest load."""
SQUARES_COLUMNS = 32
"""Columns of a residual row whose squares are one sum."""
SAMPLE_PIECES = 64
"""Pieces of a row of logits, each with its best."""
CHUNK_NUMBERS = 3
"""Of a prompt chunk: its first position, its rows, its slot. Decode rows have two numbers each."""
DRAWS = 4
"""Draws of tokens that are kept: the host is at most two steps behind."""
ALLOCATIONS = 2
ALLOCATION_SLACK = 2**20
"""A rank's memory is two pieces: what it has by itself, and slots of links. Allocators take what is
large from the device in pages of 2 MiB, and leave up to half a page of each piece unused."""
LARGE_BYTES = 10 * 2**20

_LAYER_BUFFERS = 24  # of weights and KV, at most
_OTHER_BUFFERS = 64  # of blocks, and where a purpose begins
_FP32 = _INT32 = 4
_FP64 = 8


@dataclass(frozen=True)
class Capacity:
    """What a rank is opened for, as far as it sizes scratch."""

    slots: int
    prefill_chunk: int
    context: int

    @property
    def rows(self) -> int:
        return step_rows(self.slots, self.prefill_chunk)

    @property
    def block_rows(self) -> int:
        """Rows that kernels hold at a time in a block layout."""
        return max(PROMPT_BLOCK_ROWS, self.slots)

    @property
    def decode_rows(self) -> int:
        """Rows of the largest decode step of a chunk layout."""
        return power_of_two(self.slots)

    @property
    def chunk_rows(self) -> int:
        return step_rows(self.decode_rows, self.prefill_chunk)


def scratch_buffers(
    model: ModelShape, layers: tuple[Layer, ...], capacity: Capacity, *, layout: Layout,
    has_head: bool,
) -> dict[str, int]:  # fmt: skip
    """Bytes of each scratch buffer of a rank that runs `layers`; {} when geometry is unknown."""
    sized = [layer for layer in layers if layer.mixer.num_heads and layer.mixer.head_dim]
    if model.geometry is None or (layers and not sized):
        return {}
    match layout:
        case "block":
            buffers = _block_buffers(model, layers, capacity, has_head)
        case "chunk":
            buffers = _chunk_buffers(model, layers, capacity, has_head)
        case _:
            assert_never(layout)
    return {name: size for name, size in buffers.items() if size}


def workspace_bytes(
    model: ModelShape, layers: tuple[Layer, ...], capacity: Capacity, *, layout: Layout,
    has_head: bool,
) -> int:  # fmt: skip
    """Scratch of one rank: its named buffers, and the largest workspace a layer declares.

    In a chunk layout also what is held and used for nothing.
    """
    declared = max((layer.workspace_bytes for layer in layers), default=0)
    buffers = scratch_buffers(model, layers, capacity, layout=layout, has_head=has_head)
    if layout == "block" or not buffers:
        return declared + sum(buffers.values())
    named = sum(aligned(size) for size in buffers.values())
    return declared + named + _unused_bytes(model)


def _unused_bytes(model: ModelShape) -> int:
    """At most: between buffers of weights and KV, and beyond the pieces of a large model's rank.

    Of the model alone, so that a stage's scratch is the same wherever it is cut.
    """
    is_large = sum(layer.weight_bytes for layer in model.layers) >= LARGE_BYTES
    borders = ALIGN_BYTES * (_LAYER_BUFFERS * len(model.layers) + _OTHER_BUFFERS)
    return borders + (ALLOCATIONS * ALLOCATION_SLACK if is_large else 0)


def aligned(size_bytes: int) -> int:
    """Up to the next border."""
    return -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES


def power_of_two(count: int) -> int:
    """The least power of two that is no less."""
    return 1 << (count - 1).bit_length()


def split_tokens(head_dim: int, itemsize: int) -> int:
    """Keys of a split of decode attention, in a model of numbers of so many bytes."""
    if itemsize == _FP32:
        return 64
    return 256 if head_dim <= 128 else 128


def rope_width(layers: tuple[Layer, ...]) -> int:
    """Numbers in a row of cosines and sines: those of the widest head, rotated in whole or not."""
    return max((layer.mixer.head_dim or 0 for layer in layers), default=0)


def page_table(capacity_rows: int) -> str:
    """The buffer that tells where the pages of slots of so many KV rows lie."""
    return f"pages.{capacity_rows}"


def _block_buffers(
    model: ModelShape, layers: tuple[Layer, ...], capacity: Capacity, has_head: bool
) -> dict[str, int]:
    assert model.geometry is not None
    block = capacity.block_rows * _FP32
    return {
        "hidden": capacity.rows * model.hidden_size * ITEMSIZE[model.dtype],
        "residual": block * model.hidden_size,
        "normed": block * model.hidden_size,
        "qkv": block * _qkv_width(layers),
        "attended": block * _query_width(layers),
        "activated": block * _mlp_width(layers),
        "rope": block * len(model.geometry.rope) * rope_width(layers),
        "logits": capacity.slots * (model.vocab_size or 0) * _FP32 if has_head else 0,
    }


def _chunk_buffers(
    model: ModelShape, layers: tuple[Layer, ...], capacity: Capacity, has_head: bool
) -> dict[str, int]:
    itemsize, rows, decode = ITEMSIZE[model.dtype], capacity.chunk_rows, capacity.decode_rows
    squares = -(-model.hidden_size // SQUARES_COLUMNS)
    buffers = {name: rows * model.hidden_size * itemsize
               for name in ("incoming", "hidden", "gained")}  # fmt: skip
    buffers |= {
        "squares": rows * squares * _FP32,
        "qkv": rows * _qkv_width(layers) * itemsize,
        "attended": rows * _query_width(layers) * itemsize,
        "activated": rows * _mlp_width(layers) * itemsize,
        "waiting": waiting_bytes(_most_tiles(layers), rows, model.hidden_size, itemsize),
        "partials": 2 * decode * model.hidden_size * _FP32,
        "counters": max(squares, decode) * _INT32,
        "control": (max(2 * decode, CHUNK_NUMBERS) + rows) * _INT32,
    }
    buffers |= _split_buffers(model, layers, capacity) | _rotary_buffers(model, rows)
    buffers |= _page_tables(model, capacity)
    return buffers | (_head_buffers(model, decode) if has_head else {})


def _split_buffers(
    model: ModelShape, layers: tuple[Layer, ...], capacity: Capacity
) -> dict[str, int]:
    """Sums, and (largest, mass), of every split of every decode row."""
    itemsize, mixers = ITEMSIZE[model.dtype], [layer.mixer for layer in layers]
    splits = max((-(-capacity.context // split_tokens(mixer.head_dim, itemsize))
                  for mixer in mixers if mixer.head_dim), default=0)  # fmt: skip
    heads = max((mixer.num_heads or 0 for mixer in mixers), default=0)
    each = capacity.decode_rows * splits * _FP32
    return {"sums": each * _query_width(layers), "peaks": each * 2 * heads}


def _rotary_buffers(model: ModelShape, rows: int) -> dict[str, int]:
    """Cosines and sines of a step's rows, and what they are made of, for every rope."""
    assert model.geometry is not None
    ropes, half = max(1, len(model.geometry.rope)), max(2, rope_width(model.layers)) // 2
    return {"angles": ropes * rows * 2 * half * _FP32, "inv_freq": ropes * half * _FP64,
            "factors": ropes * _FP64}  # fmt: skip


def _page_tables(model: ModelShape, capacity: Capacity) -> dict[str, int]:
    """One for the layers that keep all, and one for each window of the model, placed here or not:
    scratch is the same wherever a model of one kind of heads is cut."""
    kept = {kv_rows_per_slot(layer, capacity.context, capacity.prefill_chunk)
            for layer in model.layers}  # fmt: skip
    return {page_table(rows): capacity.slots * -(-rows // PAGE_TOKENS) * _INT32
            for rows in sorted(kept - {0} | {capacity.context})}  # fmt: skip


def _head_buffers(model: ModelShape, decode_rows: int) -> dict[str, int]:
    return {
        "logits": decode_rows * (model.vocab_size or 0) * _FP32,
        "last": model.hidden_size * ITEMSIZE[model.dtype],
        "drawn": DRAWS * decode_rows * _INT32,
        "bests": decode_rows * SAMPLE_PIECES * _FP32,
        "places": decode_rows * SAMPLE_PIECES * _INT32,
    }


def _query_width(layers: tuple[Layer, ...]) -> int:
    return max((_queries(layer) for layer in layers), default=0)


def _qkv_width(layers: tuple[Layer, ...]) -> int:
    return max((_queries(layer) + (layer.mixer.kv_width() or 0) for layer in layers
                if _queries(layer)), default=0)  # fmt: skip


def _queries(layer: Layer) -> int:
    return (layer.mixer.num_heads or 0) * (layer.mixer.head_dim or 0)


def _mlp_width(layers: tuple[Layer, ...]) -> int:
    """Of layers with attention of known shape."""
    return max((layer.mlp.intermediate_size or 0 for layer in layers
                if _queries(layer) and isinstance(layer.mlp, DenseMlp)), default=0)  # fmt: skip


def _most_tiles(layers: tuple[Layer, ...]) -> int:
    """Of their MLPs; 1 where none is cut."""
    return max((layer.mlp.num_tiles for layer in layers
                if _queries(layer) and isinstance(layer.mlp, DenseMlp)), default=1)  # fmt: skip
