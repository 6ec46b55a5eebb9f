"""The GEMMs of real networks, derived from their published dimensions."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import Final, NamedTuple, cast

from diode.collection.architectures import (
    RECOMMENDERS,
    TRANSFORMERS,
    Experts,
    LatentAttention,
    Recommender,
    Stage,
    Transformer,
)
from diode.collection.samplers import ProblemLimits
from diode.errors import CollectionError, UsageError
from diode.types import BATCHED_OPS, Layout, MMShape


class NetworkProblem(NamedTuple):
    """A problem and where it comes from, as in `llama-3.1-70b/tp8/decode-16/gate_up`."""

    name: str
    model: str
    problem: MMShape


class _Gemm(NamedTuple):
    name: str
    problem: MMShape
    input_gradient: bool = True
    """False where the input is data, which no gradient goes to."""


NETWORKS: Final = {architecture.name: architecture for architecture in (*TRANSFORMERS, *RECOMMENDERS)}


def real_network_problems(
    models: Collection[str] | None = None, limits: ProblemLimits | None = None
) -> tuple[NetworkProblem, ...]:
    """Every GEMM of the given models (all of `NETWORKS` by default) that the limits admit, in a fixed order.

    Different layers may give the same problem; `networks_shapeset` holds each once.
    """
    unknown = sorted(set(models or ()) - NETWORKS.keys())
    if unknown:
        raise UsageError(f"no network is named {', '.join(unknown)}; there are {', '.join(NETWORKS)}")
    limits = limits or ProblemLimits()
    return tuple(
        NetworkProblem(f"{model}/{gemm.name}", model, gemm.problem)
        for model, architecture in NETWORKS.items()
        if models is None or model in models
        for gemm in _gemms(architecture)
        if limits.admit(gemm.problem)
    )


def networks_shapeset(
    models: Collection[str] | None = None, limits: ProblemLimits | None = None
) -> tuple[MMShape, ...]:
    """The distinct problems of `real_network_problems`, in the order of their first appearance."""
    return tuple(dict.fromkeys(found.problem for found in real_network_problems(models, limits)))


@dataclass(frozen=True)
class NetworkSampler:
    """Problems of real networks, as many of each model as of any other while they last."""

    seed: int
    models: tuple[str, ...] | None = None
    limits: ProblemLimits = field(default_factory=ProblemLimits)

    def sample(self, count: int) -> tuple[MMShape, ...]:
        draw = random.Random(self.seed).random  # the only draw that is the same in every Python; so no shuffle()
        by_model: dict[str, dict[MMShape, None]] = {}
        for found in real_network_problems(self.models, self.limits):
            by_model.setdefault(found.model, {})[found.problem] = None
        queues = [sorted(problems, key=lambda _: draw()) for problems in by_model.values()]
        queues.sort(key=lambda _: draw())
        chosen = tuple(
            dict.fromkeys(problem for turn in zip_longest(*queues) for problem in turn if problem is not None)
        )
        if len(chosen) < count:
            raise CollectionError(
                f"{count} problems of real networks were asked for, but there are only {len(chosen)}: "
                "ask for fewer, name more models, or widen the limits"
            )
        return chosen[:count]


def _gemms(architecture: Transformer | Recommender) -> Iterator[_Gemm]:
    if isinstance(architecture, Recommender):
        yield from _recommender_gemms(architecture)
        return
    for degree in architecture.parallel:
        prefix = f"tp{degree}/" if degree > 1 else ""
        for stage in architecture.stages:
            forward = list(_transformer_gemms(architecture, stage, degree))
            yield from _stage_gemms(f"{prefix}{stage.name}", forward, training=stage.training)


def _stage_gemms(stage: str, forward: list[_Gemm], *, training: bool) -> Iterator[_Gemm]:
    for gemm in forward:
        yield gemm._replace(name=f"{stage}/{gemm.name}")
        if training:
            if gemm.input_gradient:
                yield _Gemm(f"{stage}/{gemm.name}.dgrad", _input_gradient(gemm.problem))
            yield _Gemm(f"{stage}/{gemm.name}.wgrad", _weight_gradient(gemm.problem))


def _input_gradient(forward: MMShape) -> MMShape:
    """The gradient of A as autograd computes it: that of the output times B transposed, without a copy."""
    return MMShape.of(
        _unbiased(forward.op),
        forward.M,
        forward.K,
        forward.N,
        B=forward.B,
        dtype=forward.a.dtype,
        layout=_layout("N", _flipped(forward.layout[1])),
    )


def _weight_gradient(forward: MMShape) -> MMShape:
    """The gradient of B as autograd computes it: where B is one matrix, such that it lies in memory as B does."""
    a, b = forward.layout[0], forward.layout[1]
    like_b = b == "T" and forward.op not in BATCHED_OPS
    return MMShape.of(
        _unbiased(forward.op),
        forward.N if like_b else forward.K,
        forward.K if like_b else forward.N,
        forward.M,
        B=forward.B,
        dtype=forward.a.dtype,
        layout=_layout("T", a) if like_b else _layout(_flipped(a), "N"),
    )


def _transformer_gemms(model: Transformer, stage: Stage, degree: int) -> Iterator[_Gemm]:
    """One layer of each kind and the head, as one of `degree` GPUs computes them."""
    if model.latent:
        yield from _latent_attention(model, model.latent, stage, degree)
    else:
        yield from _attention(model, stage, degree)
    if model.ffn:
        yield from _feed_forward(model, "", stage.rows, model.ffn // degree)
    if model.experts:
        yield from _experts(model, model.experts, stage, degree)
    scores_all = model.scored == "all" or (model.scored == "all_in_training" and stage.training)
    head_rows = stage.rows if scores_all else stage.sequences
    yield _Gemm("head", _head(model, head_rows, model.head // degree))


def _attention(model: Transformer, stage: Stage, degree: int) -> Iterator[_Gemm]:
    heads, kv_heads = model.heads // degree, max(model.kv_heads // degree, 1)
    query_size, kv_size = heads * model.head_dim, kv_heads * model.head_dim
    if model.fused_qkv:
        yield _Gemm("qkv", _linear(model, stage.rows, query_size + 2 * kv_size, model.hidden, bias=model.qkv_bias))
    else:
        yield _Gemm("q", _linear(model, stage.rows, query_size, model.hidden, bias=model.qkv_bias))
        yield _Gemm("kv", _linear(model, stage.rows, kv_size, model.hidden, bias=model.qkv_bias))
    # When decoding, the queries that share a key-value head are the rows of one matrix; else keys and values are
    # repeated for each query head.
    batch, rows = (kv_heads, heads // kv_heads) if stage.decoding else (heads, stage.tokens)
    yield from _scores(model, stage.sequences * batch, rows, stage.context, model.head_dim, model.head_dim)
    yield _Gemm("out", _linear(model, stage.rows, model.hidden, query_size, bias=model.bias))


def _latent_attention(model: Transformer, latent: LatentAttention, stage: Stage, degree: int) -> Iterator[_Gemm]:
    heads = model.heads // degree
    query_dim = latent.nope_dim + latent.rope_dim
    down = latent.query_rank + latent.kv_rank + latent.rope_dim
    yield _Gemm("qkv_down", _linear(model, stage.rows, down, model.hidden))
    yield _Gemm("q_up", _linear(model, stage.rows, heads * query_dim, latent.query_rank))
    if stage.decoding:
        # The up-projections of keys and values are applied to queries and results instead of to the whole context.
        yield _Gemm("q_absorb", _bmm(model, heads, stage.rows, latent.kv_rank, latent.nope_dim, "NN"))
        latent_dim = latent.kv_rank + latent.rope_dim
        yield from _scores(model, stage.sequences, heads, stage.context, latent_dim, latent.kv_rank)
        yield _Gemm("v_absorb", _bmm(model, heads, stage.rows, latent.value_dim, latent.kv_rank, "NN"))
    else:
        kv_up = heads * (latent.nope_dim + latent.value_dim)
        yield _Gemm("kv_up", _linear(model, stage.rows, kv_up, latent.kv_rank))
        yield from _scores(model, stage.sequences * heads, stage.tokens, stage.context, query_dim, latent.value_dim)
    yield _Gemm("out", _linear(model, stage.rows, model.hidden, heads * latent.value_dim))


def _scores(model: Transformer, batch: int, rows: int, context: int, key_dim: int, value_dim: int) -> Iterator[_Gemm]:
    yield _Gemm("qk", _bmm(model, batch, rows, context, key_dim, "NT"))
    yield _Gemm("pv", _bmm(model, batch, rows, value_dim, context, "NN"))


def _feed_forward(model: Transformer, prefix: str, rows: int, ffn: int) -> Iterator[_Gemm]:
    up_name, up_size = ("gate_up", 2 * ffn) if model.gated else ("up", ffn)
    yield _Gemm(f"{prefix}{up_name}", _linear(model, rows, up_size, model.hidden, bias=model.bias))
    yield _Gemm(f"{prefix}down", _linear(model, rows, model.hidden, ffn, bias=model.bias))


def _experts(model: Transformer, experts: Experts, stage: Stage, degree: int) -> Iterator[_Gemm]:
    yield _Gemm("router", _linear(model, stage.rows, experts.count, model.hidden, bias=model.bias))
    if experts.shared_ffn:
        yield from _feed_forward(model, "shared_", stage.rows, experts.shared_ffn // degree)
    ffn = experts.ffn // degree
    if experts.batched:
        yield _Gemm("expert_gate_up", _bmm(model, experts.count, stage.rows, 2 * ffn, model.hidden, "NN"))
        yield _Gemm("expert_down", _bmm(model, experts.count, stage.rows, model.hidden, ffn, "NN"))
    else:
        rows = max(stage.rows * experts.per_token // experts.count, 1)
        yield from _feed_forward(model, "expert_", rows, ffn)


def _recommender_gemms(model: Recommender) -> Iterator[_Gemm]:
    for batch in model.batches:
        yield from _stage_gemms(f"serve-{batch}", list(_click_gemms(model, batch)), training=False)
    forward = list(_click_gemms(model, model.training_batch))
    yield from _stage_gemms(f"train-{model.training_batch}", forward, training=True)


def _click_gemms(model: Recommender, batch: int) -> Iterator[_Gemm]:
    vectors = model.sparse_features + 1
    dense = _mlp("bottom", (model.dense_features, *model.bottom), batch, model.dtype)
    yield next(dense)._replace(input_gradient=False)
    yield from dense
    if model.interaction == "dot":
        crossed = model.embedding + vectors * (vectors - 1) // 2
        yield _Gemm(
            "interaction",
            MMShape.of("bmm", vectors, vectors, model.embedding, B=batch, dtype=model.dtype, layout="NT"),
        )
    else:
        crossed = vectors * model.embedding
        yield _Gemm("cross_v", MMShape.of("mm", batch, model.cross_rank, crossed, dtype=model.dtype, layout="NT"))
        yield _Gemm("cross_w", MMShape.of("addmm", batch, crossed, model.cross_rank, dtype=model.dtype, layout="NT"))
    yield from _mlp("top", (crossed, *model.top), batch, model.dtype)


def _mlp(name: str, widths: tuple[int, ...], rows: int, dtype: str) -> Iterator[_Gemm]:
    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        yield _Gemm(f"{name}-{number}", MMShape.of("addmm", rows, outputs, inputs, dtype=dtype, layout="NT"))


def _linear(model: Transformer, rows: int, outputs: int, inputs: int, *, bias: bool = False) -> MMShape:
    layout: Layout = "NN" if model.weights_transposed else "NT"
    return MMShape.of("addmm" if bias else "mm", rows, outputs, inputs, dtype=model.dtype, layout=layout)


def _head(model: Transformer, rows: int, outputs: int) -> MMShape:
    op = "addmm" if model.head_bias else "mm"
    return MMShape.of(op, rows, outputs, model.hidden, dtype=model.dtype, layout="NT")


def _bmm(model: Transformer, batch: int, M: int, N: int, K: int, layout: Layout) -> MMShape:
    return MMShape.of("bmm", M, N, K, B=batch, dtype=model.dtype, layout=layout)


def _unbiased(op: str) -> str:
    return "bmm" if op in BATCHED_OPS else "mm"


def _flipped(letter: str) -> str:
    return "N" if letter == "T" else "T"


def _layout(a: str, b: str) -> Layout:
    return cast(Layout, a + b)
