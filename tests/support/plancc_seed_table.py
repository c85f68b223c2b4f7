"""plans/seeds/README.md: what was reported, what we say, and why we are off where we are.

python tests/support/plancc_seed_table.py      writes it anew
"""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from plancc_seed_predict import predictions
from plancc_seed_systems import SEEDS, Row, systems

_SMALL_READS = (
    "an expert layer is many short reads and small kernels; one rate for all sizes, taken from a "
    "dense model, flatters it. `read_points` would say it; none were reported"
)
_SHARE = (
    "theirs reads at 0.54 of the datasheet, the 3090 at 0.81: a share does not carry over to "
    "another kind of memory; measure the card"
)

WHY = {
    "prefill_tok_s_one_card": "their kernels pass the datasheet's bf16 rate (84 TFLOP/s on a card "
    "of 71); 0.7 of 71 stands in the machine's file",
    "prefill_tok_s_two_stages": "the same, and our stages overlap their chunks, theirs do not",
    "ninfer-27b-plain-decode a100_one_card_tok_s": _SHARE,
    "ninfer-27b-plain-decode a100_split_ratio": "clocks of a card that waits, they suspect",
    "ninfer-27b-plain-decode rtx4090_one_card_tok_s": "a 4090 reaches more of its datasheet",
    "ninfer-35b-a3b-plain-decode a100_split_ratio": "clocks of a card that waits, they suspect",
    "rtx3090_one_card_tok_s": _SMALL_READS,
    "rtx4090_one_card_tok_s": _SMALL_READS,
    "a100_one_card_tok_s": _SMALL_READS,
    "boundary_us_decode": "another engine's copy; the link here is the ninfer pair's",
    "decode_tok_s": _SMALL_READS,
    "full_tp_over_pipeline_step": "widths of the model stand in: both steps are too short",
    "exchange_us_across_hosts": "ours is a latency and the bytes by the links; theirs goes through "
    "host memory and TCP, with larger rows in fp32",
    "share_of_a_window_that_stage_0_waits": "equal layers and a head of three layers stand in",
}
CLOSE = 0.05


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
Not in the table: speculation (DFlash, MTP, windows in flight), a driver away from the head (no plan
of ours sends logits over a network), and experts in host memory. Plans of ours have none of these,
so there is nothing to compare.
"""


RULE = "|---|---|---|---|---|---|"


def main() -> None:
    (SEEDS / "README.md").write_text(text(), encoding="utf-8")


def text() -> str:
    parts = [INTRO.rstrip()]
    for name, system in systems().items():
        said = predictions(name)
        parts += [f"\n## {name}\n", "| row | role | reported | ours | off | |", RULE]
        parts += [_line(name, row, said.get(row.name)) for row in system.rows]
    return "\n".join(parts) + "\n" + OUTRO


def reason(system: str, row: Row) -> str:
    """Why we are off; nothing where we are not."""
    return WHY.get(f"{system} {row.name}") or WHY.get(row.name) or ""


def off(row: Row, said: Any) -> float | None:
    """How far from the reported number, as a share of it."""
    if isinstance(row.value, bool | str) or not isinstance(said, int | float):
        return None
    return float(said / row.value - 1)


def _line(system: str, row: Row, said: Any) -> str:
    role = f"predict, within {row.within:.0%}" if row.within else row.role
    far = off(row, said)
    is_far = far is not None and abs(far) > CLOSE
    remark = (reason(system, row) if is_far else "") or row.note
    ours = "fitted" if row.role == "given" else _show(said)
    cells = (
        row.name,
        role,
        _show(row.value),
        ours,
        f"{far:+.1%}" if far is not None else "",
        remark,
    )
    return f"| {' | '.join(cells)} |"


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


if __name__ == "__main__":
    main()
