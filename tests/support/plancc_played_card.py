r"""A pytest plugin: the card that is here plays one of an older kind.

    PYTHONPATH=tests/support:.src PLANCC_CARD=sm_86 \
        pytest -p plancc_played_card -m gpu tests/gpu/test_kernels.py

Kernels are cut and compiled as for the older card, to the instructions that it has (mma.sync and
cp.async, pointers, nothing that overlaps), and only the last step, from those to the machine's
code, is for the card that is here. So what an older card would compute is computed, but for the
multiplication inside its tensor cores; how fast, and whether it has the room, is not seen.
"""

import os
import shlex
import tempfile
from pathlib import Path

import pytest
import torch
import triton
from plancc_card_launches import CARDS
from triton.backends.compiler import GPUTarget

from plancc.kernels.gpu import card, launch

_ASSEMBLER = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"


def pytest_configure(config: pytest.Config) -> None:
    major, minor = torch.cuda.get_device_capability()
    play(os.environ["PLANCC_CARD"], f"sm_{major}{minor}")
    triton.runtime.driver.active.get_current_target = lambda: _target(os.environ["PLANCC_CARD"])


def play(name: str, here: str) -> None:
    """From now on kernels are made for `name`, and assembled for `here`."""
    folder = Path(tempfile.mkdtemp(prefix="plancc-"))
    assembler = folder / "ptxas"
    assembler.write_text(f'#!/bin/bash\nexec {shlex.quote(str(_ASSEMBLER))} '
                         f'"${{@/#--gpu-name=*/--gpu-name={here}}}"\n')  # fmt: skip
    assembler.chmod(0o755)
    os.environ |= {"TRITON_PTXAS_PATH": str(assembler), "TRITON_CACHE_DIR": str(folder / "cache")}
    played = CARDS[name]
    for module in (card, launch):
        module.card_at = lambda ordinal: played
    assert card.card_of(torch.device("cuda", 0)) == played


def _target(name: str) -> GPUTarget:
    major, minor = CARDS[name].capability
    return GPUTarget("cuda", 10 * major + minor, 32)
