"""In what the torches that diode supports differ, as tests expect it; docs/torch-versions.md tells the rest."""

from __future__ import annotations

import re

import torch
from torch._inductor.fx_passes import pad_mm

from diode.types import AtenChoice

_found = re.match(r"(\d+)\.(\d+)", torch.__version__)
assert _found is not None
TORCH = (int(_found[1]), int(_found[2]))

REGISTRATION = "register_inductor_choices" if TORCH >= (2, 15) else "inductor_choices_class"

THREADS_COMPILE_AT_ONCE = TORCH >= (2, 13)
"""Whether threads may compile at the same time; of torch 2.10 and 2.11 one raises, or does not compile, meanwhile."""

ADDMM_CALLS = 1 if TORCH < (2, 12) else 2 if TORCH < (2, 13) else 3
"""How often the hook is called for an addmm on a GPU."""

ROW_OF_BIAS_HAS_TWO_KERNELS = TORCH < (2, 12)
"""Whether torch expands a bias as long as a row before it looks for library kernels, and so finds `bias_addmm` too."""

BMM_INTO_ANOTHER_TYPE_HAS_TEMPLATES = TORCH >= (2, 12)

LAYOUTS_ARE_CHECKED_FIRST = TORCH >= (2, 12)
"""Whether choices that read an input as it no longer lies are left out before anything is benchmarked."""

MODES_WITHOUT_TIMING = ("deterministic", "batch_invariant") if TORCH >= (2, 12) else ("deterministic",)

AUTOHEURISTIC_OF_MM = {} if TORCH >= (2, 12) else {"autoheuristic_use": "mm"}
"""Switches it on where the environment is read at import only."""

PRUNES_BY_SHARED_MEMORY = TORCH < (2, 11)
"""Whether choices that exceed the shared memory, if all their stages are counted, are left out by default."""

UNPRUNED = {"max_autotune_prune_choices_based_on_shared_mem": False}
"""The default of the others."""

FLOAT32_HAS_PERSISTENT_TMA = TORCH >= (2, 11)

SHORT_BMM_IS_ANOTHER_KERNEL = TORCH >= (2, 12)
"""Whether the template of bmm distinguishes a matrix of fewer rows than a block has."""

TF32_BY_OLDER_NAME = TORCH < (2, 11)
"""Whether Inductor's heuristics raise where `fp32_precision` was set, since they read `allow_tf32`."""

TILES_OF_THE_WHOLE_SPACE_AT_DEEP_K = TORCH >= (2, 15)
"""Whether EXHAUSTIVE offers tiles beside splits of K; before, no search space did."""


def library_kernels(op: str) -> set[AtenChoice]:
    """What ATen has for an op, where the bias of an addmm is as long as a row."""
    if op == "addmm" and ROW_OF_BIAS_HAS_TWO_KERNELS:
        return {AtenChoice("bias_addmm"), AtenChoice("addmm")}
    return {AtenChoice(op)}


def torch_may_pad(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether a pass of torch's may pad the product's operands, and benchmark whether to."""
    if TORCH < (2, 11):
        return pad_mm.should_pad_common(a, b)
    return pad_mm.can_pad(a, b, torch.ops.aten.mm)
