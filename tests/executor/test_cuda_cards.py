"""Which cards a run takes, told by what torch says of them."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are made

from types import SimpleNamespace

import pytest
import torch

from plancc.executor.backend.cuda_devices import device_of
from plancc.ir.errors import BadInput
from plancc.kernels.gpu import card


def stand_for(monkeypatch: pytest.MonkeyPatch, *capabilities: tuple[int, int]) -> None:
    """Make torch tell of cards with these capabilities."""
    found = [
        SimpleNamespace(major=major, minor=minor, uuid=f"GPU-{at}", multi_processor_count=82,
                        shared_memory_per_block_optin=99 * 1024)
        for at, (major, minor) in enumerate(capabilities)
    ]  # fmt: skip
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(found))
    monkeypatch.setattr(torch.cuda, "get_device_properties", found.__getitem__)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some Card")
    monkeypatch.setattr(card, "card_at", card.card_at.__wrapped__)  # type: ignore[attr-defined]


def test_a_card_is_found_by_its_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_for(monkeypatch, (8, 6), (8, 9))
    assert device_of("GPU-1") == torch.device("cuda", 1)
    with pytest.raises(BadInput, match="one of 2 cards here"):
        device_of(None)
    with pytest.raises(BadInput, match="no CUDA device GPU-2 here, found GPU-0, GPU-1"):
        device_of("GPU-2")


def test_the_only_card_needs_no_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_for(monkeypatch, (12, 0))
    assert device_of(None) == torch.device("cuda", 0)
    assert card.card_of(device_of(None)) == card.Card((12, 0), 99 * 1024, 82)


@pytest.mark.parametrize("uuid", [None, "GPU-0"])
def test_an_old_card_is_refused_by_what_it_is(
    uuid: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_for(monkeypatch, (7, 5))
    expected = r"cuda:0 is Some Card: expected compute capability 8\.0 or more.*found 7\.5"
    with pytest.raises(BadInput, match=expected):
        device_of(uuid)
