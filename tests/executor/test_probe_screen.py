"""What a person sees of measured cards, at the width of a terminal."""

import io
from pathlib import Path

import pytest
from plancc_fake_cards import card_topology
from rich.console import Console

from plancc.executor.probe_screen import devices_table, links_matrix, links_table, show_summary


def drawn(table: object, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [80, 120])
def test_a_card_is_one_line(width: int) -> None:
    assert drawn(devices_table(card_topology(2).devices), width) == [
        " device  which         may hold    overhead  reads, GB/s  launch  TFLOP/s",
        " gpu0    GPU-0f3a77c2  139.50 GiB  623 MiB   499 - 4450   1.3 us  701",
        " gpu1    GPU-1f3a77c2  139.50 GiB  623 MiB   499 - 4450   1.3 us  701",
    ]


def test_a_link_is_one_line_with_its_mode_and_its_trunk_if_it_has_one() -> None:
    links = card_topology(2).links
    assert drawn(links_table(links), 80) == [
        " link          mode    a small message  1 MiB    rate",
        " gpu0 -> gpu1  p2p     4.1 us           7.0 us   353 GB/s",
        " gpu1 -> gpu0  staged  9.5 us           98.4 us  11.8 GB/s",
    ]
    shared = [link.model_copy(update={"trunk": "h0-trunk0"}) for link in links]
    assert drawn(links_table(shared), 80)[1].endswith("353 GB/s   h0-trunk0")


def test_many_links_are_a_matrix_that_fits_a_terminal() -> None:
    lines = drawn(links_matrix(card_topology(8)), 80)
    assert len(lines) == 11
    assert lines[1].split() == ["gpu0", *["353", "p"] * 7]
    assert lines[8].split() == ["gpu7", "11.8", "s", *["353", "p"] * 6]
    assert lines[9:] == ["GB/s from row to column; p2p, staged",
                         "a small message: 4.1 us - 9.5 us"]  # fmt: skip


def test_the_summary_ends_with_what_to_beware_of_and_the_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    show_summary(card_topology(2), Path("two.yaml"), "measured in 3 s", ("gpu1 -> gpu0: [odd]",))
    assert capsys.readouterr().err.splitlines()[-2:] == [
        "warning: gpu1 -> gpu0: [odd]",
        "wrote two.yaml: 2 device(s) measured in 3 s",
    ]
