"""What kernels lack is said where nothing may import them: it must be what they are made for."""

import itertools
import os
import subprocess
import sys

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are made, which other tests need so

from plancc.executor.backend import cpu_limits, cuda_exchange, cuda_limits
from plancc.kernels import tables
from plancc.kernels.gpu import roots


def test_what_kernels_lack_is_known_without_them() -> None:
    code = (
        "import sys; from plancc.executor.backends import LIMITS, _named; "
        "[_named(where) for where in LIMITS.values()]; "
        "print([name for name in ('torch', 'numba', 'triton') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True,
                          check=True)  # fmt: skip
    assert done.stdout == "[]\n"


def test_limits_are_those_of_the_kernels() -> None:
    assert (cpu_limits.MAX_HEAD_DIM, cpu_limits.MAX_QUERIES_PER_KV_HEAD) == (
        tables.MAX_HEAD_DIM, tables.MAX_QUERIES_PER_KV_HEAD,
    )  # fmt: skip
    assert cuda_limits.MAX_RANKS == roots.MAX_RANKS
    for shape in itertools.product((1, 8, 64), (32, 1000, 4096), (2, 4)):
        assert cuda_limits._squares_rows(*shape) == cuda_exchange.squares_rows(*shape)
