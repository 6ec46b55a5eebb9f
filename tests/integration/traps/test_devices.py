"""Several GPUs of different kinds in one process."""

from __future__ import annotations

import torch
from tests.integration.choices.lab import A100, H200, Tensor, lower
from torch._inductor.choices import InductorChoices

from diode.integration.decision import last_decision
from diode.integration.described import described_gpu
from diode.integration.surroundings import hardware_of

BOTH = {"hardware": H200, "others": [A100]}
LARGE = {"log_block_m": 8.0, "log_block_n": 7.0, "log_block_k": 7.0, "stages": 4.0, "log_warps": 3.0}


def on(device):
    return Tensor((512, 1024), device=device), Tensor((1024, 2048), device=device)


def test_each_device_is_known_for_what_it_is():
    with described_gpu(H200, A100):
        assert [hardware_of(name).name for name in ("cuda", "cuda:0", "cuda:1")] == [H200.name, H200.name, A100.name]
        assert hardware_of("cuda:1").shared_memory_per_block == A100.shared_memory_per_block


def test_decisions_are_of_the_device_that_the_gemm_runs_on(make_handler):
    handler = make_handler(likes=LARGE, top_k_configs=1, library=9.0, persistent=9.0, hardware=(H200, A100))
    chosen = {}
    for device, hardware in enumerate((H200, A100)):
        for remembered in (False, True):
            (chosen[device],) = lower(torch.mm, *on(device), handler=handler, **BOTH).choices
            assert last_decision().device == hardware.name
            assert last_decision().remembered is remembered
    shared = {
        device: 2 * (only.block_m + only.block_n) * only.block_k * only.num_stages for device, only in chosen.items()
    }
    assert shared[1] <= A100.shared_memory_per_block < shared[0] <= H200.shared_memory_per_block


def test_a_model_serves_the_devices_that_it_was_trained_on_and_no_other(make_handler, warnings):
    handler = make_handler(top_k_configs=1, hardware=(H200,), enable_fallback=True)
    assert len(lower(torch.mm, *on(0), handler=handler, **BOTH).choices) == 1
    own = lower(torch.mm, *on(1), handler=InductorChoices(), **BOTH)
    assert lower(torch.mm, *on(1), handler=handler, **BOTH) == own
    stats = handler.get_stats()
    assert (stats["model_selections"], stats["fallback_hardware_mismatch"]) == (1, 1)
    assert "this is NVIDIA A100" in warnings()[0]


def test_two_devices_in_one_graph_are_decided_apart(make_handler):
    def both(a, b, c, d):
        return torch.mm(a, b), torch.mm(c, d)

    handler = make_handler(top_k_configs=1, hardware=(H200, A100))
    lower(both, *on(0), *on(1), handler=handler, **BOTH)
    assert handler.get_stats()["decisions"] == 2
    assert last_decision().device == A100.name
    assert not last_decision().remembered
