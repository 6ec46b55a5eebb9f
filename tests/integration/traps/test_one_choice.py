"""k = 1: nothing is benchmarked, nothing varies, and what Inductor fuses into the only kernel still runs."""

from __future__ import annotations

import msgspec
import pytest
import torch
from tests.integration.choices.lab import H200, Tensor, batch, lower, matrix
from tests.integration.choices.models import write_model
from tests.integration.traps.whole import compiled, computed, generated
from torch._inductor.choices import InductorChoices
from torch._inductor.kernel.mm import mm_template

from diode.integration.choices import DiodeInductorChoices
from diode.integration.decision import last_decision

F32 = torch.float32
RAGGED = (matrix(200, 1027), matrix(1027, 328))
LARGEST = {"log_block_m": 7.0, "log_block_n": 8.0, "log_block_k": 6.0, "stages": 5.0, "log_warps": 3.0}


def gelu_of_mm(a, w):
    return torch.relu(torch.mm(a, w) * 2)


def mm_of_cast(a, w):
    return torch.mm(a.to(torch.bfloat16), w)


def linear(bias, x, weight):
    return torch.addmm(bias, x, weight)


def test_the_next_op_becomes_part_of_the_only_kernel_without_a_benchmark(make_handler):
    for persistent in (0.5, -0.5):
        handler = make_handler(top_k_configs=1, persistent=persistent, library=9.0)
        whole = generated(gelu_of_mm, matrix(512, 1024), matrix(1024, 2048), handler=handler)
        (template,) = whole.kernels.values()
        assert "maximum" in template
        assert not whole.library_calls


def test_a_cast_before_the_gemm_is_torch_s_to_fuse_and_not_benchmarked(make_handler):
    handler = make_handler(top_k_configs=1, library=9.0)
    arguments = (matrix(512, 1024, dtype=torch.int8), matrix(1024, 2048))
    fused = generated(mm_of_cast, *arguments, handler=handler, decompose=True, prologue_fusion=True)
    assert len(fused.kernels) == 1
    apart = generated(mm_of_cast, *arguments, handler=handler, decompose=True, prologue_fusion=False)
    assert len(apart.kernels) == 2
    for whole in (fused, apart):
        (template,) = whole.templates
        assert 0 < compiled(template, H200).shared_bytes <= H200.shared_memory_per_block


@pytest.mark.parametrize("limit", [232448, 101376])
def test_what_was_fused_into_the_only_kernel_fits_a_gpu_of_less_shared_memory(make_handler, limit):
    hardware = msgspec.structs.replace(H200, shared_memory_per_block=limit)
    handler = make_handler(likes=LARGEST, top_k_configs=1, library=9.0, persistent=9.0, hardware=(hardware,))
    arguments = (matrix(512, 1024), matrix(1024, 2048))
    whole = generated(gelu_of_mm, *arguments, handler=handler, hardware=hardware)
    (template,) = whole.templates
    assert limit / 4 < compiled(template, hardware).shared_bytes <= limit


def test_twenty_cold_compiles_of_a_ragged_problem_choose_the_same(tmp_path):
    path = write_model(tmp_path / "model.safetensors", likes={"log_block_m": 6.0}, per_unit=0.01, library=3.0)
    chosen = set()
    for _ in range(20):
        handler = DiodeInductorChoices(path, top_k_configs=1, enable_fallback=False)
        chosen.add(lower(torch.mm, *RAGGED, handler=handler).choices)
        assert not last_decision().remembered
    ((only,),) = chosen
    assert not only.even_k


@pytest.mark.parametrize(("function", "bias"), [(torch.mm, ()), (torch.addmm, (Tensor((2048,)),))], ids=("mm", "addmm"))
def test_a_kernel_that_its_template_refuses_is_replaced_by_inductor_s_choices(
    make_handler, monkeypatch, warnings, function, bias
):
    """As older torch refuses tensors that 32 bits cannot index, once it is asked for code."""
    generate = mm_template.generate

    def refusing(*args, **kwargs):
        if kwargs["BLOCK_K"] == 64:
            raise NotImplementedError("64-bit indexing is not yet implemented")
        return generate(*args, **kwargs)

    monkeypatch.setattr(mm_template, "generate", refusing)
    arguments = (*bias, matrix(512, 1024), matrix(1024, 2048))
    handler = make_handler(top_k_configs=1, library=9.0, persistent=9.0, enable_fallback=True)
    own = lower(function, *arguments, handler=InductorChoices())
    assert lower(function, *arguments, handler=handler) == own
    assert len(own.choices) > 3
    stats = handler.get_stats()
    assert (stats["decisions"], stats["model_selections"], stats["fallback_empty_result"]) == (1, 0, 1)
    assert stats["configs_filtered"] == 0
    assert "what was chosen has no kernel" in warnings()[0]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Kernels of every op, ragged and not, as Triton's interpreter computes them; beside what is right."""
    folder = tmp_path_factory.mktemp("interpreted")
    path = write_model(folder / "model.safetensors", likes={"log_block_m": 5.0, "log_block_k": 5.0}, library=9.0)
    tma = write_model(folder / "tma.safetensors", likes={"log_block_k": 5.0}, library=9.0, persistent=-5.0)

    def transposed_producer(a, w):
        return torch.mm(a.permute(1, 0) + 1, w) * 2

    ragged = (matrix(50, 71, dtype=F32), matrix(71, 37, dtype=F32))
    whole = (matrix(64, 96, dtype=F32), matrix(96, 80, dtype=F32))
    cases = {
        "ragged": (torch.mm, ragged, path),
        "ragged with an epilogue": (gelu_of_mm, ragged, path),
        "ragged and transposed": (torch.mm, (matrix(50, 71, "T", F32), matrix(71, 37, "T", F32)), path),
        "persistent": (torch.mm, whole, tma),
        "persistent, K no multiple of the block": (gelu_of_mm, (*whole[:1], matrix(96, 80, "T", F32)), tma),
        "flexible input": (transposed_producer, (matrix(71, 50, dtype=F32), ragged[1]), path),
        "flexible input of a persistent kernel": (transposed_producer, (matrix(80, 64, dtype=F32),) * 2, tma),
        "linear": (linear, (Tensor((37,), None, F32), *ragged), path),
        "batch": (torch.bmm, (batch(3, 50, 71, dtype=F32), batch(3, 71, 37, "T", dtype=F32)), path),
    }
    work, right = [], []
    for function, tensors, model in cases.values():
        handler = DiodeInductorChoices(model, top_k_configs=1, enable_fallback=False)
        real = [tensor.real() for tensor in tensors]
        work.append((generated(function, *tensors, handler=handler), real))
        assert len(work[-1][0].templates) == 1
        right.append(function(*real))
    return dict(zip(cases, zip(computed(work, folder), right, strict=True), strict=True))


@pytest.mark.parametrize(
    "case",
    [
        "ragged",
        "ragged with an epilogue",
        "ragged and transposed",
        "persistent",
        "persistent, K no multiple of the block",
        "flexible input",
        "flexible input of a persistent kernel",
        "linear",
        "batch",
    ],
)
def test_the_only_kernel_computes_what_eager_does(results, case):
    (found, *_), right = results[case]
    torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-3)
