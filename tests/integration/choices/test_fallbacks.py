"""Every reason to fall back, by a real fault: the compile gets Inductor's own choices, and one line says why."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import pytest
import torch
from tests.integration.by_torch import UNPRUNED
from tests.integration.choices.lab import A100, H100, H200, Lowered, Tensor, lower, matrix
from tests.integration.choices.models import write_model
from torch._inductor.choices import InductorChoices
from torch._inductor.exc import LoweringException
from torch._inductor.select_algorithm import get_algorithm_selector_cache
from torch._inductor.template_heuristics.triton import CUDAMMTemplateConfigHeuristic

from diode.features import COLUMNS
from diode.integration.choices import DiodeInductorChoices
from diode.integration.decision import last_decision
from diode.integration.statistics import FALLBACK_REASONS, MEANINGS
from diode.model.card import card_path
from diode.types import Hardware

MM = (torch.mm, matrix(512, 1024), matrix(1024, 2048))
ADDMM = (torch.addmm, Tensor((2048,)), *MM[1:])
TWO_LIBRARY_KERNELS = (torch.addmm, Tensor((512, 2048), (0, 1)), *MM[1:])
TRITON_ONLY = {"max_autotune_gemm_backends": "TRITON"}


@dataclass(frozen=True)
class Fault:
    """What is wrong, and what a user is told of it."""

    reason: str
    told: str
    make: Callable[[Path], Path | None]
    """Writes the model, into a folder."""
    call: tuple[Any, ...] = MM
    hardware: Hardware = H200
    settings: dict[str, Any] = field(default_factory=dict)
    of_the_handler: dict[str, Any] = field(default_factory=dict)
    in_another_torch: bool = False
    """Whether Inductor's heuristic of `triton::mm` is as in a torch that is not known yet."""

    def handler(self, folder: Path, **settings: Any) -> DiodeInductorChoices:
        return DiodeInductorChoices(self.make(folder), **(self.of_the_handler | settings))

    def lower(self, handler: InductorChoices) -> Lowered:
        function, *arguments = self.call
        if not self.in_another_torch:
            return lower(function, *arguments, handler=handler, hardware=self.hardware, **self.settings)
        with mock.patch.object(CUDAMMTemplateConfigHeuristic, "get_exhaustive_mm_configs", moved):
            return lower(function, *arguments, handler=handler, hardware=self.hardware, **self.settings)


def model(**described):
    return lambda folder: write_model(folder / "model.safetensors", **described)


def missing(folder):
    return folder / "none.safetensors"


def truncated(folder):
    path = model()(folder)
    path.write_bytes(path.read_bytes()[:-100])
    return path


def with_weights(suffix, change):
    """Weights that the card does describe, by their hash."""

    def make(folder):
        path = write_model(folder / f"model{suffix}")
        path.write_bytes(change(path.read_bytes()))
        card = json.loads(card_path(path).read_text())
        card_path(path).write_text(json.dumps(card | {"weights_sha256": sha256(path.read_bytes()).hexdigest()}))
        return path

    return make


def with_card(change):
    def make(folder):
        path = model()(folder)
        card_path(path).write_text(change(card_path(path).read_text()))
        return path

    return make


def with_tensor(name, value):
    def change(content):
        from safetensors.numpy import load, save

        tensors = load(content)
        return save(tensors | {name: np.full_like(tensors[name], value)})

    return with_weights(".safetensors", change)


class Opened:
    """What a pickle could do when it is loaded."""

    def __reduce__(self):
        return (pytest.fail, ("a model ran code",))


def saved(anything):
    content = io.BytesIO()
    torch.save(anything, content)
    return content.getvalue()


def moved(heuristic):
    raise NotImplementedError("moved elsewhere")


TINY = msgspec.structs.replace(H200, shared_memory_per_block=256)
IMPOSSIBLE = msgspec.structs.replace(H200, memory_bandwidth_gbs=1e-300)
FP8 = torch.float8_e4m3fn


def scaled(a, b, one, other):
    return torch._scaled_mm(a, b, one, other, out_dtype=torch.bfloat16)


FAULTS = {
    "no file": Fault("fallback_no_model", "no such file or folder; name a model", missing),
    "nothing at hand": Fault("fallback_no_model", "no model is at hand: install torch-diode", lambda folder: None),
    "truncated weights": Fault("fallback_no_model", "is not the file that model.json describes", truncated),
    "no tensors": Fault(
        "fallback_no_model", "not a file of tensors", with_weights(".safetensors", lambda content: b"\0" * 64)
    ),
    "code in a pickle": Fault(
        "fallback_no_model",
        "holds more than plain tensors and could run code",
        with_weights(".pt", lambda content: saved(Opened())),
    ),
    "no numbers": Fault("fallback_no_model", "holds what is no number", with_tensor("head.bias", np.nan)),
    "broken card": Fault("fallback_no_model", "model.json: .*", with_card(lambda text: text[:-50])),
    "newer card": Fault(
        "fallback_no_model", "has schema 2", with_card(lambda text: text.replace('"schema": 1', '"schema": 2'))
    ),
    "other features": Fault(
        "fallback_no_model", "was trained on other features", model(columns=(*COLUMNS[1:], COLUMNS[0]))
    ),
    "another GPU": Fault(
        "fallback_hardware_mismatch", "made-up 1 was trained on NVIDIA A100.*, and this is", model(hardware=(A100,))
    ),
    "a GPU of the same generation": Fault(
        "fallback_hardware_mismatch", "was trained on NVIDIA H200, and this is NVIDIA H100", model(), hardware=H100
    ),
    "other software, refused": Fault(
        "fallback_hardware_mismatch",
        r"was trained with torch 2\.1\.0",
        model(torch=("2.1.0",)),
        of_the_handler={"on_mismatch": "off"},
    ),
    "op": Fault("fallback_unsupported_op", "knows bmm, not mm", model(ops=("bmm",))),
    "op in several calls": Fault("fallback_unsupported_op", "knows mm, not addmm", model(ops=("mm",)), ADDMM),
    "precision": Fault("fallback_unsupported_op", "knows float16, not bfloat16", model(precisions=("float16",))),
    "templates": Fault("fallback_unsupported_op", "knows none of triton::mm, ", model(templates=("triton::bmm",))),
    "integers": Fault(
        "fallback_unsupported_op",
        "not int_mm",
        model(),
        (torch._int_mm, matrix(512, 1024, dtype=torch.int8), matrix(1024, 2048, dtype=torch.int8)),
    ),
    "scales": Fault(
        "fallback_unsupported_op",
        "scaled_mm: diode has no model of this op",
        model(),
        (
            scaled,
            matrix(512, 1024, dtype=FP8),
            matrix(1024, 2048, "T", dtype=FP8),
            *[Tensor((), None, torch.float32)] * 2,
        ),
    ),
    "kernels for other hints": Fault(
        "fallback_unsupported_op", "multi_kernel_hints", model(), settings={"multi_kernel_hints": [64]}
    ),
    "an impossible device": Fault(
        "fallback_feature_extraction", "its features are no finite numbers", model(hardware=(IMPOSSIBLE,))
    ),
    "overflow": Fault("fallback_prediction", "predicts no numbers", with_tensor("head.weight", 3e38)),
    "nothing fits": Fault(
        "fallback_empty_result",
        "none of .* candidates fits NVIDIA H200",
        model(hardware=(TINY,)),
        hardware=TINY,
        settings=TRITON_ONLY | UNPRUNED,
    ),
    "everything fails": Fault(
        "fallback_empty_result", "none of .* candidates", model(doomed={"log_block_m": 3.0}), settings=TRITON_ONLY
    ),
    "a heuristic of another torch": Fault(
        "fallback_error",
        "choosing for mm failed: NotImplementedError: moved elsewhere",
        model(),
        in_another_torch=True,
    ),
}


@pytest.fixture(params=FAULTS)
def fault(request, monkeypatch) -> Fault:
    monkeypatch.delenv("DIODE_MODEL_PATH", raising=False)
    return FAULTS[request.param]


def test_the_compile_gets_inductor_s_choices_and_one_line_says_why(fault, tmp_path, warnings):
    own = fault.lower(InductorChoices())
    handler = fault.handler(tmp_path)
    for times in (1, 2):
        assert fault.lower(handler) == own
        stats = handler.get_stats()
        assert {name: count for name, count in stats.items() if name.startswith("fallback_") and count} == {
            fault.reason: times
        }
        assert (stats["decisions"], stats["model_selections"]) == (times, 0)
        assert adds_up(stats)
    (warning,) = warnings()
    assert warning.startswith(f"torch.compile takes Inductor's own choices ({fault.reason}): ")
    assert "Traceback" not in warning
    decision = last_decision()
    assert decision.fallback == fault.reason
    assert decision.why in warning
    assert re.search(fault.told, warning)


def test_where_falling_back_is_forbidden_it_raises(fault, tmp_path, warnings):
    handler = fault.handler(tmp_path, enable_fallback=False)
    with pytest.raises(LoweringException, match=f"SelectionError: .*({fault.told})"):
        fault.lower(handler)
    assert not warnings()
    assert adds_up(handler.get_stats())


def adds_up(stats):
    return stats["decisions"] == stats["model_selections"] + sum(stats[reason] for reason in FALLBACK_REASONS)


@contextmanager
def heuristic_that_converts_nothing():
    """In the middle of a compile: it goes on giving its own configs, and none that it is handed."""
    its_own = CUDAMMTemplateConfigHeuristic.get_template_configs

    def refusing(heuristic, *arguments, **keywords):
        if "_get_config_generator" in vars(heuristic):
            raise NotImplementedError("moved elsewhere")
        return its_own(heuristic, *arguments, **keywords)

    with mock.patch.object(CUDAMMTemplateConfigHeuristic, "get_template_configs", refusing):
        yield


@pytest.mark.parametrize("call", [MM, ADDMM, TWO_LIBRARY_KERNELS], ids=("mm", "addmm", "two library kernels"))
def test_what_fails_after_the_decision_was_made_is_one_fallback(call, tmp_path, warnings):
    function, *arguments = call
    own = lower(function, *arguments, handler=InductorChoices())
    handler = DiodeInductorChoices(model(library=9.0, persistent=9.0)(tmp_path), top_k_configs=1)
    assert len(lower(function, *arguments, handler=handler).choices) == 1
    before = handler.get_stats()
    with heuristic_that_converts_nothing():
        assert lower(function, *arguments, handler=handler) == own
    stats = handler.get_stats()
    assert adds_up(stats)
    changed = {name for name in MEANINGS if stats[name] != before[name]}
    assert changed == {"total_calls", "decisions", "fallback_error"}
    assert (stats["decisions"], stats["fallback_error"]) == (2, 1)
    assert last_decision().fallback == "fallback_error"
    (warning,) = warnings()
    assert "moved elsewhere" in warning


@pytest.fixture
def annotations_are_cut(monkeypatch):
    """Somebody's preprocessing takes from the choices what diode tells them apart by."""

    def cut(choices):
        for choice in choices:
            choice.annotations.pop("ktc", None)
        return choices

    selector = get_algorithm_selector_cache()
    monkeypatch.setattr(selector, "preprocessing_fns", [*selector.preprocessing_fns, cut])


def test_what_cannot_be_taken_back_stays_and_is_one_fallback(annotations_are_cut, tmp_path, warnings):
    function, *arguments = TWO_LIBRARY_KERNELS
    own = lower(function, *arguments, handler=InductorChoices(), max_autotune_gemm_backends="ATEN")
    assert len(own.choices) == 2
    handler = DiodeInductorChoices(model()(tmp_path), top_k_configs=1)
    for times in (1, 2):
        assert lower(function, *arguments, handler=handler, max_autotune_gemm_backends="ATEN") == own
        stats = handler.get_stats()
        assert (stats["decisions"], stats["model_selections"], stats["fallback_error"]) == (times, 0, times)
        assert stats["configs_filtered"] == 0
        assert adds_up(stats)
    (warning,) = warnings()
    assert "fallback_error" in warning
    assert "KeyError: 'ktc'" in warning
    assert last_decision().fallback == "fallback_error"


def test_where_falling_back_is_forbidden_what_cannot_be_taken_back_raises(annotations_are_cut, tmp_path):
    function, *arguments = TWO_LIBRARY_KERNELS
    handler = DiodeInductorChoices(model()(tmp_path), top_k_configs=1, enable_fallback=False)
    with pytest.raises(LoweringException, match="SelectionError: choosing for addmm failed: KeyError: 'ktc'"):
        lower(function, *arguments, handler=handler, max_autotune_gemm_backends="ATEN")
    assert adds_up(handler.get_stats())


def test_every_reason_has_a_fault_and_a_meaning():
    assert {fault.reason for fault in FAULTS.values()} == set(FALLBACK_REASONS)
    assert set(FALLBACK_REASONS) < MEANINGS.keys()
