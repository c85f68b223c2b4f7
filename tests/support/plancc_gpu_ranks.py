"""Ranks of the CUDA backend, driven as plancc_cpu_ranks drives those of the CPU."""

from typing import Any

from plancc_cpu_ranks import CpuRanks
from plancc_gpu_plans import cards_here

from plancc.executor.backend.cuda import CudaBackend
from plancc.ir.layers import DenseMlp


class GpuRanks(CpuRanks):
    """`device` "cpu" where Triton interprets; graphs only on a card."""

    def __init__(self, *args: Any, device: str = "cpu", graphs: bool = True, **kwargs: Any):
        self.backend = CudaBackend(device, uses_graphs=graphs)
        self.uuid = cards_here()[0] if device == "cuda" else None
        super().__init__(*args, **kwargs)

    def _open(self, index: int, threads: int) -> Any:
        blocks = ("embed",) if index == 0 else ()
        blocks += ("head",) if index == self.head else ()
        mlp = self.shape.layers[0].mlp
        assert isinstance(mlp, DenseMlp)
        return self.backend.open(
            model=self.shape,
            runtime=self.runtime,
            layers=self.spans[index],
            blocks=blocks,
            tiles=(0, mlp.num_tiles),
            threads=threads,
            uuid=self.uuid,
        )
