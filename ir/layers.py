"""Layers and blocks of a model: what each weighs, keeps and needs. Bytes suffice to compile."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from plancc.ir.document import Frozen
from plancc.ir.tiles import MAX_TILES, default_tiles, tile_bounds
from plancc.ir.units import Bytes, PositiveBytes

Count = Annotated[int, Field(ge=1)]
Place = str  # first | last | any | the name of a device


class Mixer(Frozen):
    """What mixes positions: attention, a recurrence (gdn), or anything that is never cut.

    weight_bytes holds the mixer's matrices and both norms of the layer. `kv_bytes_per_token` is
    for the model's own dtype; it may be left out where the geometry says it.
    """

    kind: Literal["attention", "gdn", "other"]
    weight_bytes: Bytes
    kv_bytes_per_token: Bytes | None = None
    window: Count | None = None
    num_heads: Count | None = None
    num_kv_heads: Count | None = None
    head_dim: Count | None = None
    k_dim: Count | None = None  # width of one token's whole K row, where it is not
    v_dim: Count | None = None  # num_kv_heads * head_dim
    rope: str | None = None  # which of geometry.rope; None: the only one
    q_bias: bool = False
    o_bias: bool = False

    def kv_width(self) -> int | None:
        """Elements that one token adds to the cache (K and V), or None when geometry is absent."""
        if self.k_dim is not None and self.v_dim is not None:
            return self.k_dim + self.v_dim
        if self.num_kv_heads is not None and self.head_dim is not None:
            return 2 * self.num_kv_heads * self.head_dim
        return None


class DenseMlp(Frozen):
    """Gate and up, an activation, down. `weight_bytes` is what TP can cut, and nothing else."""

    kind: Literal["swiglu", "geglu", "mlp"]
    weight_bytes: Bytes
    intermediate_size: Count | None = None
    group: Count = 1
    tiles: Count | None = None
    uncut_bytes: Bytes = 0  # the bias of down: on one rank only
    fused: Literal["concatenated", "interleaved"] | None = None

    @model_validator(mode="after")
    def _tiles_are_whole(self) -> Self:
        size = self.intermediate_size
        if size is None:
            if self.tiles is not None or self.group != 1:
                raise ValueError("tiles and group need intermediate_size, found none")
            return self
        if size % self.group:
            raise ValueError(f"intermediate_size {size} must be whole groups, found {self.group}")
        most = min(MAX_TILES, size // self.group)
        if self.tiles is not None and self.tiles > most:
            raise ValueError(f"expected 1 to {most} tiles, found {self.tiles}")
        return self

    @property
    def num_tiles(self) -> int:
        """Tiles the down projection is summed in; 1 when the manifest gives bytes only."""
        if self.intermediate_size is None:
            return 1
        return self.tiles or default_tiles(self.intermediate_size, self.group)

    def share_bytes(self, first: int, end: int) -> int:
        """Weight bytes of tiles [first, end); the shares of a partition sum to weight_bytes."""
        if self.intermediate_size is None:
            return self.weight_bytes if end > first else 0
        bounds = tile_bounds(self.intermediate_size, self.group, self.num_tiles)
        size = self.intermediate_size
        return self.weight_bytes * bounds[end] // size - self.weight_bytes * bounds[first] // size


class MoeMlp(Frozen):
    """Experts are never cut in format /1: such a layer lives on one device."""

    kind: Literal["moe"]
    num_experts: Count
    experts_per_token: Count
    expert_bytes: PositiveBytes
    shared_bytes: Bytes = 0  # router and shared experts: read by every token

    @property
    def weight_bytes(self) -> int:
        return self.num_experts * self.expert_bytes + self.shared_bytes

    @model_validator(mode="after")
    def _experts_exist(self) -> Self:
        if self.experts_per_token > self.num_experts:
            raise ValueError(
                f"experts_per_token must be at most num_experts {self.num_experts}, "
                f"found {self.experts_per_token}"
            )
        return self


Mlp = Annotated[DenseMlp | MoeMlp, Field(discriminator="kind")]


class Layer(Frozen):
    mixer: Mixer
    mlp: Mlp | None = None
    kv_from: Annotated[int, Field(ge=0)] | None = None
    state_bytes_per_slot: Bytes = 0
    workspace_bytes: Bytes = 0
    flops_per_token: Annotated[float, Field(gt=0)] | None = None

    @property
    def weight_bytes(self) -> int:
        extra = self.mlp.uncut_bytes if isinstance(self.mlp, DenseMlp) else 0
        return self.mixer.weight_bytes + (self.mlp.weight_bytes if self.mlp else 0) + extra


def num_tiles(layer: Layer) -> int:
    """Tiles that the layer's MLP can be cut in; 0 where the whole layer lives on one device."""
    if not isinstance(layer.mlp, DenseMlp) or layer.mlp.intermediate_size is None:
        return 0
    return layer.mlp.num_tiles


class LayerPattern(Frozen):
    """How a file may write layers that repeat; `unroll` makes layers of it."""

    repeat: Count
    pattern: Annotated[tuple[Layer, ...], Field(min_length=1)]


class Block(Frozen):
    """Anything resident that is no layer.

    The blocks named `embed` and `head` are read by the model (a row of one, all of the other);
    every other block only takes room.
    """

    name: Annotated[str, Field(min_length=1)]
    weight_bytes: Bytes
    place: Place = "any"
    workspace_bytes: Bytes = 0
    tied_to: str | None = None

    @property
    def resident_bytes(self) -> int:
        return self.weight_bytes + self.workspace_bytes


def unroll(rows: Any) -> Any:
    """Layers in order from a list that may hold {repeat: n, pattern: [...]} rows (plain data)."""
    if not isinstance(rows, list | tuple):
        return rows
    flat: list[Any] = []
    for index, row in enumerate(rows):
        if not isinstance(row, dict) or "repeat" not in row:
            flat.append(row)
            continue
        repeat, pattern = row["repeat"], row.get("pattern")
        unknown = sorted(set(row) - {"repeat", "pattern"})
        if isinstance(repeat, bool) or not isinstance(repeat, int) or repeat < 1:
            raise ValueError(f"layers row {index}: expected repeat of 1 or more, found {repeat!r}")
        if not isinstance(pattern, list | tuple) or not pattern or unknown:
            raise ValueError(
                f"layers row {index}: expected repeat and pattern, found {sorted(row)}"
            )
        flat.extend(item for _ in range(repeat) for item in pattern)
    return flat


def roll(rows: list[Any], longest_pattern: int = 8) -> list[Any]:
    """The inverse of `unroll`: rows that repeat are written once. Deterministic and greedy."""
    out: list[Any] = []
    index = 0
    while index < len(rows):
        period, times = _best_repeat(rows, index, longest_pattern)
        if times > 1:
            out.append({"repeat": times, "pattern": rows[index : index + period]})
        else:
            out.append(rows[index])
        index += period * times
    return out


def _best_repeat(rows: list[Any], index: int, longest: int) -> tuple[int, int]:
    """(period, times) that covers most rows from `index`; the shortest period of equals."""
    best = (1, 1)
    for period in range(1, longest + 1):
        pattern, times = rows[index : index + period], 1
        while rows[index + times * period : index + (times + 1) * period] == pattern:
            times += 1
        if times > 1 and period * times > best[0] * best[1]:
            best = (period, times)
    return best
