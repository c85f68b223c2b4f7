"""Made-up models whose kernels read a given number of bytes each: what the probe runs."""

from math import ceil, sqrt

from plancc.ir.dtype import ITEMSIZE, DType
from plancc.ir.kernel_spec import KERNELS, mixer_reads, mlp_reads
from plancc.ir.layers import Block, DenseMlp, Layer, Mixer
from plancc.ir.manifest import Geometry, ModelShape, Rope
from plancc.ir.plan import Runtime
from plancc.ir.sizes import PAGE_TOKENS

_HEAD_DIM, _WIDE_HEAD_DIM = 64, 128
_NARROW = 4096
_BLOCK = 128  # numbers of a row that a kernel takes at once, where a model is as wide as usual
_LEAST_WIDTH = 768  # of a model whose tiles are whole blocks
_MOST_QUERIES = 64  # heads that a KV head serves
_NUM_TILES = 4  # a tile of down is hidden / 6 wide, as with 16 tiles of an MLP of 8/3 hidden
_MAX_CONTEXT = 16384
_VOCAB_SIZE = 256
_USUAL_TILES, _QUERIES = 16, 4  # of a usual model: MLP tiles, and heads that a KV head serves
_INNER = 3.5  # its MLP's width over its hidden size
_HEAD_ROWS = 128 * 2**10
_LEAST_LAYERS, _MOST_LAYERS = 4, 160  # of one: where a step begins and ends is a small part of it


def square_model(kernel_bytes: int, dtype: DType, total_bytes: int) -> ModelShape:
    """Layers whose four matrices are about `kernel_bytes` each, `total_bytes` or more together.

    The output projection is square; qkv is it and its KV heads, gate and up 4/3 of it, down 2/3.
    """
    width = sqrt(kernel_bytes // ITEMSIZE[dtype])
    head_dim = _HEAD_DIM if width <= _NARROW else _WIDE_HEAD_DIM
    kv_heads = ceil(round(width / head_dim) / _MOST_QUERIES) or 1
    unit = kv_heads * (head_dim if width < _LEAST_WIDTH else _BLOCK)
    hidden = _whole(width, unit)
    tile = head_dim if hidden < _LEAST_WIDTH else _NUM_TILES * _BLOCK
    inner = _whole(hidden * 2 / 3, tile)
    layer = _layer(hidden, inner, head_dim, kv_heads, dtype)
    return _model(layer, hidden, dtype, max(1, ceil(total_bytes / layer.weight_bytes)))


def usual_model(
    hidden: int, dtype: DType, total_bytes: int, *, has_head: bool = False
) -> ModelShape:
    """4 to 160 layers in the proportions of usual models, about `total_bytes` together.

    Attention heads are 128 wide, four of them to a KV head: qkv has 1.5 hidden rows. The MLP is
    3.5 hidden wide, to whole blocks of its 16 tiles. A head has 128 Ki rows. `hidden` is a multiple
    of 512.
    """
    unit = _USUAL_TILES * _BLOCK
    heads = hidden // _WIDE_HEAD_DIM
    assert heads % _QUERIES == 0, f"hidden {hidden}: expected a multiple of 512"
    layer = _layer(hidden, _whole(hidden * _INNER, unit), _WIDE_HEAD_DIM, heads // _QUERIES, dtype,
                   _USUAL_TILES)  # fmt: skip
    count = max(_LEAST_LAYERS, min(ceil(total_bytes / layer.weight_bytes), _MOST_LAYERS))
    model = _model(layer, hidden, dtype, count)
    return with_head(model, _HEAD_ROWS) if has_head else model


def with_head(model: ModelShape, num_rows: int = _VOCAB_SIZE) -> ModelShape:
    """The model with so many logits."""
    rows = num_rows + 1  # and the norm
    head = Block(name="head", weight_bytes=rows * model.hidden_size * ITEMSIZE[model.dtype])
    return model.model_copy(update={"vocab_size": num_rows, "blocks": (head,)})


def model_bytes(model: ModelShape) -> int:
    layers, blocks = model.layers, model.blocks
    return sum(one.weight_bytes for one in layers) + sum(one.weight_bytes for one in blocks)


def layer_kernels(model: ModelShape) -> tuple[tuple[float, int], ...]:
    """(weight bytes, how many) of the kernels of a decode step's layers, which are alike, as the
    prediction counts them."""
    layer, count = model.layers[0], len(model.layers)
    return tuple((size, count) for size in (*mixer_reads(layer), *mlp_reads(layer, 1)))


def runtime_of(model: ModelShape, rows: int, chunks: int = 1) -> Runtime:
    """One slot, filled in chunks of `rows` tokens."""
    return Runtime(
        context=rows * chunks,
        slots=1,
        page_tokens=PAGE_TOKENS,
        pages=ceil(rows * chunks / PAGE_TOKENS),
        prefill_chunk=rows,
        dtype=model.dtype,
        kv_dtype=model.dtype,
        kernels=KERNELS,
        hosts=(),
        workers=(),
    )


def _whole(size: float, unit: int) -> int:
    return max(1, round(size / unit)) * unit


def _model(layer: Layer, hidden: int, dtype: DType, count: int) -> ModelShape:
    return ModelShape(
        name="probe",
        family="llama",
        dtype=dtype,
        hidden_size=hidden,
        max_context=_MAX_CONTEXT,
        geometry=Geometry(norm_eps=1e-5, rope={"default": Rope(theta=10000.0)}),
        layers=(layer,) * count,
    )


def _layer(
    hidden: int, inner: int, head_dim: int, kv_heads: int, dtype: DType, tiles: int = _NUM_TILES
) -> Layer:
    item, norms = ITEMSIZE[dtype], 2 * hidden
    return Layer(
        mixer=Mixer(
            kind="attention",
            weight_bytes=(hidden * (2 * hidden + 2 * kv_heads * head_dim) + norms) * item,
            num_heads=hidden // head_dim,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
        ),
        mlp=DenseMlp(
            kind="swiglu",
            weight_bytes=3 * hidden * inner * item,
            intermediate_size=inner,
            tiles=tiles,
        ),
    )
