"""plans/seeds/README.md: what was reported, what we say, and why we are off where we are.

python tests/support/plancc_seed_table.py      writes it anew
"""

from typing import Any

from plancc_seed_predict import predictions
from plancc_seed_systems import SEEDS, Row, systems

WHY = {
    "prefill_tok_s_one_card": "their kernels pass the datasheet's bf16 rate (84 TFLOP/s of "
    "integer weights on a card of 71); 0.7 of 71 stands in the machine's file",
    "prefill_tok_s_two_stages": "the same, and our stages overlap their chunks, theirs do not",
    "rtx4090_one_card_tok_s": "a 4090 reaches more of its datasheet than a 3090",
    "a100_one_card_tok_s": "theirs reads at 0.54 of the datasheet, the 3090 at 0.81: a share does "
    "not carry over to another memory; measure the card",
    "a100_split_ratio": "the report suspects clocks that fall while a card waits",
    "boundary_us_decode": "another engine's copy; the link here is the ninfer pair's",
    "decode_tok_s": "an expert layer is many short reads and small kernels; one rate for all "
    "sizes, taken from a dense model, flatters it: read_points say it, and none were reported",
    "full_tp_over_pipeline_step": "widths of the model stand in, so both steps are too short",
    "exchange_us_across_hosts": "one latency and the bytes; theirs goes through host memory, TCP "
    "and gathers of larger fp32 rows",
    "share_of_a_window_that_stage_0_waits": "equal layers and a head of three layers stand in",
}

INTRO = """# Seeds: what others measured, and what we say to it

Reported systems that split one model over several devices, as manifests and machines. Every number
in them says where it comes from: given, datasheet, or inferred. `rows.yaml` holds what was
reported, in three roles:

- **given**: calibrates a machine. One number a machine, its read rate; nothing else is fitted.
- **predict**: we must come within the tolerance; `tests/compiler/test_seed_rows.py` holds it.
- **measured**: shown, not held. Where we are off, the last column says why.

Cards without a given row read at the share of their datasheet that the calibrated RTX 3090 reaches
(0.81). Weights of the magnitude system follow from its own two stages, so those two rows check
sums; they forecast nothing. Columns beyond one are those of speculation by three drafts, as in the
report: four share a sequence's state. `python tests/support/plancc_seed_table.py` writes this page
anew.
"""

OUTRO = """
Not in the table: speculation (DFlash, MTP, windows in flight), a driver that holds the head (no
plan of ours sends logits over a network), tensor parallelism as those engines built it, and experts
in host memory. Plans of ours have none of these yet, so there is nothing to compare.
"""


RULE = "|---|---|---|---|---|---|"


def main() -> None:
    (SEEDS / "README.md").write_text(text(), encoding="utf-8")


def text() -> str:
    parts = [INTRO.rstrip()]
    for name, system in systems().items():
        said = predictions(name)
        parts += [f"\n## {name}\n", "| row | role | reported | ours | off | |", RULE]
        parts += [_line(row, said.get(row.name)) for row in system.rows]
    return "\n".join(parts) + "\n" + OUTRO


def _line(row: Row, said: Any) -> str:
    role = f"predict, within {row.within:.0%}" if row.within else row.role
    remark = WHY.get(row.name) or row.note
    ours = "fitted" if row.role == "given" else _show(said)
    cells = (row.name, role, _show(row.value), ours, _off(row, said), remark)
    return f"| {' | '.join(cells)} |"


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def _off(row: Row, said: Any) -> str:
    if isinstance(row.value, bool | str) or not isinstance(said, int | float):
        return ""
    return f"{said / row.value - 1:+.1%}"


if __name__ == "__main__":
    main()
