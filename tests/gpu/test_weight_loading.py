"""Weights onto a card: through a ring of pinned blocks that is much smaller than they are."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("no CUDA device here", allow_module_level=True)

from plancc_checkpoints import TinyLlama, config_of
from plancc_random_checkpoint import write_random_checkpoint
from safetensors.torch import load_file

from plancc.compiler.frontends.architectures import read_architecture
from plancc.executor.weight_loader import RangeReader, load_rank
from plancc.ir.manifest import ModelShape
from plancc.ir.tensors import TensorPiece, rank_pieces
from plancc.ir.weight_folder import weight_index

pytestmark = pytest.mark.gpu


@dataclass
class Parameters:
    tensors: dict[TensorPiece, torch.Tensor]

    def pieces(self) -> tuple[TensorPiece, ...]:
        return tuple(self.tensors)

    def parameter(self, piece: TensorPiece) -> torch.Tensor:
        return self.tensors[piece]


def shape_of() -> ModelShape:
    """400 MB in bfloat16, a dozen times the ring."""
    spec = TinyLlama(num_layers=3, hidden_size=2048, intermediate_size=8192, num_heads=16,
                     num_kv_heads=4, vocab_size=16384, dtype="bfloat16")  # fmt: skip
    return read_architecture(config_of(spec), where="toy", name="toy").shape


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_checkpoint(tmp_path_factory.mktemp("load") / "toy", shape_of()).folder


@pytest.mark.parametrize("fingerprint", ["sampled", "full"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("share", [None, (5, 12)])
def test_every_parameter_is_on_the_card_when_loading_returns(
    folder: Path, fingerprint: str, dtype: torch.dtype, share: tuple[int, int] | None
) -> None:
    """They are zeroed on another stream just before, and read on another one just after."""
    index = weight_index(folder, fingerprint)  # type: ignore[arg-type]
    pieces = rank_pieces(shape_of(), (0, 3), share=share, blocks=("embed", "head"))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        rank = Parameters({p: torch.zeros(p.shape, dtype=dtype, device="cuda") for p in pieces})
    with RangeReader(folder, lambda count: None) as reader:
        load_rank(rank, pieces, index.by_name(), reader, index.fingerprint)  # type: ignore[arg-type]
    with torch.cuda.stream(side):
        found = {piece: tensor.cpu() for piece, tensor in rank.tensors.items()}
    stored = load_file(folder / "model.safetensors")
    for piece, tensor in found.items():
        expected, span = stored[piece.spec.name], slice(*piece.span) if piece.span else slice(None)
        expected = expected[:, span] if piece.spec.cut == "columns" else expected[span]
        assert torch.equal(tensor, expected.to(dtype)), piece
