"""The wheels, installed where nothing else of diode is: what `import diode` does there."""

from __future__ import annotations

import diode

STATUS = """
import json, diode
status = diode.get_integration_status()["matmul"]
print(json.dumps([status.state, status.message, status.models]))
"""
COMPILE = """
import json, sys, diode
heavy = {"torch", "triton", "numpy", "msgspec", "pyarrow", "lightgbm", "typer", "rich"}
imported = sorted(heavy & sys.modules.keys())
import torch
a, b = torch.randn(2, 16, 24), torch.randn(2, 24, 8)
found = torch.compile(torch.bmm, options={"max_autotune": True, "max_autotune_gemm_backends": "ATEN"})(a, b)
right = torch.allclose(found, torch.bmm(a, b), atol=1e-5)
status = {name: found.state for name, found in diode.get_integration_status().items()}
from torch._inductor.virtualized import V
print(json.dumps({
    "imported": imported,
    "imported_by_compiling": sorted({"pyarrow", "lightgbm", "typer"} & sys.modules.keys()),
    "right": right,
    "status": status,
    "calls": diode.get_stats().get("total_calls"),
    "handler": type(V.choices).__mro__[-2].__module__ + " " + type(V.choices).__name__,
    "file": diode.__file__,
}))
"""


def test_with_models_it_is_registered_with_them_and_says_nothing(with_models):
    state, message, models = with_models.answer(STATUS)
    assert (state, models) == ("registered", ["made-up 1"])
    assert "made-up 1" in message


def test_with_models_compiles_are_diode_s_and_right(with_models, tmp_path):
    answer = with_models.answer(COMPILE, TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
    assert answer["file"].startswith(str(with_models.folder))
    assert (answer["right"], answer["calls"]) == (True, 1)
    assert (answer["imported"], answer["status"]) == ([], {"matmul": "registered"})
    assert answer["imported_by_compiling"] == []


def test_told_not_to_it_registers_nothing(with_models, tmp_path):
    answer = with_models.answer(COMPILE, TORCHINDUCTOR_CACHE_DIR=str(tmp_path), DIODE_AUTOLOAD="0")
    assert (answer["right"], answer["calls"]) == (True, None)
    assert (answer["status"], answer["handler"]) == ({}, "torch._inductor.choices InductorChoices")


def test_the_library_alone_registers_nothing_and_says_nothing(library_alone, tmp_path):
    answer = library_alone.answer(COMPILE, TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
    assert answer["file"].startswith(str(library_alone.folder))
    assert (answer["right"], answer["calls"]) == (True, None)
    assert (answer["imported"], answer["status"]) == ([], {})
    assert answer["handler"] == "torch._inductor.choices InductorChoices"


def test_the_library_brings_the_command(library_alone):
    done = library_alone.command("diode", "--version")
    assert (done.returncode, done.stdout.split()) == (0, ["diode", diode.__version__])


def test_type_checkers_see_the_types_of_both(with_models):
    program = "import json, diode, diode_models, pathlib as p; print(json.dumps([%s]))"
    found = ", ".join(f"(p.Path({name}.__file__).parent / 'py.typed').exists()" for name in ("diode", "diode_models"))
    assert with_models.answer(program % found) == [True, True]
