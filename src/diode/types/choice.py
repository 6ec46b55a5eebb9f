"""What Inductor could run for a problem: a template with one config, or an extern kernel. Each kind has its record."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from diode.types.problem import LARGEST_FLOAT, Name

Positive = Annotated[int, msgspec.Meta(ge=1, le=2**20)]
Scalar = None | bool | int | Annotated[float, msgspec.Meta(ge=-LARGEST_FLOAT, le=LARGEST_FLOAT)] | str
Fields = tuple[tuple[str, Scalar], ...]
"""Name and value pairs, sorted by name: what a backend said beyond the fields that this version knows."""
SearchSpace = Literal["EXHAUSTIVE", "DEFAULT"]
"""Which of its choices Inductor tries: torch's `max_autotune_gemm_search_space`."""


class _Described(msgspec.Struct, frozen=True):
    """A choice whose last field is what a backend said. Python takes True, 1 and 1.0 for equal; here they differ."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self) or not msgspec.Struct.__eq__(self, other):
            return False
        return _types_said(self) == _types_said(other)

    __hash__ = msgspec.Struct.__hash__


class TritonGEMMConfig(_Described, frozen=True, forbid_unknown_fields=True, tag="triton_gemm"):
    """One config of a tiled Triton template (`triton::mm`, `triton::bmm` and their like), as it ran."""

    template: Name
    block_m: Positive
    block_n: Positive
    block_k: Positive
    num_stages: Annotated[int, msgspec.Meta(ge=0, le=64)]
    num_warps: Positive
    group_m: Positive = 8
    even_k: bool = False
    allow_tf32: bool = False
    use_fast_accum: bool = False
    acc_type: Name = "tl.float32"
    extra: Fields = ()

    def __str__(self) -> str:
        return f"{_short(self.template)} {_tiles(self)}"


class PersistentTMAConfig(_Described, frozen=True, forbid_unknown_fields=True, tag="persistent_tma"):
    """One config of a persistent template that loads its tiles through tensor descriptors."""

    template: Name
    block_m: Positive
    block_n: Positive
    block_k: Positive
    num_stages: Annotated[int, msgspec.Meta(ge=0, le=64)]
    num_warps: Positive
    a_row_major: bool
    b_row_major: bool
    num_sms: Positive
    group_m: Positive = 8
    tma_size: Positive = 128
    tma_experimental_api: bool = False
    even_k: bool = False
    allow_tf32: bool = False
    use_fast_accum: bool = False
    acc_type: Name = "tl.float32"
    extra: Fields = ()

    def __str__(self) -> str:
        return f"{_short(self.template)} {_tiles(self)}"


class DecomposeKConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="decompose_k"):
    """K cut into `k_split` parts, multiplied as a batch and summed."""

    k_split: Positive

    def __str__(self) -> str:
        return f"decompose_k split={self.k_split}"


class AtenChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="aten"):
    """A library kernel called through ATen: cuBLAS on NVIDIA GPUs, oneMKL on CPUs."""

    kernel: Name

    def __str__(self) -> str:
        return f"aten {self.kernel}"


class CppTemplateConfig(_Described, frozen=True, forbid_unknown_fields=True, tag="cpp_template"):
    """A choice of Inductor's C++ CPU templates, with the facts that the template gave of itself."""

    template: Name
    fields: Fields = ()

    def __str__(self) -> str:
        return self.template


class OtherChoice(_Described, frozen=True, forbid_unknown_fields=True, tag="other"):
    """A kind of choice that this version does not know, kept whole as the backend described it."""

    backend: Name
    name: Name
    fields: Fields = ()

    def __str__(self) -> str:
        return f"{self.backend} {self.name}"


TiledConfig = TritonGEMMConfig | PersistentTMAConfig
Choice = TritonGEMMConfig | PersistentTMAConfig | DecomposeKConfig | AtenChoice | CppTemplateConfig | OtherChoice


def _types_said(choice: _Described) -> list[type[Scalar]]:
    said: Fields = msgspec.structs.astuple(choice)[-1]
    return [type(value) for _, value in said]


def _short(template: str) -> str:
    return template.removeprefix("triton::")


def _tiles(config: TiledConfig) -> str:
    tile = f"{config.block_m}x{config.block_n}x{config.block_k}"
    return f"{tile} stages={config.num_stages} warps={config.num_warps} group={config.group_m}"
