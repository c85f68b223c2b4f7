"""model.yaml: what is read, what is refused and how, and that rolling layers loses nothing."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from plancc_builders import MIB, build_layer, build_manifest, build_model, llama_8b

from plancc.ir.errors import BadInput
from plancc.ir.layers import roll, unroll
from plancc.ir.manifest import ModelManifest, read_manifest

GOOD = """\
format: plancc.model/1
name: toy
dtype: bfloat16
hidden_size: 64
max_context: 1024
layers:
  - repeat: 3
    pattern:
      - mixer: {kind: attention, weight_bytes: 1 MiB, kv_bytes_per_token: 256}
        mlp: {kind: swiglu, weight_bytes: 2 MiB, intermediate_size: 256}
blocks:
  - {name: embed, weight_bytes: 3 MiB, place: first}
  - {name: head, weight_bytes: 3 MiB, place: last, tied_to: embed}
"""


def read(tmp_path: Path, text: str) -> ModelManifest:
    path = tmp_path / "model.yaml"
    path.write_text(text)
    return read_manifest(path)


def refusal(tmp_path: Path, before: str, after: str) -> str:
    assert before in GOOD
    with pytest.raises(BadInput) as error:
        read(tmp_path, GOOD.replace(before, after, 1))
    return str(error.value)


def test_a_pattern_is_unrolled_and_sizes_are_bytes(tmp_path: Path) -> None:
    model = read(tmp_path, GOOD)
    assert len(model.layers) == 3
    assert model.layers[2].weight_bytes == 3 * MIB
    assert model.has_tied_head


def test_defaults_are_those_of_the_format(tmp_path: Path) -> None:
    model = read(tmp_path, GOOD)
    mlp = model.layers[0].mlp
    assert mlp is not None
    assert (model.family, model.source, model.weights, model.geometry) == (
        "bytes",
        None,
        None,
        None,
    )
    assert mlp.kind != "moe"
    assert mlp.num_tiles == 16


REFUSED = [
    ("hidden_size: 64", "hidden_size: 64\ncolour: red", "field colour: unknown field"),
    ("hidden_size: 64", "hidden_size: 0", "field hidden_size: Input should be greater"),
    ("max_context: 1024", "max_context: 1.5", "field max_context"),
    ("dtype: bfloat16", "dtype: int4", "field dtype: Input should be 'float32'"),
    ("1 MiB", "1 MiBB", "field layers.0.mixer.weight_bytes (and 2 more alike): expected bytes"),
    ("1 MiB", ".nan", "found nan"),
    ("1 MiB", "-3", "found -3"),
    ("1 MiB, kv_bytes_per_token: 256", "1 MiB", "layers.0.mixer: expected kv_bytes_per_token"),
    ("256}", "256, head_dim: 8, num_kv_heads: 2}", "geometry and bfloat16 say 64, found 256"),
    ("kind: attention", "kind: attn", "found 'attn'"),
    ("kind: swiglu", "kind: relu2", "'relu2'"),
    ("size: 256}", "size: 256, tiles: 65}", "expected 1 to 64 tiles, found 65"),
    ("size: 256}", "size: 256, group: 96}", "must be whole groups, found 96"),
    (", intermediate_size: 256", ", tiles: 4", "need intermediate_size, found none"),
    ("repeat: 3", "repeat: 0", "expected repeat of 1 or more, found 0"),
    ("repeat: 3", "repeat: true", "expected repeat of 1 or more, found True"),
    ("pattern:", "patern:", "expected repeat and pattern, found ['patern', 'repeat']"),
    ("name: head", "name: embed", "expected each name once, found 'embed' twice"),
    ("tied_to: embed", "tied_to: eyes", "only head ties to embed, found 'eyes'"),
    ("name: toy", "name: toy\nname: boy", "expected each key once, found 'name' twice"),
    ("plancc.model/1", "plancc.model/9", "expected 'plancc.model/1', found 'plancc.model/9'"),
    ("format: plancc.model/1\n", "", "expected 'plancc.model/1', found None"),
    ("layers:", "layers: [", "not YAML"),
]


@pytest.mark.parametrize(("before", "after", "found"), REFUSED)
def test_a_wrong_field_is_named_with_what_was_found(
    tmp_path: Path, before: str, after: str, found: str
) -> None:
    message = refusal(tmp_path, before, after)
    assert found in message
    assert message.startswith(str(tmp_path / "model.yaml"))
    assert len(message.splitlines()) == 1


def test_every_wrong_field_is_told_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("hidden_size: 64", "hidden_size: 0").replace("name: toy", "nome: toy")
    with pytest.raises(BadInput) as error:
        read(tmp_path, text)
    assert {line.split("field ")[1].split(":")[0] for line in str(error.value).splitlines()} == {
        "hidden_size", "nome", "name"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("second", "found"),
    [
        ("kv_from: 1", "expected an earlier layer than 1, found 1"),
        ("kv_from: 5", "expected an earlier layer than 1, found 5"),
    ],
)
def test_kv_is_borrowed_from_an_earlier_layer(tmp_path: Path, second: str, found: str) -> None:
    layers = (
        "layers:\n"
        "  - mixer: {kind: attention, weight_bytes: 1, kv_bytes_per_token: 2}\n"
        f"  - {{mixer: {{kind: attention, weight_bytes: 1}}, {second}}}\n"
        "blocks: []\n"
    )
    with pytest.raises(BadInput, match=found):
        read(tmp_path, GOOD[: GOOD.index("layers:")] + layers)


def test_kv_is_not_borrowed_from_a_borrower_or_across_windows() -> None:
    own, lent = build_layer(MIB, kv=8), build_layer(MIB, kv_from=0)
    with pytest.raises(ValueError, match="layer 1 has no KV of its own"):
        build_model([own, lent, build_layer(MIB, kv_from=1)])
    with pytest.raises(ValueError, match="kind, window"):
        build_model([own, build_layer(MIB, kv_from=0, window=16)])


@pytest.mark.parametrize("what", ["absent", "folder", "binary", "empty", "list"])
def test_a_file_that_is_no_manifest_is_one_clear_error(tmp_path: Path, what: str) -> None:
    path = tmp_path / "model.yaml"
    if what == "folder":
        path.mkdir()
    elif what != "absent":
        path.write_bytes({"binary": b"\xff\xfe\x00", "empty": b"", "list": b"- 1\n"}[what])
    with pytest.raises(BadInput) as error:
        read_manifest(path)
    assert str(path) in str(error.value)


ROWS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=30)


@settings(max_examples=100)
@given(ROWS)
def test_rolling_is_the_inverse_of_unrolling(names: list[str]) -> None:
    rows = [{"mixer": name} for name in names]
    assert unroll(roll(rows)) == rows


def test_equal_layers_are_written_once() -> None:
    assert len(llama_8b().model_dump(mode="json")["layers"]) == 1


def test_the_digest_sees_the_model_and_not_its_file(tmp_path: Path) -> None:
    model = read(tmp_path, GOOD)
    unrolled = dict(yaml.safe_load(GOOD))
    unrolled["layers"] = unrolled["layers"][0]["pattern"] * 3
    unrolled["source"] = "elsewhere"
    assert read(tmp_path, yaml.safe_dump(unrolled)).digest() == model.digest()
    other = GOOD.replace("kv_bytes_per_token: 256", "kv_bytes_per_token: 258")
    assert read(tmp_path, other).digest() != model.digest()


def test_a_plan_repeats_the_shape_without_places() -> None:
    manifest = build_manifest(llama_8b(), source="../weights")
    assert manifest.shape() == llama_8b()
    assert "source" not in manifest.shape().model_dump()
