"""S01: every file that names a stop token is heard."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models

from plancc.executor.stop_tokens import read_stop_ids
from plancc.ir.errors import BadInput

TOKENIZER = Tokenizer(models.WordLevel({"</s>": 1, "<x>": 9, "a": 20, "b": 21}, unk_token="a"))
VOCAB = 32


def stop_ids(folder: Path, **files: object) -> tuple[int, ...]:
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return read_stop_ids(folder, TOKENIZER, VOCAB)


def test_ids_of_all_files_are_joined(tmp_path: Path) -> None:
    found = stop_ids(
        tmp_path,
        config={"eos_token_id": 1},
        generation_config={"eos_token_id": [1, 7, 9]},
        tokenizer_config={"eos_token": {"content": "</s>"}},
    )
    assert found == (1, 7, 9)


def test_one_id_may_stand_without_a_list(tmp_path: Path) -> None:
    assert stop_ids(tmp_path, generation_config={"eos_token_id": 9}) == (9,)


def test_the_tokenizers_own_eos_counts(tmp_path: Path) -> None:
    assert stop_ids(tmp_path, tokenizer_config={"eos_token": "<x>"}) == (9,)


def test_an_empty_list_and_no_file_at_all_stop_nothing(tmp_path: Path) -> None:
    assert stop_ids(tmp_path) == ()
    assert stop_ids(tmp_path, generation_config={"eos_token_id": []}, config={}) == ()
    assert stop_ids(tmp_path, config={"eos_token_id": None}) == ()


@pytest.mark.parametrize("bad", [VOCAB, -1, "2", True, 1.0])
def test_an_id_that_is_no_token_is_refused_at_load(tmp_path: Path, bad: object) -> None:
    with pytest.raises(BadInput, match=rf"generation_config.json: field eos_token_id.*{bad!r}"):
        stop_ids(tmp_path, generation_config={"eos_token_id": [1, bad]})
