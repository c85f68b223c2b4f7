"""SmolLM2-135M-Instruct, imported by `make weights`, is the model that its GGUF file holds."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from plancc_checkpoints import decode, encode
from plancc_gguf import interleave
from tokenizers import Tokenizer

from plancc.compiler.manifest_of_folder import manifest_of_folder
from plancc.ir.manifest import read_manifest
from plancc.ir.safetensors_file import read_header

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / ".demo"
GGUF = DEMO / "SmolLM2-135M-Instruct.Q4_1.gguf"
FOLDER, FOLDER_F32 = DEMO / "SmolLM2-135M-Instruct", DEMO / "SmolLM2-135M-Instruct-f32"

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not all(path.exists() for path in (GGUF, FOLDER, FOLDER_F32)),
        reason="needs the SmolLM2 weights: make weights",
    ),
]

TEXTS = [
    "Hello, we can use it.",
    "  multiple   spaces\n\n\tand tabs",
    "emoji \U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 flag \U0001f1eb\U0001f1f7",
    "Caf\u00e9 d\u00e9j\u00e0 vu, na\u00efve e\u0301",
    "12345678 times 3.14159",
    "don't we'll I'VE",
    "<|im_start|>user\nhi<|im_end|>\n",
    "\u65e5\u672c\u8a9e \u0e44\u0e17\u0e22 \u0627\u0644\u0639\u0631",
    "if(a<b){return c;}\r\n\r\n",
]


@pytest.fixture(scope="module")
def reader() -> Any:
    """Over a plain array: the views of a memmap take three times as long."""

    class Reader(gguf.GGUFReader):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, np.asarray(value) if name == "data" else value)

    return Reader(GGUF)


def stored(folder: Path, name: str, dtype: str) -> np.ndarray:
    path = folder / "model.safetensors"
    tensor = next(each for each in read_header(path) if each.name == name)
    with path.open("rb") as file:
        file.seek(tensor.offset)
        return decode(file.read(tensor.bytes), dtype).reshape(tensor.shape)


@pytest.mark.parametrize(("folder", "dtype"), [(FOLDER, "bfloat16"), (FOLDER_F32, "float32")])
@pytest.mark.parametrize(
    ("theirs", "ours", "heads"),
    [
        ("token_embd.weight", "model.embed_tokens.weight", None),
        ("blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight", 9),
        ("blk.29.attn_k.weight", "model.layers.29.self_attn.k_proj.weight", 3),
        ("blk.29.attn_v.weight", "model.layers.29.self_attn.v_proj.weight", None),
        ("blk.14.ffn_down.weight", "model.layers.14.mlp.down_proj.weight", None),
        ("output_norm.weight", "model.norm.weight", None),
    ],
)
def test_weights_are_the_dequantised_ones(
    reader: Any, folder: Path, dtype: str, theirs: str, ours: str, heads: int | None
) -> None:
    tensor = next(each for each in reader.tensors if each.name == theirs)
    values = gguf.quants.dequantize(tensor.data[:2000], tensor.tensor_type)
    expected = decode(encode(values, dtype), dtype).reshape(values.shape)
    found = stored(folder, ours, dtype)[:2000]
    assert np.array_equal(found if heads is None else interleave(found, heads), expected)


def test_the_tokenizer_encodes_as_the_one_that_transformers_builds() -> None:
    """On texts where plain GPT-2 words, which it takes for any GGUF, are those of SmolLM."""
    ours = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    theirs = transformers.AutoTokenizer.from_pretrained(DEMO, gguf_file=GGUF.name)
    for text in TEXTS:
        ids = ours.encode(text).ids
        assert ids == theirs(text)["input_ids"], text
        assert ours.decode(ids, skip_special_tokens=False) == text


def test_digits_stand_alone_as_in_the_published_tokenizer() -> None:
    ours = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    assert ours.encode("Hello world! 123").ids == [19556, 905, 17, 216, 33, 34, 35]
    assert ours.encode(" \u00bd").ids[0] == ours.encode(" 1").ids[0] == 216


def test_the_manifest_counts_the_published_parameters() -> None:
    model = manifest_of_folder(FOLDER).manifest
    assert model.weights is not None
    assert sum(tensor.bytes for tensor in model.weights.tensors) == 2 * 134_515_008
    assert (len(model.layers), model.has_tied_head, model.max_context) == (30, True, 8192)
    by_hand = read_manifest(ROOT / "plans" / "models" / "smollm2-135m.yaml")
    assert by_hand.shape() == model.shape().model_copy(update={"name": by_hand.name})


def test_transformers_answers_from_the_imported_folder() -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER_F32)
    assert model.dtype == torch.float32
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    output = model.generate(**prompt, max_new_tokens=16, do_sample=False)
    answer = tokenizer.decode(output[0][prompt["input_ids"].shape[1] :], skip_special_tokens=True)
    assert answer == "The capital of France is Paris."
