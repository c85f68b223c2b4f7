"""A tied head, said and stored, said or stored: one story or a question (L04)."""

from pathlib import Path

import pytest
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_model_folders import (
    Tensors,
    change_config,
    change_tensors,
    manifest_refusal,
    read_tensors,
    run_manifest,
)

from plancc.compiler.manifest_of_folder import manifest_of_folder
from plancc.ir.tensors import rank_pieces

TOY = {"vocab_size": 128, "hidden_size": 32, "num_layers": 4}
EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@pytest.fixture
def tied(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "toy", TinyLlama(tied=True, **TOY))


def store_head(folder: Path, *, flip: int | None) -> None:
    """Store the embedding again as the head, one byte changed or none."""

    def add(tensors: Tensors) -> Tensors:
        dtype, shape, data = tensors[EMBED]
        if flip is not None:
            data = data[:flip] + bytes([data[flip] ^ 1]) + data[flip + 1 :]
        return tensors | {HEAD: (dtype, shape, data)}

    change_tensors(folder, add)


def is_tied(folder: Path, tied: bool | None = None) -> bool:
    return manifest_of_folder(folder, tied=tied).manifest.has_tied_head


def names(folder: Path, tied: bool | None = None) -> list[str]:
    """Tensors of the last of two stages."""
    model = manifest_of_folder(folder, tied=tied).manifest
    return [piece.spec.name for piece in rank_pieces(model, (2, 4), blocks=("head",))]


def test_head_absent_and_tied_lists_the_embedding_on_the_last_stage(tied: Path) -> None:
    assert is_tied(tied)
    assert EMBED in names(tied)


def test_head_stored_alike_and_tied_is_fine(tied: Path) -> None:
    store_head(tied, flip=None)
    assert is_tied(tied)
    assert EMBED in names(tied)
    assert HEAD not in names(tied)


@pytest.mark.parametrize("flip", [0, 5000, 128 * 32 * 4 - 1])
def test_head_stored_otherwise_and_tied_asks_for_a_choice(tied: Path, flip: int) -> None:
    store_head(tied, flip=flip)
    text = manifest_refusal(tied)
    assert "tie_word_embeddings: true" in text
    assert "different bytes" in text
    assert "--tied yes" in text
    assert "--tied no" in text


def test_a_choice_is_taken(tied: Path) -> None:
    store_head(tied, flip=5000)
    assert is_tied(tied, tied=True)
    assert EMBED in names(tied, tied=True)
    assert not is_tied(tied, tied=False)
    assert HEAD in names(tied, tied=False)
    assert run_manifest(tied, "--tied", "no").exit_code == 0
    assert run_manifest(tied, "--tied", "yes").exit_code == 0
    assert run_manifest(tied, "--tied", "maybe").exit_code == 2


@pytest.mark.parametrize("flag", [False, None, ...])
def test_head_absent_and_untied_stops(tied: Path, flag: object) -> None:
    change_config(tied, tie_word_embeddings=flag)
    text = manifest_refusal(tied)
    assert f"has no {HEAD}" in text
    assert "--tied yes" in text
    assert is_tied(tied, tied=True)


def test_head_stored_and_untied_is_the_head(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "toy", TinyLlama(**TOY))
    assert not is_tied(folder)
    assert HEAD in names(folder)
    assert set(read_tensors(folder / "model.safetensors")) >= {EMBED, HEAD}
