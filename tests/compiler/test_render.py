"""`plancc show`: everything on one screen, true to the plan, readable without colour."""

import io
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plancc_examples import tiny_plan
from plancc_hand_plans import hand_plan
from plancc_tp_plans import group_plan
from rich.console import Console

from plancc.compiler.render_bars import FREE, PARTS, bar_bytes, bar_cells
from plancc.compiler.render_show import show_plan
from plancc.compiler.render_text import text_lines
from plancc.compiler.summary import has_idle_rows, idle_rows_sentence, summary_lines
from plancc.ir.plan import Ledger, Plan, PlanDevice

TWO = {"devices": ("d0", "d1"), "stage_layers": (3, 3), "head": "last"}


def shown(plan: Plan, width: int = 80, encoding: str = "utf-8") -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    show_plan(plan, Console(file=stream, width=width, highlight=False))
    stream.seek(0)
    return "\n".join(line.rstrip() for line in stream.read().splitlines()) + "\n"


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("head", ["first", "last"])
def test_no_line_is_wider_than_the_screen_or_cut_short(width: int, head: str) -> None:
    text = shown(tiny_plan(**{**TWO, "head": head, "slots": 2}), width)
    assert max(map(len, text.splitlines())) <= width
    assert "\u2026" not in text


@pytest.mark.parametrize("name", ["gpu-box-17.gpu0", "a-host-with-a-long-name.example:gpu0"])
def test_long_device_names_and_every_part_still_fit_80_columns(name: str) -> None:
    data = hand_plan((10,)).data()
    sizes = {"weights": 70, "kv": 30, "state": 20, "blocks": 10, "hop_buffers": 1, "workspace": 5}
    ledger = {part: size * 2**30 for part, size in sizes.items()} | {"overhead": 2**30}
    data["devices"][0] |= {
        "name": name, "budget_bytes": 141 * 2**30,
        "ledger": {**ledger, "total": 137 * 2**30, "free_after": 4 * 2**30},
    }  # fmt: skip
    data["stages"][0]["ranks"][0]["device"] = name
    text = shown(Plan.model_validate(data))
    assert max(map(len, text.splitlines())) <= 80
    assert "\u2026" not in text
    assert "70.00" in text
    assert re.search(r"97\.2 % of 141\.00 GiB$", text, re.MULTILINE)


def test_piped_text_has_no_colour() -> None:
    assert "\x1b" not in shown(tiny_plan(**TWO))


def test_a_terminal_without_unicode_gets_letters() -> None:
    text = shown(tiny_plan(**TWO), encoding="ascii")
    assert text.isascii()
    assert "WWWW" in text


@pytest.mark.parametrize(
    "words",
    ["tiny on three: 2 stages on 2 devices", "context 64, 1 slot, prefill chunk 16, float32",
     "0..2 (3)", "3..5 (3)", "embed", "head", "row to d1", "token to d0", "tok/s", "proven optimal",
     "64 tokens in 4 chunks"],
)  # fmt: skip
def test_the_screen_says(words: str) -> None:
    assert words in shown(tiny_plan(**TWO), 120)


def test_every_device_and_its_numbers_are_in_the_table() -> None:
    plan = tiny_plan(**TWO)
    text = shown(plan)
    for device in plan.devices:
        row = next(line for line in text.splitlines() if re.match(rf"{device.name} +0", line))
        assert f"{device.ledger.weights / 2**20:.2f}" in row
        assert f"{device.ledger.free_after / 2**20:.2f}" in row


def test_a_part_that_no_device_has_takes_no_column() -> None:
    header = next(
        line for line in shown(tiny_plan(**TWO)).splitlines() if line.startswith("device")
    )
    assert "state" not in header
    assert "weights" in header


def test_shapes_that_lost_say_why() -> None:
    plan = hand_plan(
        alternatives=[
            {"shape": "1 device", "verdict": "does not fit", "short_bytes": 2**30, "device": "d0"},
            {"shape": "d1 | d0", "verdict": "slower", "value": 2_000_000},
            {"shape": "TP 2", "verdict": "not allowed", "note": "--tp off"},
            {"shape": "d0 | d1", "verdict": "chosen", "value": 1},
        ]
    )
    text = shown(plan)
    assert "does not fit: d0 is 1.00 GiB short" in text
    assert "slower: 2.00 ms" in text
    assert "not allowed; --tp off" in text
    assert "d0 | d1" not in text[text.index("Why not") :]


def test_a_gap_is_never_called_optimal() -> None:
    data = hand_plan().data()
    data["provenance"]["solver"] |= {"status": "feasible", "bound": 969, "gap": 0.031}
    plan = Plan.model_validate(data)
    assert "feasible, gap 3.1 % (not proven optimal)" in shown(plan)
    assert "proven optimal:" not in shown(plan)


def test_a_prefill_that_nobody_measured_is_said_to_be_unknown() -> None:
    assert "prefill  not known: the topology gives no matmul rate" in shown(hand_plan())


BYTES = st.integers(0, 2**40)


@settings(max_examples=100)
@given(st.tuples(*[BYTES] * 7), BYTES, st.integers(1, 3), st.integers(10, 100))
def test_a_bar_is_as_long_as_its_budget_and_shows_every_part(
    parts: tuple[int, ...], free: int, share: int, width: int
) -> None:
    names = ("weights", "kv", "state", "blocks", "hop_buffers", "workspace", "overhead")
    ledger = Ledger(**dict(zip(names, parts, strict=True)), total=sum(parts), free_after=free)
    budget = sum(parts) + free
    device = PlanDevice(name="d", host="h", kind="k", budget_bytes=budget, ledger=ledger)
    cells = bar_cells(device, budget * share, width)
    assert sum(cells.values()) == max(1, round(width * max(1, budget) / max(1, budget * share)))
    assert list(cells) == [ink.name for ink in (*PARTS, FREE)]
    sizes = {**bar_bytes(device), FREE.name: free}
    if 0 < len([size for size in sizes.values() if size]) <= sum(cells.values()) // 2:
        assert all(bool(cells[name]) == bool(size) for name, size in sizes.items())


def test_textconv_gives_one_fact_a_line_for_git() -> None:
    plans = [tiny_plan(devices=("d2", "d1"), stage_layers=cut) for cut in ((3, 3), (4, 2))]
    before, after = (list(text_lines(plan)) for plan in plans)
    assert "  0 d2: layers 0..2, embed" in before
    assert "  0 d2: layers 0..3, embed" in after
    assert len(before) == len(after)
    assert f"digest {plans[0].digest}" == before[-1]


def test_textconv_shows_every_section_for_any_plan() -> None:
    titles = [line for line in text_lines(hand_plan()) if line and not line.startswith(" ")]
    assert titles[:-1] == [
        "inputs", "ask", "stages", "devices", "links", "runtime", "predicted", "why not"
    ]  # fmt: skip


def test_text_for_git_tells_who_has_which_tiles_and_who_the_mixer() -> None:
    """A tile that moved must not be seen in bytes alone."""
    lines = [line.strip() for line in text_lines(group_plan())]
    at = lines.index("1 d2+d3: layers 3..5, head")
    assert lines[at + 1 : at + 4] == [
        "mixer owned", "d2 MLP tiles 0..11 (12)", "d3 MLP tiles 12..15 (4)"
    ]  # fmt: skip
    assert "mixer single" not in lines


def test_the_summary_is_three_lines() -> None:
    plan = tiny_plan(**TWO)
    lines = summary_lines(plan, "a.plan.json")
    assert len(lines) == 3
    assert lines[0] == (f"wrote a.plan.json {plan.digest[:12]}: d0 layers 0..2 | d1 layers 3..5")
    assert lines[1].startswith("tightest: d1")
    assert "latency proven optimal" in lines[2]


@pytest.mark.parametrize(
    ("context", "chunk", "slots", "is_said"),
    [(64, 64, 1, False), (64, 65, 1, True), (8, 10, 10, False)],
)
def test_a_chunk_longer_than_any_step_is_said_to_take_room_for_nothing(
    context: int, chunk: int, slots: int, is_said: bool
) -> None:
    flags = {"context": context, "slots": slots, "devices": ("d2",)}
    plan = tiny_plan(prefill_chunk=chunk, **flags)
    assert has_idle_rows(plan) == is_said
    assert (f"prefill chunk {chunk} (longer than the context), " in shown(plan)) == is_said
    if is_said:
        shorter = tiny_plan(prefill_chunk=context, **flags)
        assert shorter.devices[0].ledger.total < plan.devices[0].ledger.total
        assert shorter.predicted == plan.predicted
        assert f"--prefill-chunk {context} does the same" in idle_rows_sentence(plan)


def test_the_summary_and_the_screen_say_what_a_round_of_all_streams_is_worth() -> None:
    """Of `throughput` the value is the ns in which every stream advances by a token."""
    plan = tiny_plan(objective="throughput", slots=4)
    value = plan.provenance.solver.value
    words = f"a round of 4 streams, {4e9 / value:.1f} tok/s in all"
    assert words in summary_lines(plan, None)[2]
    assert words in " ".join(shown(plan, 200).split())


def test_the_summary_says_how_long_a_prompt_takes_where_that_was_asked() -> None:
    plan = tiny_plan(objective="prefill", prompt=64)
    prefill = plan.predicted.prefill
    assert prefill is not None
    words = f" a prompt of 64 tokens ({prefill.tokens_per_s:.0f} tok/s); "
    assert words in summary_lines(plan, None)[2]


@pytest.mark.parametrize("width", [80, 120])
def test_the_screen_is_as_reviewed(width: int, golden: Callable[[str, str], None]) -> None:
    plan = tiny_plan(**TWO)
    data = plan.data()
    data["provenance"]["solver"] |= {"name": "solver", "version": "0"}
    data["digest"] = "0123456789abcdef"
    data["alternatives"] = [
        {"shape": "one device", "verdict": "slower", "value": 1_200_000, "device": "d2"},
        {"shape": "MLP tensor parallelism", "verdict": "not allowed", "note": "--tp off"},
    ]
    golden(f"show_{width}.txt", shown(Plan.model_validate(data), width))
