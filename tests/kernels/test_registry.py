"""The closed set of kernels."""

import subprocess
import sys

from plancc.ir.buffers import PROMPT_BLOCK_ROWS
from plancc.ir.kernel_spec import KERNELS
from plancc.ir.tiles import MAX_TILES
from plancc.kernels import stages
from plancc.kernels.registry import REGISTRY
from plancc.kernels.tables import BLOCK_ROWS, STEP


def test_the_registry_is_the_closed_set_that_plans_name() -> None:
    assert {family: entry.name for family, entry in REGISTRY.items()} == KERNELS


def test_every_family_but_sampling_has_a_plain_reference() -> None:
    assert {name for name, family in REGISTRY.items() if family.reference is None} == {"sample"}


def test_what_a_layer_runs_is_in_the_registry() -> None:
    known = {function for family in REGISTRY.values() for function in family.decode + family.prompt}
    run = {function for function, _, _ in stages.ROWS_LAYER + stages.GROUPS_LAYER}
    assert run <= known


def test_shared_functions_have_their_fields_in_a_step() -> None:
    assert (STEP.names or ())[: len(stages.SHARED)] == tuple(stages.SHARED)


def test_sizes_that_the_kernels_repeat_are_those_of_the_ir() -> None:
    assert BLOCK_ROWS == PROMPT_BLOCK_ROWS
    assert MAX_TILES == 64  # the depth of kernels.mlp's stacks follows from it


def test_importing_the_kernels_compiles_nothing_and_importing_the_executor_no_numba() -> None:
    code = (
        "import sys, plancc.executor.backend.api, plancc.executor.rope, plancc.executor.step\n"
        "assert 'numba' not in sys.modules\n"
        "from plancc.kernels.stages import SHARED\n"
        "assert not any('address' in vars(f) for f in SHARED.values())\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
