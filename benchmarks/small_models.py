"""Three small real models in plain torch, for benchmarks and tests: a Llama-style block, a small ViT, a BERT layer.

Patches are embedded by a Linear over unfolded pixels, which computes what the usual convolution does: all that a
search could look for in these models is then a GEMM.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Forward = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class LlamaSizes:
    batch: int = 2
    tokens: int = 512
    width: int = 1536
    heads: int = 12
    key_heads: int = 4
    inner: int = 4096


@dataclass(frozen=True)
class VitSizes:
    batch: int = 16
    image: int = 224
    patch: int = 16
    width: int = 768
    heads: int = 12
    inner: int = 3072
    layers: int = 2


@dataclass(frozen=True)
class BertSizes:
    batch: int = 16
    tokens: int = 128
    width: int = 768
    heads: int = 12
    inner: int = 3072


class LlamaBlock(nn.Module):
    """RMSNorm, rotary grouped-query attention, SwiGLU; no bias anywhere."""

    def __init__(self, sizes: LlamaSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.head = sizes.width // sizes.heads
        together = (sizes.heads + 2 * sizes.key_heads) * self.head
        self.attention_norm = nn.RMSNorm(sizes.width, eps=1e-5)
        self.query_key_value = nn.Linear(sizes.width, together, bias=False)
        self.attention_out = nn.Linear(sizes.width, sizes.width, bias=False)
        self.inner_norm = nn.RMSNorm(sizes.width, eps=1e-5)
        self.gate_up = nn.Linear(sizes.width, 2 * sizes.inner, bias=False)
        self.down = nn.Linear(sizes.inner, sizes.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention_out(self._attend(self.attention_norm(x)))
        gate, up = self.gate_up(self.inner_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)

    def _attend(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        heads, key_heads = self.sizes.heads, self.sizes.key_heads
        parts = self.query_key_value(x).view(batch, tokens, heads + 2 * key_heads, self.head).transpose(1, 2)
        query, key, value = parts.split((heads, key_heads, key_heads), dim=1)
        key, value = (part.repeat_interleave(heads // key_heads, dim=1) for part in (key, value))
        attended = F.scaled_dot_product_attention(self._rotated(query), self._rotated(key), value, is_causal=True)
        return attended.transpose(1, 2).reshape(batch, tokens, -1)

    def _rotated(self, x: Tensor) -> Tensor:
        half = self.head // 2
        places = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)
        speeds = 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
        angles = places[:, None] * speeds
        cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        first, second = x[..., :half], x[..., half:]
        return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class EncoderLayer(nn.Module):
    """Self-attention and a GELU layer, with biases; norms before (ViT) or after (BERT) what they belong to."""

    def __init__(self, width: int, heads: int, inner: int, *, norms_first: bool) -> None:
        super().__init__()
        self.heads = heads
        self.norms_first = norms_first
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.attention_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        if self.norms_first:
            x = x + self._attend(self.first_norm(x))
            return x + self._inner(self.second_norm(x))
        x = self.first_norm(x + self._attend(x))
        return self.second_norm(x + self._inner(x))

    def _inner(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))

    def _attend(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        parts = self.query_key_value(x).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*parts.unbind(0))
        return self.attention_out(attended.transpose(1, 2).reshape(batch, tokens, width))


class Vit(nn.Module):
    def __init__(self, sizes: VitSizes) -> None:
        super().__init__()
        self.patch = sizes.patch
        patches = (sizes.image // sizes.patch) ** 2
        self.embedding = nn.Linear(3 * sizes.patch**2, sizes.width)
        self.class_token = nn.Parameter(torch.zeros(1, 1, sizes.width))
        self.places = nn.Parameter(0.02 * torch.randn(1, patches + 1, sizes.width))
        layers = (EncoderLayer(sizes.width, sizes.heads, sizes.inner, norms_first=True) for _ in range(sizes.layers))
        self.layers = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(sizes.width)

    def forward(self, images: Tensor) -> Tensor:
        batch, channels, height, width = images.shape
        p = self.patch
        tiles = images.view(batch, channels, height // p, p, width // p, p).permute(0, 2, 4, 1, 3, 5)
        x = self.embedding(tiles.reshape(batch, -1, channels * p * p))
        x = torch.cat((self.class_token.expand(batch, -1, -1), x), dim=1) + self.places
        return self.norm(self.layers(x))


@dataclass(frozen=True)
class SmallModel:
    name: str
    dtype: torch.dtype
    build: Callable[[], nn.Module]
    input_sizes: tuple[int, ...]
    ops: tuple[str, ...]
    """The GEMMs that a step of it consists of."""

    def make(self, device: str | torch.device, seed: int = 0) -> tuple[nn.Module, Tensor]:
        """The model and an input; the same numbers each time."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self.build()
            inputs = torch.randn(self.input_sizes)
        return module.to(device, self.dtype), inputs.to(device, self.dtype)


def llama_block(sizes: LlamaSizes | None = None, dtype: torch.dtype = torch.bfloat16) -> SmallModel:
    s = sizes or LlamaSizes()
    return SmallModel("Llama-style block", dtype, lambda: LlamaBlock(s), (s.batch, s.tokens, s.width), ("mm",))


def small_vit(sizes: VitSizes | None = None, dtype: torch.dtype = torch.bfloat16) -> SmallModel:
    s = sizes or VitSizes()
    return SmallModel("ViT", dtype, lambda: Vit(s), (s.batch, 3, s.image, s.image), ("mm", "addmm"))


def bert_layer(sizes: BertSizes | None = None, dtype: torch.dtype = torch.float16) -> SmallModel:
    s = sizes or BertSizes()

    def build() -> nn.Module:
        return EncoderLayer(s.width, s.heads, s.inner, norms_first=False)

    return SmallModel("BERT layer", dtype, build, (s.batch, s.tokens, s.width), ("mm", "addmm"))


def small_models() -> tuple[SmallModel, ...]:
    return (llama_block(), small_vit(), bert_layer())


def training_step(forward: Forward, module: nn.Module, inputs: Tensor) -> tuple[Tensor, ...]:
    """Forward and backward: the output, then the gradient of each parameter.

    The loss weighs outputs differently, for the sum of a normalised output is constant and has no gradient.
    """
    output = forward(inputs)
    weights = torch.linspace(-1.0, 1.0, output.shape[-1], device=output.device, dtype=torch.float32)
    loss = (output.float() * weights).sum() / output.shape[0]
    return (output.detach(), *torch.autograd.grad(loss, list(module.parameters())))
