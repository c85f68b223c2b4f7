"""A backend in plain torch, one row at a time: slow, small, and bit-equal by construction.

It shares no code with the real kernels. Faults and delays are asked for by environment, so that
tests can reach into worker processes: PLANCC_FAKE_STEP_S sleeps in every segment of every rank;
PLANCC_FAKE_FAULT=STAGE:PHASE:KIND acts in the first such step of that stage, KIND being raise,
nan (its output), or hold (never returns). PLANCC_FAKE_SCRIPT=20,21,9 is what the head says.
"""

import hashlib
import os
import time

import torch

from plancc.executor.backend.host import HostLinks, HostRank
from plancc.executor.step import Step
from plancc.ir.instruction import Run
from plancc.ir.layers import Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Runtime
from plancc.ir.sizes import kv_pool_rows, kv_rows_per_slot
from plancc.ir.tensors import TensorPiece, rank_pieces


class FakeBackend(HostLinks):
    def open(
        self,
        *,
        model: ModelShape,
        runtime: Runtime,
        layers: tuple[int, int],
        blocks: tuple[str, ...],
        tiles: tuple[int, int],
        threads: int,
        uuid: str | None = None,
    ) -> "FakeModel":
        torch.set_num_threads(threads)
        return FakeModel(model, runtime, layers, blocks)


class FakeModel(HostRank):
    """One stage of a llama; RoPE is left out, which no test of the executor can see."""

    def __init__(
        self, model: ModelShape, runtime: Runtime, layers: tuple[int, int], blocks: tuple[str, ...]
    ) -> None:
        self._model, self._runtime, self._layers = model, runtime, layers
        self._dtype = getattr(torch, model.dtype)
        self._pieces = rank_pieces(model, layers, blocks=blocks)
        self._weights = {
            piece.spec.name: torch.full(piece.shape, float("nan"), dtype=self._dtype)
            for piece in self._pieces
        }
        self._kv = {index: self._planes(index) for index in range(*layers)}
        self._pages: dict[tuple[int, int], int] = {}
        self._said = 0

    def pieces(self) -> tuple[TensorPiece, ...]:
        return self._pieces

    def parameter(self, piece: TensorPiece) -> torch.Tensor:
        return self._weights[piece.spec.name]

    def admit(self, slot: int) -> None:
        self._said = 0
        for key in [key for key in self._pages if key[0] == slot]:
            del self._pages[key]

    def allocated_bytes(self) -> dict[str, int]:
        weights = sum(w.numel() * w.element_size() for w in self._weights.values())
        kv = sum(p.numel() * p.element_size() for pair in self._kv.values() for p in pair)
        return {"weights": weights, "kv": kv, "blocks": 0, "workspace": 0}

    def kv_digest(self, layer: int, slot: int, num_tokens: int) -> str:
        digest = hashlib.sha256()
        for plane in self._kv[layer]:
            digest.update(plane[self._rows(slot, num_tokens)].view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def run(self, run: Run, step: Step, hidden: torch.Tensor | None) -> torch.Tensor:
        time.sleep(float(os.environ.get("PLANCC_FAKE_STEP_S", "0")))
        for slot, logical, page in step.pages:
            self._pages[slot, logical] = page
        is_prompt = step.phase == "prompt"
        rows = []
        for row, token in enumerate(step.token_ids):
            slot = step.slots[0 if is_prompt else row]
            position = step.positions[0] + row if is_prompt else step.positions[row]
            x = self._embed(token) if run.embed else hidden[row].float()
            for layer in range(*run.layers):
                x = self._layer(layer, x, slot, position)
            rows.append(x)
        out = torch.stack(rows)
        if run.head and "PLANCC_FAKE_SCRIPT" in os.environ:
            return self._scripted()
        if run.head:
            wanted = (
                [] if not step.wants_logits else [len(rows) - 1] if is_prompt else range(len(rows))
            )
            return self._head(out[list(wanted)])
        return _faulty(self._layers, step, out.to(self._dtype))

    def _scripted(self) -> torch.Tensor:
        """Logits of the next token of the script."""
        script = os.environ["PLANCC_FAKE_SCRIPT"].split(",")
        logits = torch.zeros(1, self._model.vocab_size or 0)
        logits[0, int(script[self._said])] = 1.0
        self._said += 1
        return logits

    def _embed(self, token: int) -> torch.Tensor:
        return self._weights["model.embed_tokens.weight"][token].float()

    def _layer(self, index: int, x: torch.Tensor, slot: int, position: int) -> torch.Tensor:
        layer, name = self._model.layers[index], f"model.layers.{index}."
        normed = self._norm(x, name + "input_layernorm")
        x = x + self._attend(index, layer, normed, slot, position)
        x = x.to(self._dtype).float()
        normed = self._norm(x, name + "post_attention_layernorm")
        inner = torch.nn.functional.silu(self._mv(name + "mlp.gate_proj", normed))
        inner = inner * self._mv(name + "mlp.up_proj", normed)
        return (x + self._mv(name + "mlp.down_proj", inner)).to(self._dtype).float()

    def _attend(
        self, index: int, layer: Layer, normed: torch.Tensor, slot: int, position: int
    ) -> torch.Tensor:
        name, mixer = f"model.layers.{index}.self_attn.", layer.mixer
        heads, kv_heads, dim = mixer.num_heads, mixer.num_kv_heads, mixer.head_dim
        assert heads
        assert kv_heads
        assert dim
        row = self._rows(slot, position + 1)[-1]
        keys, values = self._kv[index]
        keys[row] = self._mv(name + "k_proj", normed).to(keys.dtype)
        values[row] = self._mv(name + "v_proj", normed).to(values.dtype)
        seen = self._rows(slot, position + 1)[-(mixer.window or position + 1) :]
        k = keys[seen].float().view(-1, kv_heads, dim)
        v = values[seen].float().view(-1, kv_heads, dim)
        q = self._mv(name + "q_proj", normed).view(heads, dim)
        out = []
        for head in range(heads):
            group = head * kv_heads // heads
            scores = torch.softmax((k[:, group] * q[head]).sum(1) / dim**0.5, 0)
            out.append((v[:, group] * scores[:, None]).sum(0))
        return self._mv(name + "o_proj", torch.cat(out))

    def _head(self, rows: torch.Tensor) -> torch.Tensor:
        tied = self._model.has_tied_head
        name = "model.embed_tokens" if tied else "lm_head"
        logits = [self._mv(name, self._norm(row, "model.norm")) for row in rows]
        return torch.stack(logits) if logits else torch.zeros((0, self._model.vocab_size or 0))

    def _mv(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return self._weights[name + ".weight"].float() @ x

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        scale = torch.rsqrt(x.square().mean() + 1e-5)
        return x * scale * self._weights[name + ".weight"].float()

    def _rows(self, slot: int, num_tokens: int) -> list[int]:
        size = self._runtime.page_tokens
        return [self._pages[slot, p // size] * size + p % size for p in range(num_tokens)]

    def _planes(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V rows of the pool: exactly as many as the ledger pays for."""
        layer, runtime = self._model.layers[index], self._runtime
        rows = kv_pool_rows(
            kv_rows_per_slot(layer, runtime.context, runtime.prefill_chunk), runtime.slots
        )
        width = (layer.mixer.kv_width() or 0) // 2
        dtype = getattr(torch, runtime.kv_dtype)
        return torch.zeros((rows, width), dtype=dtype), torch.zeros((rows, width), dtype=dtype)


def _faulty(layers: tuple[int, int], step: Step, out: torch.Tensor) -> torch.Tensor:
    first, phase, kind = os.environ.get("PLANCC_FAKE_FAULT", "-1::").split(":")
    if not layers[0] <= int(first) < layers[1] or step.phase != phase:
        return out
    if kind == "raise":
        raise ValueError("a fault was asked for")
    if kind == "hold":
        time.sleep(3600)
    return out * float("nan")
