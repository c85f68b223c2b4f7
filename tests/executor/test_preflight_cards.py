"""Is the plan's card here, to be seen, and still as free as it was? Asked without a card."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_fake_cards import GIB, UUIDS, FakeLibrary, card
from plancc_plans import build_plan, manifest_of, write_plan

from plancc.executor.backend.cuda_host import Cards, CudaHost, find_cards, visible_cards
from plancc.executor.preflight import Machine, Passed, preflight
from plancc.ir.errors import Stale
from plancc.ir.plan import Plan

SPEC = TinyLlama(
    num_layers=2, hidden_size=32, intermediate_size=48, num_heads=2, num_kv_heads=1, vocab_size=260
)
A, B, C = UUIDS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("model") / "toy", SPEC)


@pytest.fixture
def ask(folder: Path, tmp_path: Path) -> Callable[..., Passed]:
    """Preflight of a plan over devices of these uuids, on a machine with these cards."""

    def asked(
        *uuids: str | None, cards: str, link: str | None = None, free: int = GIB, **env: str
    ) -> Passed:
        plan = build_plan(
            manifest_of(folder, SPEC), (0, 1, 2) if len(uuids) == 2 else (0, 2),
            devices=[f"gpu{i}" for i in range(len(uuids))],
            workers=[[f"gpu{i}" for i in range(len(uuids))]], kind="cuda",
        )  # fmt: skip
        path = write_plan(_on_cards(plan, uuids, link), tmp_path / "plan.json")
        machine = Machine(
            available_bytes=lambda: free,
            num_cores=lambda: 2,
            hosts={"cuda": f"plancc_fake_cards:{cards}"},
        )
        return preflight(path, None, env, machine)

    return asked


def _on_cards(plan: Plan, uuids: tuple[str | None, ...], link: str | None) -> Plan:
    devices = tuple(
        device.model_copy(update={"uuid": uuid})
        for device, uuid in zip(plan.devices, uuids, strict=True)
    )
    links = plan.links
    if link is not None:
        links = tuple(row.model_copy(update={"transport": link}) if row.payload == "hidden" else row
                      for row in links)  # fmt: skip
    plan = plan.model_copy(update={"devices": devices, "links": links})
    return plan.model_copy(update={"digest": plan.computed_digest()})


def refusals(ask: Callable[..., Passed], *uuids: str | None, **how: Any) -> list[str]:
    with pytest.raises(Stale) as error:
        ask(*uuids, **how)
    return str(error.value).splitlines()[1:]


def test_a_plan_on_cards_that_are_here_says_which_they_are(ask: Callable[..., Passed]) -> None:
    passed = ask(A, cards="TwoCards")
    assert passed.notes == (
        f"gpu0 is card 0, Card X ({A}): 20.00 GiB free, the plan fills 1.0 MiB",
    )


def test_a_card_that_is_not_here_is_refused_with_those_that_are(
    ask: Callable[..., Passed],
) -> None:
    assert refusals(ask, C, cards="TwoCards") == [
        f"device gpu0: the plan wants card {C}, found {A} (Card X), {B} (Card X)"
    ]


def test_a_card_less_free_than_the_plan_fills_is_refused_with_what_is_short(
    folder: Path,
) -> None:
    plan = build_plan(manifest_of(folder, SPEC), (0, 2), devices=["gpu0"], kind="cuda")
    full = _on_cards(plan, (A,), None).devices[0]
    ledger = full.ledger.model_copy(update={"total": 45 * GIB})
    short = CudaHost(lambda: Cards((card(0, 314 * GIB // 10),))).look(
        [full.model_copy(update={"ledger": ledger})], {}
    )
    assert short.problems == (
        f"device gpu0 ({A}): the plan fills 45.00 GiB, free are 31.40 GiB: 13.60 GiB short",
    )
    roomy = CudaHost(lambda: Cards((card(0, 50 * GIB),)))
    assert roomy.look([full.model_copy(update={"ledger": ledger})], {}).problems == ()


def test_every_card_that_does_not_match_is_told_at_once(ask: Callable[..., Passed]) -> None:
    assert refusals(ask, C, A, cards="TwoCards", CUDA_VISIBLE_DEVICES="1") == [
        f"device gpu0: the plan wants card {C}, found {B} (Card X)",
        f"device gpu1: the plan wants card {A}, which is card 0 here but hidden by "
        f"CUDA_VISIBLE_DEVICES=1: unset it or add {A}",
    ]


def test_without_a_uuid_the_only_card_is_taken(ask: Callable[..., Passed]) -> None:
    assert ask(None, cards="OneCard").notes[0].startswith(f"gpu0 is card 2, Card X ({C})")
    assert ask(None, cards="TwoCards", CUDA_VISIBLE_DEVICES="0").notes[0].startswith("gpu0 is card")


def test_without_a_uuid_one_of_several_cards_is_never_guessed(ask: Callable[..., Passed]) -> None:
    assert refusals(ask, None, cards="TwoCards") == [
        f"device gpu0: the plan gives no uuid, found 2 cards: {A} (Card X), {B} (Card X); measure "
        f"them with planprobe and compile again"
    ]


@pytest.mark.parametrize(("uuid", "what"), [(A, f"one uuid, {A}"), (None, "no uuid")])
def test_two_devices_are_never_one_card(
    uuid: str | None, what: str, ask: Callable[..., Passed]
) -> None:
    problem = refusals(ask, uuid, uuid, cards="OneCard" if uuid is None else "TwoCards")[0]
    assert problem == f"devices gpu0 and gpu1: the plan gives them {what}: expected a card each"


def test_a_machine_without_a_driver_says_so(ask: Callable[..., Passed]) -> None:
    (problem,) = refusals(ask, A, cards="NoCards")
    assert problem == (
        f"device gpu0: the plan wants card {A}, found none here (NVML Shared Library Not Found)"
    )
    (problem,) = refusals(ask, None, cards="NoCards")
    assert problem.startswith("device gpu0: the plan wants a cuda card, found none here")


def test_cards_that_are_all_hidden_are_told_as_such(ask: Callable[..., Passed]) -> None:
    (problem,) = refusals(ask, None, cards="TwoCards", CUDA_VISIBLE_DEVICES="")
    assert problem.endswith("found none, since CUDA_VISIBLE_DEVICES='' hides all 2 here")


def test_links_through_the_host_need_its_memory(ask: Callable[..., Passed]) -> None:
    """2 slots x 16 rows x 32 numbers of 4 bytes; the ledgers of cards are not the host's."""
    (problem,) = refusals(ask, A, B, cards="TwoCards", link="staged", free=4000)
    assert problem == (
        "host h0: the plan fills 4.0 KiB on links through it, free are 3.9 KiB: 96 B short"
    )
    assert ask(A, B, cards="TwoCards", link="p2p", free=0).warnings == ()


@pytest.mark.parametrize(
    ("visible", "order", "models", "expected"),
    [
        (None, None, "XX", (0, 1, 2)),
        ("2,0", None, "XX", (2, 0)),
        ("", None, "XX", ()),
        ("-1", None, "XX", ()),
        ("1,7,0", None, "XX", (1,)),
        ("GPU-bb,GPU-aaaa1111", None, "XY", (1, 0)),
        ("GPU-", None, "XX", ()),
        ("1", None, "XY", (0, 1, 2)),
        ("1", "PCI_BUS_ID", "XY", (1,)),
    ],
)
def test_what_is_visible_is_what_cuda_makes_of_it(
    visible: str | None, order: str | None, models: str, expected: tuple[int, ...]
) -> None:
    cards = [card(0, model=models[0]), card(1, model=models[0]), card(2, model=models[1])]
    names = {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": order}
    found = visible_cards(cards, {name: text for name, text in names.items() if text is not None})
    assert tuple(one.number for one in found) == expected


def test_cards_are_those_that_answer_and_the_library_is_closed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = FakeLibrary([(A, "X", 24, 20), None, (B, "Y", 48, 1)])
    monkeypatch.setitem(sys.modules, "pynvml", library)
    found = find_cards()
    assert [(c.number, c.uuid, c.model, c.total_bytes, c.free_bytes) for c in found.cards] == [
        (0, A, "X", 24, 20),
        (2, B, "Y", 48, 1),
    ]
    assert (found.reason, library.opened) == ("", 0)
    monkeypatch.setitem(sys.modules, "pynvml", FakeLibrary([None]))
    assert find_cards().reason == "the driver tells of no card"
    monkeypatch.setitem(sys.modules, "pynvml", FakeLibrary([], "Driver Not Loaded"))
    assert find_cards().reason == "Driver Not Loaded"


def test_asking_for_cards_imports_no_torch() -> None:
    code = (
        "import sys; from plancc.executor.backends import host_of;"
        "host_of('cuda').free_bytes(None); print('torch' in sys.modules)"
    )
    room = str(Path(__file__).parents[2] / ".src")
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True,
                          env={"PYTHONPATH": room}, check=True)  # fmt: skip
    assert done.stdout.strip() == "False"
