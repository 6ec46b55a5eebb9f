"""How diode is used, as a program: `python -m diode.integration.usage_example [--model PATH] [--device cpu]`.

Set up, use with matmuls, check the status, create and use choices by hand. Every step works without a model, too: every
GEMM then falls back to what Inductor would do, and the statistics say so. Without a GPU it works and shows less: of the
library's kernels there is one, and nothing to choose.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._inductor.virtualized import V

import diode
from diode.integration.inductor_integration import create_diode_choices, install_diode_choices

Option = str | int | bool | Callable[..., Any]

SIZES = (512, 384, 256)
"""Rows, columns, and what is summed over."""


def set_up(model_path: Path | None) -> None:
    """From here on, a model chooses in every `torch.compile` with max-autotune, in every thread of this process.

    Where torch-diode is installed, `import diode` alone does this with the models that come with it.
    """
    install_diode_choices(model_path=model_path, device="cpu", top_k_configs=3, performance_threshold=1.1)
    print(f"set up: {diode.get_integration_status()['matmul']}")


def use_with_matmuls(device: str) -> None:
    """Compiles each op as anybody would, and compares its results with those of eager torch."""
    rows, columns, inner = SIZES
    a, b, bias = (_numbers(device, *sizes) for sizes in ((rows, inner), (inner, columns), (columns,)))
    batches = _numbers(device, 4, rows, inner), _numbers(device, 4, inner, columns)
    _compile_and_compare("mm", torch.mm, (a, b))
    _compile_and_compare("addmm", torch.addmm, (bias, a, b))
    _compile_and_compare("bmm", torch.bmm, batches)
    decision = diode.last_decision()
    print(f"latest decision: {decision if decision is not None else 'none, there was nothing to choose among'}")


def check_status() -> None:
    """What is registered, with which models, and what became of each GEMM."""
    for status in diode.get_integration_status().values():
        print(f"status: {status}")
    _print_statistics(diode.get_stats())


def choose_by_hand(model_path: Path | None, device: str) -> None:
    """Choices for one thread and as long as one likes. Torch's caches do not know of them, so they are left out."""
    choices = create_diode_choices(model_path=model_path, device="cpu", top_k_configs=5)
    rows, columns, inner = SIZES
    arguments = _numbers(device, 8, rows, inner), _numbers(device, 8, inner, columns)
    old = V.choices
    V.set_choices_handler(choices)
    try:
        _compile_and_compare("bmm by hand", torch.bmm, arguments, fx_graph_cache=False)
    finally:
        V.set_choices_handler(old)
    _print_statistics(choices.get_stats())


def _numbers(device: str, *sizes: int) -> Tensor:
    return torch.randn(*sizes, device=device, dtype=torch.float32 if device == "cpu" else torch.bfloat16)


def _compile_and_compare(
    name: str, function: Callable[..., Tensor], arguments: tuple[Tensor, ...], **options: Option
) -> None:
    found = torch.compile(function, options=_max_autotune(arguments[0].device.type) | options)(*arguments)
    torch.testing.assert_close(
        found, function(*arguments), atol=1e-1 if found.dtype == torch.bfloat16 else 1e-3, rtol=0.02
    )
    print(f"{name}: compiled, and equal to eager")


def _max_autotune(device: str) -> dict[str, Option]:
    """What `mode="max-autotune"` means; without a GPU only with the library's kernels, for which no C++ is compiled."""
    if device == "cpu":
        return {"max_autotune": True, "max_autotune_gemm_backends": "ATEN"}
    return {"max_autotune": True}


def _print_statistics(statistics: dict[str, int | float]) -> None:
    counted = {name: value for name, value in statistics.items() if value and not name.startswith("decision_seconds")}
    print("statistics: " + (", ".join(f"{name} {value}" for name, value in counted.items()) or "nothing was compiled"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a trained model; else the best of those at hand")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    set_up(arguments.model)
    use_with_matmuls(arguments.device)
    check_status()
    diode.disable()
    choose_by_hand(arguments.model, arguments.device)


if __name__ == "__main__":
    main()
