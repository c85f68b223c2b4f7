"""model.yaml: what a model is. Format plancc.model/1 (design.md section 3)."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PlainSerializer, field_validator, model_validator

from plancc.ir.canonical import sha256_of
from plancc.ir.document import Frozen, parse_document, read_yaml
from plancc.ir.dtype import ITEMSIZE, DType
from plancc.ir.layers import Block, Count, Layer, LayerPattern, roll, unroll
from plancc.ir.weight_index import WeightIndex

MODEL_FORMAT = "plancc.model/1"
Factor = Annotated[float, Field(gt=0)]


class RopeScaling(Frozen):
    """Hugging Face's rope_scaling in one spelling; kinds we do not know are refused by name."""

    kind: Literal["linear", "dynamic", "llama3", "yarn"]
    factor: Factor
    original_context: Count | None = None
    low_freq_factor: Factor | None = None
    high_freq_factor: Factor | None = None
    beta_fast: Factor | None = None
    beta_slow: Factor | None = None
    attention_factor: Factor | None = None


class Rope(Frozen):
    theta: Factor
    rotary_dim: Count | None = None  # None: the whole head
    scaling: RopeScaling | None = None


class Geometry(Frozen):
    """What running needs and bytes cannot say. Optional for compiling."""

    norm_eps: Factor
    rope: dict[str, Rope] = {}
    mlp_bias: bool = False


def _roll_layers(layers: tuple[Layer, ...]) -> list[Any]:
    return roll([layer.model_dump(mode="json", exclude_defaults=True) for layer in layers])


class ModelShape(Frozen):
    """The part of a manifest that a plan repeats: everything but where the weights lie."""

    name: Annotated[str, Field(min_length=1)]
    family: str = "bytes"
    dtype: DType
    hidden_size: Count
    vocab_size: Count | None = None
    max_context: Count
    geometry: Geometry | None = None
    layers: Annotated[
        tuple[Layer, ...], PlainSerializer(_roll_layers, return_type=list), Field(min_length=1)
    ]
    blocks: tuple[Block, ...] = ()

    @field_validator("layers", mode="before", json_schema_input_type=list[Layer | LayerPattern])
    @classmethod
    def _unroll(cls, rows: Any) -> Any:
        return unroll(rows)

    @model_validator(mode="after")
    def _kv_is_known(self) -> Self:
        for index, layer in enumerate(self.layers):
            mixer = layer.mixer
            if layer.kv_from is not None:
                self._check_kv_from(index, layer)
            elif mixer.kind == "attention":
                self._check_kv_bytes(index, layer)
        return self

    def _check_kv_bytes(self, index: int, layer: Layer) -> None:
        """Given bytes, given geometry, or both and equal; never a guess."""
        given, width = layer.mixer.kv_bytes_per_token, layer.mixer.kv_width()
        if given is None and width is None:
            raise ValueError(
                f"layers.{index}.mixer: expected kv_bytes_per_token, or num_kv_heads and head_dim, "
                f"or k_dim and v_dim; found none of them"
            )
        if given is not None and width is not None and given != width * ITEMSIZE[self.dtype]:
            raise ValueError(
                f"layers.{index}.mixer.kv_bytes_per_token: geometry and {self.dtype} say "
                f"{width * ITEMSIZE[self.dtype]}, found {given}"
            )

    def _check_kv_from(self, index: int, layer: Layer) -> None:
        source = layer.kv_from
        where = f"layers.{index}.kv_from"
        assert source is not None
        if source >= index:
            raise ValueError(f"{where}: expected an earlier layer than {index}, found {source}")
        other = self.layers[source]
        if other.kv_from is not None:
            raise ValueError(f"{where}: layer {source} has no KV of its own, found {source}")
        mine = (layer.mixer.kind, layer.mixer.window)
        theirs = (other.mixer.kind, other.mixer.window)
        if mine != theirs:
            raise ValueError(f"{where}: layer {source} is {theirs}, found {mine} (kind, window)")

    @model_validator(mode="after")
    def _blocks_are_sound(self) -> Self:
        names = [block.name for block in self.blocks]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"blocks: expected each name once, found {name!r} twice")
        for block in self.blocks:
            if block.tied_to is not None and (block.name != "head" or block.tied_to != "embed"):
                raise ValueError(f"blocks.{block.name}.tied_to: only head ties to embed, found "
                                 f"{block.tied_to!r}")  # fmt: skip
            if block.tied_to is not None and block.tied_to not in names:
                raise ValueError(f"blocks.{block.name}.tied_to: no block {block.tied_to!r} found")
        return self

    def block(self, name: str) -> Block | None:
        return next((block for block in self.blocks if block.name == name), None)

    @property
    def has_tied_head(self) -> bool:
        head = self.block("head")
        return head is not None and head.tied_to == "embed"


class ModelManifest(ModelShape):
    """A manifest as read. `source` is where the weights were, relative to the manifest's file."""

    format: Literal["plancc.model/1"] = "plancc.model/1"
    source: str | None = None
    weights: WeightIndex | None = None

    def shape(self) -> ModelShape:
        """The manifest without file places, as the plan repeats it."""
        fields = {name: getattr(self, name) for name in ModelShape.model_fields}
        return ModelShape.model_construct(**fields)

    def digest(self) -> str:
        """sha256 of what the model is: neither its source nor how its file was written matters."""
        index = self.weights.digest() if self.weights else None
        return sha256_of([MODEL_FORMAT, self.shape().model_dump(mode="json"), index])


def read_manifest(path: Path) -> ModelManifest:
    """The manifest in a YAML file. Raises BadInput naming file, field, found and expected."""
    return parse_document(ModelManifest, read_yaml(path, "manifest"), str(path), MODEL_FORMAT)
