"""NCCL communicators: one a wire, of one rank a process.

torch.distributed carries them; nothing here waits for data, and nothing of torch's watches them:
who is gone or silent is told by the control connections, and ends the run.
"""

import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from plancc.executor.failures import LinkBroken
from plancc.ir.errors import BadInput

_PREFIXED: Any = vars(dist)["PrefixStore"]  # torch's stubs leave it out
_NEVER = timedelta(days=30)
_ALWAYS = {
    "NCCL_NVLS_ENABLE": "0",  # multicast outlives a process that dies within it
    "NCCL_GRAPH_REGISTER": "0",  # a rank that replays may meet one that launches
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",  # no thread of torch's ends this process
    "TORCH_NCCL_BLOCKING_WAIT": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    "TORCH_NCCL_PROPAGATE_ERROR": "0",
    "TORCH_FR_BUFFER_SIZE": "0",
}
_UNLESS_SAID = {"NCCL_MAX_P2P_NCHANNELS": "16"}  # each takes about 10 MiB of a receiver


class NcclSwap:
    """A cuda_wire.Swap. Made when all its members make theirs; the communicator comes with the
    first transfer, which waits for everyone on the host."""

    def __init__(self, store: Any, name: str, place: int, size: int) -> None:
        """Raises BadInput where this torch has no NCCL."""
        self._name, group = name, getattr(dist, "ProcessGroupNCCL", None)
        if group is None:
            raise BadInput(f"{name}: the plan wants nccl between processes, which torch "
                           f"{torch.__version__} here is built without: install a torch with CUDA, "
                           f"or compile with --workers host")  # fmt: skip
        _prepare()
        options = group.Options()
        options._timeout = _NEVER
        self._group = group(_PREFIXED(f"nccl {name}", store), place, size, options)
        self._options = dist.AllToAllOptions()
        self._options.asyncOp = False  # on the stream that is current

    def __call__(self, sent: list[torch.Tensor], taken: list[torch.Tensor]) -> None:
        try:
            work = self._group.alltoall(taken, sent, self._options)
            if work is not None:
                work.wait()  # has the stream wait, not the host
        except RuntimeError as error:
            raise LinkBroken(f"{self._name}: {str(error).splitlines()[0][:200]}") from None


def _prepare() -> None:
    """What NCCL and torch read of the environment as they start."""
    os.environ.update(_ALWAYS)
    for name, value in _UNLESS_SAID.items():
        os.environ.setdefault(name, value)
