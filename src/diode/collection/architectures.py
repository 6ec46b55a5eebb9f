"""Published dimensions of real networks, and the sizes at which they are commonly run. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True)
class Stage:
    """One way to run a transformer: `sequences` at once, each with `tokens` new ones that attend to `context`."""

    name: str
    sequences: int
    tokens: int
    context: int
    training: bool = False
    """The gradients are computed too."""

    @property
    def rows(self) -> int:
        return self.sequences * self.tokens

    @property
    def decoding(self) -> bool:
        return self.tokens < self.context


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in place of the feed-forward network."""

    count: int
    per_token: int
    ffn: int
    shared_ffn: int = 0
    batched: bool = False
    """Every expert sees every token, in one bmm over weights that lie [expert, in, out]; else a GEMM per expert."""


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention: queries, keys and values go through low-rank projections."""

    query_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int


@dataclass(frozen=True)
class Transformer:
    name: str
    source: str
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    """0 where every layer has experts instead."""
    head: int
    """Width of the last layer: vocabulary or classes."""
    stages: tuple[Stage, ...]
    gated: bool = True
    fused_qkv: bool = True
    qkv_bias: bool = False
    bias: bool = False
    """Of all other layers but the head."""
    head_bias: bool = False
    scored: Literal["all", "all_in_training", "one"] = "all_in_training"
    """Which tokens of a sequence reach the head."""
    weights_transposed: bool = False
    """Weights lie [in, out], as in GPT-2's Conv1D, not [out, in], as in Linear; but for the head."""
    dtype: str = "bfloat16"
    parallel: tuple[int, ...] = (1,)
    """Degrees of tensor parallelism."""
    experts: Experts | None = None
    latent: LatentAttention | None = None


@dataclass(frozen=True)
class Recommender:
    """Dense features through a bottom MLP, crossed with embeddings, through a top MLP."""

    name: str
    source: str
    dense_features: int
    sparse_features: int
    embedding: int
    bottom: tuple[int, ...]
    top: tuple[int, ...]
    interaction: Literal["dot", "low_rank_cross"]
    cross_rank: int = 0
    batches: tuple[int, ...] = (512, 2048, 8192, 32_768)
    training_batch: int = 8192
    dtype: str = "float16"


def _prefill(tokens: int) -> Stage:
    return Stage(f"prefill-{tokens}", 1, tokens, tokens)


def _decode(sequences: int, context: int) -> Stage:
    return Stage(f"decode-{sequences}", sequences, 1, context)


def _encode(sequences: int, tokens: int) -> Stage:
    return Stage(f"encode-{sequences}x{tokens}", sequences, tokens, tokens)


def _train(sequences: int, tokens: int) -> Stage:
    return Stage(f"train-{sequences}x{tokens}", sequences, tokens, tokens, training=True)


# 1000 stands for prompts, which seldom are powers of two.
_SERVING: Final = (
    *(_prefill(tokens) for tokens in (128, 512, 1000, 2048, 8192)),
    *(_decode(sequences, 2048) for sequences in (1, 4, 16, 64, 256)),
)
_LLM: Final = (*_SERVING, _train(2, 2048))
_GPT2: Final = (
    *(_prefill(tokens) for tokens in (128, 1000, 1024)),
    *(_decode(sequences, 512) for sequences in (1, 16, 128)),
    _train(8, 1024),
)
_BERT: Final = (_encode(1, 128), _encode(8, 384), _encode(32, 128), _encode(32, 512), _train(32, 128))
_VIT_16: Final = (*(_encode(images, 197) for images in (1, 8, 32, 128)), _train(64, 197))
_VIT_14: Final = (*(_encode(images, 257) for images in (1, 8, 32, 128)), _train(64, 257))

_LLAMA_3_SOURCE: Final = "Dubey et al. 2024, The Llama 3 Herd of Models, table 3"
_QWEN_2_5_SOURCE: Final = "Qwen 2024, Qwen2.5 Technical Report; model card"
_GPT_2_SOURCE: Final = "Radford et al. 2019, Language Models are Unsupervised Multitask Learners, table 2"
_BERT_SOURCE: Final = "Devlin et al. 2018, BERT, section 3"
_VIT_SOURCE: Final = "Dosovitskiy et al. 2020, An Image is Worth 16x16 Words, table 1"


def _llama_3(name: str, hidden: int, heads: int, ffn: int, stages: tuple[Stage, ...], *parallel: int) -> Transformer:
    return Transformer(name, _LLAMA_3_SOURCE, hidden, heads, 8, 128, ffn, 128_256, stages, parallel=parallel)


def _gpt_2(name: str, hidden: int, heads: int) -> Transformer:
    return Transformer(
        name,
        _GPT_2_SOURCE,
        hidden,
        heads,
        heads,
        64,
        4 * hidden,
        50_257,
        _GPT2,
        gated=False,
        qkv_bias=True,
        bias=True,
        weights_transposed=True,
    )


def _bert(name: str, hidden: int, heads: int) -> Transformer:
    return Transformer(
        name,
        _BERT_SOURCE,
        hidden,
        heads,
        heads,
        64,
        4 * hidden,
        30_522,
        _BERT,
        gated=False,
        fused_qkv=False,
        qkv_bias=True,
        bias=True,
        head_bias=True,
        scored="all",
        dtype="float16",
    )


def _vit(name: str, hidden: int, heads: int, stages: tuple[Stage, ...]) -> Transformer:
    return Transformer(
        name,
        _VIT_SOURCE,
        hidden,
        heads,
        heads,
        hidden // heads,
        4 * hidden,
        1000,
        stages,
        gated=False,
        qkv_bias=True,
        bias=True,
        head_bias=True,
        scored="one",
        dtype="float16",
    )


# Name, source, hidden, heads, key-value heads, head dimension, feed-forward size, width of the head, stages.
TRANSFORMERS: Final = (
    Transformer("llama-3.2-1b", "Llama 3.2 model card", 2048, 32, 8, 64, 8192, 128_256, _LLM),
    _llama_3("llama-3.1-8b", 4096, 32, 14_336, _LLM, 1),
    _llama_3("llama-3.1-70b", 8192, 64, 28_672, _SERVING, 1, 8),
    _llama_3("llama-3.1-405b", 16_384, 128, 53_248, _SERVING, 1, 8),
    Transformer("qwen2.5-7b", _QWEN_2_5_SOURCE, 3584, 28, 4, 128, 18_944, 152_064, _LLM, qkv_bias=True),
    Transformer(
        "qwen2.5-72b", _QWEN_2_5_SOURCE, 8192, 64, 8, 128, 29_568, 152_064, _SERVING, qkv_bias=True, parallel=(1, 8)
    ),
    Transformer("mistral-7b", "Jiang et al. 2023, Mistral 7B, table 1", 4096, 32, 8, 128, 14_336, 32_000, _SERVING),
    Transformer("gemma-2-9b", "Gemma Team 2024, Gemma 2, table 1", 3584, 16, 8, 256, 14_336, 256_000, _SERVING),
    Transformer("phi-3-mini", "Abdin et al. 2024, Phi-3; model card", 3072, 32, 32, 96, 8192, 32_064, _SERVING),
    Transformer(
        "mixtral-8x7b",
        "Jiang et al. 2024, Mixtral of Experts, table 1",
        4096,
        32,
        8,
        128,
        0,
        32_000,
        _LLM,
        parallel=(1, 8),
        experts=Experts(count=8, per_token=2, ffn=14_336),
    ),
    Transformer(
        "qwen3-30b-a3b",
        "Qwen 2025, Qwen3 Technical Report; model card",
        2048,
        32,
        4,
        128,
        0,
        151_936,
        _SERVING,
        experts=Experts(count=128, per_token=8, ffn=768),
    ),
    Transformer(
        "llama-4-scout",
        "Llama 4 model card (text model)",
        5120,
        40,
        8,
        128,
        0,
        202_048,
        _SERVING,
        parallel=(1, 8),
        experts=Experts(count=16, per_token=1, ffn=8192, shared_ffn=8192, batched=True),
    ),
    Transformer(
        "gpt-oss-20b",
        "OpenAI 2025, gpt-oss-120b and gpt-oss-20b Model Card",
        2880,
        64,
        8,
        64,
        0,
        201_088,
        _SERVING,
        qkv_bias=True,
        bias=True,
        experts=Experts(count=32, per_token=4, ffn=2880, batched=True),
    ),
    Transformer(
        "deepseek-v3",
        "DeepSeek-AI 2024, DeepSeek-V3 Technical Report, section 4.2",
        7168,
        128,
        128,
        128,
        18_432,
        129_280,
        _SERVING,
        parallel=(1, 8),
        experts=Experts(count=256, per_token=8, ffn=2048, shared_ffn=2048),
        latent=LatentAttention(query_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128),
    ),
    _gpt_2("gpt2", 768, 12),
    _gpt_2("gpt2-xl", 1600, 25),
    _bert("bert-base", 768, 12),
    _bert("bert-large", 1024, 16),
    _vit("vit-b-16", 768, 12, _VIT_16),
    _vit("vit-l-16", 1024, 16, _VIT_16),
    _vit("vit-h-14", 1280, 16, _VIT_14),
)

RECOMMENDERS: Final = (
    Recommender(
        "dlrm",
        "Naumov et al. 2019, DLRM; MLPerf Training v0.7, recommendation",
        dense_features=13,
        sparse_features=26,
        embedding=128,
        bottom=(512, 256, 128),
        top=(1024, 1024, 512, 256, 1),
        interaction="dot",
    ),
    Recommender(
        "dlrm-dcnv2",
        "Wang et al. 2020, DCN V2; MLPerf Training v3.0, recommendation",
        dense_features=13,
        sparse_features=26,
        embedding=128,
        bottom=(512, 256, 128),
        top=(1024, 1024, 512, 256, 1),
        interaction="low_rank_cross",
        cross_rank=512,
    ),
)
