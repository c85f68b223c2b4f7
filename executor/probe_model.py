"""Made-up models whose kernels read a given number of bytes each: what the probe runs."""

from math import ceil, sqrt

from plancc.ir.dtype import ITEMSIZE, DType
from plancc.ir.kernel_spec import KERNELS
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
_MAX_CONTEXT = 4096
_VOCAB_SIZE = 256


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
    count = max(1, ceil(total_bytes / layer.weight_bytes))
    return ModelShape(
        name="probe",
        family="llama",
        dtype=dtype,
        hidden_size=hidden,
        max_context=_MAX_CONTEXT,
        geometry=Geometry(norm_eps=1e-5, rope={"default": Rope(theta=10000.0)}),
        layers=(layer,) * count,
    )


def with_head(model: ModelShape) -> ModelShape:
    """The model with a few logits."""
    rows = _VOCAB_SIZE + 1  # and the norm
    head = Block(name="head", weight_bytes=rows * model.hidden_size * ITEMSIZE[model.dtype])
    return model.model_copy(update={"vocab_size": _VOCAB_SIZE, "blocks": (head,)})


def runtime_of(model: ModelShape, rows: int) -> Runtime:
    """One slot of `rows` tokens, filled in one chunk."""
    return Runtime(
        context=rows,
        slots=1,
        page_tokens=PAGE_TOKENS,
        pages=ceil(rows / PAGE_TOKENS),
        prefill_chunk=rows,
        dtype=model.dtype,
        kv_dtype=model.dtype,
        kernels=KERNELS,
        hosts=(),
        workers=(),
    )


def _whole(size: float, unit: int) -> int:
    return max(1, round(size / unit)) * unit


def _layer(hidden: int, inner: int, head_dim: int, kv_heads: int, dtype: DType) -> Layer:
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
            tiles=_NUM_TILES,
        ),
    )
