from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from diode.collection.networks import (
    NETWORKS,
    NetworkProblem,
    NetworkSampler,
    networks_shapeset,
    real_network_problems,
)
from diode.collection.samplers import ProblemLimits
from diode.errors import CollectionError, UsageError
from diode.types import MMShape, Operand

NO_LIMITS = ProblemLimits(memory_bytes=10**30, max_flops=1e40, max_elements=10**30)


def by_name(*models: str) -> dict[str, MMShape]:
    return {found.name: found.problem for found in real_network_problems(models, NO_LIMITS)}


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("llama-3.1-8b/prefill-2048/qkv", MMShape.of("mm", 2048, 6144, 4096, layout="NT")),
        ("llama-3.1-8b/decode-16/gate_up", MMShape.of("mm", 16, 28_672, 4096, layout="NT")),
        ("llama-3.1-8b/decode-16/down", MMShape.of("mm", 16, 4096, 14_336, layout="NT")),
        ("llama-3.1-8b/prefill-8192/head", MMShape.of("mm", 1, 128_256, 4096, layout="NT")),
        ("llama-3.1-8b/train-2x2048/head", MMShape.of("mm", 4096, 128_256, 4096, layout="NT")),
        ("llama-3.1-8b/decode-16/qk", MMShape.of("bmm", 4, 2048, 128, B=128, layout="NT")),
        ("llama-3.1-8b/prefill-512/pv", MMShape.of("bmm", 512, 128, 512, B=32, layout="NN")),
        ("llama-3.1-70b/tp8/prefill-128/qkv", MMShape.of("mm", 128, 1280, 8192, layout="NT")),
        ("llama-3.1-70b/tp8/prefill-128/out", MMShape.of("mm", 128, 8192, 1024, layout="NT")),
        ("llama-3.1-70b/tp8/decode-4/down", MMShape.of("mm", 4, 8192, 3584, layout="NT")),
        ("llama-3.1-405b/tp8/decode-1/head", MMShape.of("mm", 1, 16_032, 16_384, layout="NT")),
        ("qwen2.5-7b/decode-1/qkv", MMShape.of("addmm", 1, 4608, 3584, layout="NT")),
        ("qwen2.5-7b/decode-1/out", MMShape.of("mm", 1, 3584, 3584, layout="NT")),
        ("gemma-2-9b/prefill-512/out", MMShape.of("mm", 512, 3584, 4096, layout="NT")),
        ("mixtral-8x7b/prefill-8192/router", MMShape.of("mm", 8192, 8, 4096, layout="NT")),
        ("mixtral-8x7b/prefill-8192/expert_gate_up", MMShape.of("mm", 2048, 28_672, 4096, layout="NT")),
        ("mixtral-8x7b/decode-1/expert_down", MMShape.of("mm", 1, 4096, 14_336, layout="NT")),
        ("gpt-oss-20b/decode-64/expert_down", MMShape.of("bmm", 64, 2880, 2880, B=32, layout="NN")),
        ("deepseek-v3/prefill-512/qkv_down", MMShape.of("mm", 512, 2112, 7168, layout="NT")),
        ("deepseek-v3/prefill-512/q_up", MMShape.of("mm", 512, 24_576, 1536, layout="NT")),
        ("deepseek-v3/prefill-512/kv_up", MMShape.of("mm", 512, 32_768, 512, layout="NT")),
        ("deepseek-v3/prefill-512/qk", MMShape.of("bmm", 512, 512, 192, B=128, layout="NT")),
        ("deepseek-v3/tp8/decode-16/q_absorb", MMShape.of("bmm", 16, 512, 128, B=16, layout="NN")),
        ("deepseek-v3/tp8/decode-16/qk", MMShape.of("bmm", 16, 2048, 576, B=16, layout="NT")),
        ("deepseek-v3/prefill-8192/expert_gate_up", MMShape.of("mm", 256, 4096, 7168, layout="NT")),
        ("gpt2/prefill-1024/qkv", MMShape.of("addmm", 1024, 2304, 768, layout="NN")),
        ("gpt2/decode-16/head", MMShape.of("mm", 16, 50_257, 768, layout="NT")),
        ("bert-base/encode-32x128/head", MMShape.of("addmm", 4096, 30_522, 768, dtype="float16", layout="NT")),
        ("bert-large/encode-8x384/qk", MMShape.of("bmm", 384, 384, 64, B=128, dtype="float16", layout="NT")),
        ("vit-b-16/encode-1x197/up", MMShape.of("addmm", 197, 3072, 768, dtype="float16", layout="NT")),
        ("vit-h-14/encode-8x257/pv", MMShape.of("bmm", 257, 80, 257, B=128, dtype="float16", layout="NN")),
        ("vit-l-16/train-64x197/head", MMShape.of("addmm", 64, 1000, 1024, dtype="float16", layout="NT")),
        ("dlrm/serve-2048/bottom-0", MMShape.of("addmm", 2048, 512, 13, dtype="float16", layout="NT")),
        ("dlrm/serve-2048/interaction", MMShape.of("bmm", 27, 27, 128, B=2048, dtype="float16", layout="NT")),
        ("dlrm/serve-2048/top-0", MMShape.of("addmm", 2048, 1024, 479, dtype="float16", layout="NT")),
        ("dlrm-dcnv2/serve-512/cross_v", MMShape.of("mm", 512, 512, 3456, dtype="float16", layout="NT")),
    ],
)
def test_problems_follow_from_the_published_dimensions(name: str, problem: MMShape) -> None:
    assert by_name(name.partition("/")[0])[name] == problem


Gemm = tuple[str, int, int, int, int, str]


def gemm(problem: MMShape) -> Gemm:
    return (problem.op, problem.B, problem.M, problem.N, problem.K, problem.layout)


class GemmRecorder(TorchDispatchMode):
    """Notes op, sizes and memory layout of every GEMM that torch executes, in the forward and the backward."""

    def __init__(self) -> None:
        super().__init__()
        self.gemms: set[Gemm] = set()

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        name = func.overloadpacket.__name__
        if name in ("mm", "addmm", "bmm"):
            a, b = args[-2:]
            batch = a.shape[0] if name == "bmm" else 1
            operands = [Operand("float32", matrix.stride()) for matrix in (a, b, b)]
            problem = MMShape(name, batch, a.shape[-2], b.shape[-1], a.shape[-1], *operands)
            self.gemms.add(gemm(problem))
        return func(*args, **(kwargs or {}))


def gemms_of(step: Callable[[], Tensor]) -> set[Gemm]:
    """What torch executes for a training step, on tensors without data."""
    with GemmRecorder() as recorder, torch.device("meta"):
        out = step()
        out.backward(torch.empty_like(out))
    return recorder.gemms


def derived(model: str, stage: str) -> set[Gemm]:
    return {gemm(problem) for name, problem in by_name(model).items() if name.startswith(f"{model}/{stage}/")}


def attention(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """`[sequences, tokens, heads * dim]` in and out; each key-value head repeated for the queries that share it."""
    sequences, tokens, _ = q.shape

    def matrices(x: Tensor) -> Tensor:
        per_head = x.view(sequences, tokens, -1, q.shape[-1] // heads).transpose(1, 2)
        return per_head.repeat_interleave(heads // per_head.shape[1], dim=1).flatten(0, 1).contiguous()

    result = torch.bmm(torch.bmm(matrices(q), matrices(k).mT).softmax(-1), matrices(v))
    return result.view(sequences, heads, tokens, -1).transpose(1, 2).flatten(2)


def llama_3_1_8b() -> Tensor:
    x = torch.empty(2, 2048, 4096, requires_grad=True)
    q, k, v = nn.Linear(4096, 6144, bias=False)(x).split([4096, 1024, 1024], dim=-1)
    x = nn.Linear(4096, 4096, bias=False)(attention(q, k, v, 32))
    gate, up = nn.Linear(4096, 28_672, bias=False)(x).chunk(2, dim=-1)
    x = nn.Linear(14_336, 4096, bias=False)(functional.silu(gate) * up)
    return nn.Linear(4096, 128_256, bias=False)(x)


def bert_base() -> Tensor:
    x = torch.empty(32, 128, 768, requires_grad=True)
    q, k, v = (nn.Linear(768, 768)(x) for _ in range(3))
    x = nn.Linear(768, 768)(attention(q, k, v, 12))
    x = nn.Linear(3072, 768)(functional.gelu(nn.Linear(768, 3072)(x)))
    return nn.Linear(768, 30_522)(x)


def gpt2() -> Tensor:
    def conv1d(x: Tensor, outputs: int) -> Tensor:
        weight = torch.empty(x.shape[-1], outputs, requires_grad=True)
        flat = torch.addmm(torch.empty(outputs, requires_grad=True), x.reshape(-1, x.shape[-1]), weight)
        return flat.view(*x.shape[:-1], outputs)

    q, k, v = conv1d(torch.empty(8, 1024, 768, requires_grad=True), 2304).chunk(3, dim=-1)
    x = conv1d(attention(q, k, v, 12), 768)
    x = conv1d(functional.gelu(conv1d(x, 3072)), 768)
    return nn.Linear(768, 50_257, bias=False)(x)


def mlp(x: Tensor, *widths: int) -> Tensor:
    for width in widths:
        x = nn.Linear(x.shape[-1], width)(x)
    return x


def dlrm() -> Tensor:
    dense = mlp(torch.empty(8192, 13), 512, 256, 128)
    vectors = torch.cat([dense[:, None], torch.empty(8192, 26, 128, requires_grad=True)], dim=1)
    crossed = torch.bmm(vectors, vectors.mT).flatten(1)[:, : 27 * 26 // 2]
    return mlp(torch.cat([dense, crossed], dim=1), 1024, 1024, 512, 256, 1)


def dlrm_dcnv2() -> Tensor:
    dense = mlp(torch.empty(8192, 13), 512, 256, 128)
    vectors = torch.cat([dense[:, None], torch.empty(8192, 26, 128, requires_grad=True)], dim=1).flatten(1)
    crossed = vectors * nn.Linear(512, 3456)(nn.Linear(3456, 512, bias=False)(vectors))
    return mlp(crossed, 1024, 1024, 512, 256, 1)


@pytest.mark.parametrize(
    ("model", "stage", "step"),
    [
        ("llama-3.1-8b", "train-2x2048", llama_3_1_8b),
        ("bert-base", "train-32x128", bert_base),
        ("gpt2", "train-8x1024", gpt2),
        ("dlrm", "train-8192", dlrm),
        ("dlrm-dcnv2", "train-8192", dlrm_dcnv2),
    ],
)
def test_training_derives_exactly_the_gemms_that_torch_executes(
    model: str, stage: str, step: Callable[[], Tensor]
) -> None:
    assert derived(model, stage) == gemms_of(step)


def problems_of(model: str) -> Iterator[NetworkProblem]:
    return (found for found in real_network_problems() if found.model == model)


@pytest.mark.parametrize("model", NETWORKS)
def test_every_network_has_a_source_and_unambiguous_legal_problems_in_16_bits(model: str) -> None:
    assert NETWORKS[model].source
    found = list(problems_of(model))
    assert len({problem.name for problem in found}) == len(found) > 20
    for name, _, problem in found:
        assert name.startswith(f"{model}/")
        assert ProblemLimits().admit(problem)
        assert problem.a.dtype == problem.out.dtype == NETWORKS[model].dtype
        assert problem.a.dtype in ("bfloat16", "float16")


def test_models_can_be_chosen_and_keep_their_order() -> None:
    everything = real_network_problems()
    chosen = real_network_problems(["vit-b-16", "gpt2"])
    assert list(dict.fromkeys(found.model for found in chosen)) == ["gpt2", "vit-b-16"]
    assert chosen == tuple(found for found in everything if found.model in ("gpt2", "vit-b-16"))
    assert real_network_problems([]) == ()


def test_an_unknown_model_is_named_beside_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no network is named gpt-7; there are .*llama-3.1-8b"):
        real_network_problems(["gpt2", "gpt-7"])


def test_problems_beyond_the_limits_are_left_out() -> None:
    tight = ProblemLimits(max_flops=1e9)
    kept = real_network_problems(limits=tight)
    assert kept == tuple(found for found in real_network_problems() if found.problem.flops <= 1e9)
    assert 0 < len(kept) < len(real_network_problems())


def test_the_shapeset_holds_each_problem_once_and_covers_what_users_run() -> None:
    shapeset = networks_shapeset()
    assert len(set(shapeset)) == len(shapeset) > 1000
    assert set(shapeset) == {found.problem for found in real_network_problems()}
    layouts = Counter(problem.layout for problem in shapeset)
    assert layouts.keys() == {"NN", "NT", "TN"}
    assert layouts.most_common(1)[0][0] == "NT"
    assert {problem.op for problem in shapeset} == {"mm", "addmm", "bmm"}
    linear_rows = {problem.M for problem in shapeset if problem.op != "bmm" and problem.layout == "NT"}
    assert {1, 4, 16, 64, 256, 512, 2048, 8192, 197, 1000} <= linear_rows


def test_a_seed_samples_the_same_problems_for_ever() -> None:
    assert [str(problem) for problem in NetworkSampler(42).sample(4)] == [
        "mm 16x13312x16384 bfloat16 NT",
        "mm 16x6144x4096 bfloat16 NT",
        "addmm 8224x5120x1280 float16 NT",
        "addmm 197x1024x4096 float16 NT",
    ]


def test_a_sample_spreads_evenly_over_models() -> None:
    models = ("llama-3.1-8b", "gpt2", "vit-b-16", "dlrm")
    sample = NetworkSampler(5, models).sample(40)
    assert len(set(sample)) == 40
    for model in models:
        assert len(set(sample) & {found.problem for found in problems_of(model)}) >= 10


def test_a_larger_sample_begins_with_a_smaller_and_seeds_differ() -> None:
    assert NetworkSampler(1).sample(60)[:25] == NetworkSampler(1).sample(25)
    assert NetworkSampler(1).sample(25) != NetworkSampler(2).sample(25)


def test_all_problems_can_be_sampled_but_no_more() -> None:
    models = ("gpt2", "gpt2-xl")
    everything = networks_shapeset(models)
    assert set(NetworkSampler(0, models).sample(len(everything))) == set(everything)
    with pytest.raises(CollectionError, match=f"only {len(everything)}: ask for fewer"):
        NetworkSampler(0, models).sample(len(everything) + 1)
