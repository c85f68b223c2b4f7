"""Which cards are measured, as what, and whether a file's cards are found again: without a card."""

from pathlib import Path
from typing import Any

import pytest
from plancc_fake_cards import GIB, MIB, UUIDS, card, card_topology

from plancc.executor import probe_cpu, probe_cuda
from plancc.executor.backend.cuda_host import Cards
from plancc.executor.machine import Card
from plancc.executor.probe import ProbeOptions
from plancc.executor.probe_between import STAGED_NOTE
from plancc.executor.probe_options import DeviceFlags, options_from_flags, options_to_refresh
from plancc.ir.errors import BadInput

A, B, C = UUIDS
HERE = Path("topo.yaml")


@pytest.fixture(autouse=True)
def _three_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    set_cards(monkeypatch, card(0), card(1, 3 * GIB + 5), card(2))
    monkeypatch.setattr(probe_cpu, "host_memory_bytes", lambda: (8 * GIB, 6 * GIB))
    monkeypatch.setattr(probe_cpu, "num_cores", lambda: 4)


def set_cards(monkeypatch: pytest.MonkeyPatch, *cards: Card) -> None:
    monkeypatch.setattr(probe_cuda, "find_cards", lambda: Cards(cards))


def options(environment: dict[str, str] | None = None, **flags: Any) -> ProbeOptions:
    return options_from_flags(DeviceFlags(**flags), HERE, environment or {}, quick=False)


def names(found: ProbeOptions) -> list[str]:
    return [device.name for device in found.devices]


def test_all_cards_are_measured_and_no_cpu_device_unless_it_is_asked_for() -> None:
    assert names(options()) == ["gpu0", "gpu1", "gpu2"]
    assert names(options(cpu_devices=2)) == ["gpu0", "gpu1", "gpu2", "cpu0", "cpu1"]
    assert names(options(cards="none")) == ["cpu0"]
    assert names(options(cards="none", cpu_devices=2)) == ["cpu0", "cpu1"]


def test_without_cards_a_cpu_device_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    set_cards(monkeypatch)
    assert names(options()) == ["cpu0"]


def test_a_card_is_declared_by_uuid_with_what_is_free_in_whole_mib() -> None:
    device = options().devices[1]
    assert (device.name, device.kind, device.uuid) == ("gpu1", "cuda", B)
    assert (device.total_bytes, device.free_bytes) == (24 * GIB, 3 * GIB)
    assert (device.reserve_bytes, device.threads) == (256 * MIB, None)


def test_cards_are_named_by_number_or_by_the_beginning_of_their_uuid() -> None:
    assert names(options(cards="2,0")) == ["gpu2", "gpu0"]
    assert names(options(cards="GPU-bbb")) == ["gpu1"]
    assert names(options({"CUDA_VISIBLE_DEVICES": "2"})) == ["gpu2"]


@pytest.mark.parametrize("word", ["3", "GPU-", "GPU-zz", "x"])
def test_a_card_that_is_not_here_is_refused_with_those_that_are(word: str) -> None:
    with pytest.raises(BadInput) as error:
        options(cards=word)
    assert str(error.value) == (
        f"--cards: expected all, none or one of the cards that this process can open: "
        f"0 ({A}), 1 ({B}), 2 ({C}); found {word!r}"
    )


def test_a_card_named_twice_or_hidden_is_refused() -> None:
    with pytest.raises(BadInput, match=f"each card once, found {A} twice"):
        options(cards=f"0,{A}")
    with pytest.raises(BadInput, match=rf"can open: 1 \({B}\); found '0'"):
        options({"CUDA_VISIBLE_DEVICES": "1"}, cards="0")


def test_all_cards_of_a_host_are_one_process_and_each_cpu_device_is_its_own() -> None:
    found = options(cpu_devices=2)
    assert [worker.name for worker in found.workers] == ["gpu0,gpu1,gpu2", "cpu0", "cpu1"]
    # a start, 4 numbers a device, 20 links, all at once, 3 pairs, the 3 cards, 2 CPU devices
    assert found.num_steps == 1 + 20 + 20 + 1 + 3 + 1 + 1


def test_reads_end_where_a_card_has_no_room_for_a_layer() -> None:
    scales = options().scales
    assert scales["gpu0"].read_sizes == tuple(MIB << power >> 1 for power in range(12))
    assert scales["gpu1"].read_sizes[-1] == 512 * MIB
    assert scales["gpu1"].widths == (512, 1024, 2048)
    assert scales["gpu1"].rotated_bytes == 3 * GIB // 2
    assert scales["gpu0"].matmul_rows == (64, 128, 256, 512, 1024, 2048, 4096)


def test_refresh_finds_a_card_by_uuid_and_asks_what_is_free_now() -> None:
    old = card_topology(1, name="left", uuid=B, free_bytes=20 * GIB, reserve_bytes=7)
    found = options_to_refresh(old, DeviceFlags(), HERE, {}, quick=True).devices
    assert [(one.name, one.uuid, one.free_bytes, one.reserve_bytes) for one in found] == [
        ("left", B, 3 * GIB, 7)
    ]


def test_links_are_staged_where_it_is_asked_and_again_where_the_file_says_so() -> None:
    found = options_from_flags(DeviceFlags(), HERE, {}, quick=False, is_staged=True)
    assert (found.is_staged, options().is_staged) == (True, False)
    old = card_topology(2)
    devices = [one.model_copy(update={"uuid": uuid})
               for one, uuid in zip(old.devices, (A, B), strict=True)]  # fmt: skip
    for note in (None, STAGED_NOTE):
        links = [link.model_copy(update={"note": note}) for link in old.links]
        file = old.model_copy(update={"devices": tuple(devices), "links": tuple(links)})
        again = options_to_refresh(file, DeviceFlags(), HERE, {}, quick=True)
        assert again.is_staged == (note is not None)
    asked = options_to_refresh(file, DeviceFlags(), HERE, {}, quick=True, is_staged=True)
    assert asked.is_staged


def test_one_card_has_no_links_that_could_be_staged() -> None:
    with pytest.raises(BadInput, match=r"--staged: expected two cards or more .* found 1"):
        options_from_flags(DeviceFlags(cards="0"), HERE, {}, quick=False, is_staged=True)


@pytest.mark.parametrize(
    ("uuid", "visible", "found"),
    [
        ("GPU-gone", None, f"{A}, {B}, {C}; measure"),
        (None, None, f"{A}, {B}, {C}; measure"),
        (A, "1", rf"{B} \(CUDA_VISIBLE_DEVICES=1\); measure"),
    ],
)
def test_refresh_refuses_cards_that_it_cannot_tell(
    uuid: str | None, visible: str | None, found: str
) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    with pytest.raises(BadInput, match=rf"topo\.yaml: devices\.gpu0\.uuid .*found {found}"):
        options_to_refresh(card_topology(1, uuid=uuid), DeviceFlags(), HERE, environment,
                           quick=True)  # fmt: skip
