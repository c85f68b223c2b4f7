"""Which architecture of a config.json is read by which frontend."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from plancc.compiler.frontends.llama import Reading, read_llama
from plancc.ir.dtype import ITEMSIZE, DType
from plancc.ir.errors import BadInput


class Frontend(Protocol):
    def __call__(
        self, config: Mapping[str, Any], *, where: str, name: str, dtype: DType, tied: bool
    ) -> Reading: ...


ARCHITECTURES: dict[str, Frontend] = {
    "LlamaForCausalLM": read_llama,
    "MistralForCausalLM": partial(read_llama, window=True),
}


def read_architecture(
    config: object, *, where: str, name: str, tied: bool | None = None
) -> Reading:
    """The model that a parsed config.json describes; `tied` overrides tie_word_embeddings.

    Raises BadInput for an architecture, dtype or quantisation that is not supported.
    """
    if not isinstance(config, Mapping):
        raise BadInput(f"{where}: expected a JSON object, found {type(config).__name__}")
    frontend = _frontend(config, where)
    quantization = config.get("quantization_config")
    if quantization:
        method = quantization.get("quant_method") if isinstance(quantization, Mapping) else "one"
        raise BadInput(f"{where}: field quantization_config: expected an unquantized checkpoint, "
                       f"found {method!r}; take the model's bfloat16 release")  # fmt: skip
    flag = config.get("tie_word_embeddings")
    if flag not in (None, True, False):
        raise BadInput(
            f"{where}: field tie_word_embeddings: expected true or false, found {flag!r}"
        )
    return frontend(
        config,
        where=where,
        name=name,
        dtype=_dtype(config, where),
        tied=bool(flag) if tied is None else tied,
    )


def _frontend(config: Mapping[str, Any], where: str) -> Frontend:
    names = config.get("architectures")
    if not isinstance(names, list) or len(names) != 1:
        raise BadInput(f"{where}: field architectures: expected one name, found {names!r}")
    if names[0] not in ARCHITECTURES:
        raise BadInput(f"{where}: field architectures: plancc reads "
                       f"{', '.join(ARCHITECTURES)}; found {names[0]!r} "
                       f"(write the manifest by hand: plans/models has examples of other "
                       f"families, `plancc schema model` says every field)")  # fmt: skip
    return ARCHITECTURES[names[0]]


def _dtype(config: Mapping[str, Any], where: str) -> DType:
    """The dtype that every tensor must have; `dtype` is the newer spelling of `torch_dtype`."""
    given = {key: config[key] for key in ("dtype", "torch_dtype") if config.get(key) is not None}
    if len(set(map(str, given.values()))) > 1:
        raise BadInput(f"{where}: fields dtype and torch_dtype differ: {given}")
    if not given:
        raise BadInput(f"{where}: field dtype (or torch_dtype): missing; expected one of "
                       f"{', '.join(ITEMSIZE)}")  # fmt: skip
    key, value = next(iter(given.items()))
    if value not in ITEMSIZE:
        raise BadInput(f"{where}: field {key}: expected one of {', '.join(ITEMSIZE)}, "
                       f"found {value!r}")  # fmt: skip
    dtype: DType = value
    return dtype
