"""A result is written whole or not at all, and never in place of what is no file."""

import os
import stat
import threading
from pathlib import Path

import pytest

from plancc.ir.errors import BadInput
from plancc.ir.files import refuse_unwritable, write_whole


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")

    def interrupted(source: str, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["plan.json"]


def test_a_written_file_has_the_rights_of_a_new_file_or_of_the_old_one(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", "text\n")
    (tmp_path / "b").touch()
    (tmp_path / "secret").touch(mode=0o600)
    write_whole(tmp_path / "secret", "text")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "b", "secret")]
    assert modes == [modes[1], modes[1], 0o600]
    assert (tmp_path / "a").read_bytes() == b"text\n"


@pytest.mark.parametrize("name", [".", "absent/plan.json", "file/plan.json"])
def test_where_nothing_can_be_written_is_bad_input_before_and_after(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "file").touch()
    for function in (lambda: write_whole(tmp_path / name, "text"),
                     lambda: refuse_unwritable(tmp_path / name)):  # fmt: skip
        with pytest.raises(BadInput, match=str(tmp_path)):
            function()
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_followed_and_stays_a_link(tmp_path: Path, exists: bool) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "real", tmp_path / "link"
    if exists:
        target.write_text("old")
    link.symlink_to(target)
    refuse_unwritable(link)
    write_whole(link, "new")
    assert link.is_symlink()
    assert (target.read_text(), sorted(path.name for path in tmp_path.iterdir())) == (
        "new", ["link", "there"],
    )  # fmt: skip


@pytest.mark.parametrize("is_linked", [False, True])
def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path, is_linked: bool) -> None:
    """A named pipe stands for devices, which only root may make."""
    pipe, said = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: said.append(pipe.read_text()), daemon=True)
    reader.start()
    path = tmp_path / "link" if is_linked else pipe
    if is_linked:
        path.symlink_to(pipe)
    refuse_unwritable(path)
    write_whole(path, "text")
    reader.join(timeout=10)
    assert said == ["text"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_full_device_is_bad_input_in_words() -> None:
    with pytest.raises(BadInput, match=r"/dev/full: cannot write it: No space left"):
        write_whole(Path("/dev/full"), "text")
