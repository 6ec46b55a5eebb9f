"""Reads the nested datasets that the public torch-diode 0.1 writes.

`{"hardware": {GPU: {"operation": {OP: {"solution": {"<shape as a JSON string>": {"timed_configs": [{"config": {...},
"time": milliseconds}]}}}}}}, "version": 1}`. That form does not record how the operands lie in memory, so they are
taken as dense and row-major; nor how a time was taken beyond Inductor's feedback, which gives the minimum. Whether TF32
was allowed stands in its configs, not in its shapes. An infinite time is Inductor's sign for a choice that failed.
"""

from __future__ import annotations

import math
from typing import Annotated, Final, Literal

import msgspec

from diode.storage.duplicate_keys import refuse_duplicate_keys
from diode.storage.flaws import Encoding, Flaw, decoded
from diode.storage.shape_form import ShapeForm
from diode.storage.shapesets import located_problem
from diode.types.choice import Positive, TritonGEMMConfig
from diode.types.dataset import Dataset, DatasetBuilder
from diode.types.hardware import Hardware
from diode.types.measurement import Environment, Failure, Measurement, Timing, TimingMethod
from diode.types.problem import BATCHED_OPS, MMShape, Name

PUBLIC_METHOD: Final = TimingMethod(timer="public-torch-diode", statistic="min")


class PublicConfig(msgspec.Struct, forbid_unknown_fields=True):
    name: Name
    block_m: Positive
    block_n: Positive
    block_k: Positive
    num_stages: Annotated[int, msgspec.Meta(ge=0, le=64)]
    num_warps: Positive
    group_m: Positive = 8
    grid: int | None = None
    EVEN_K: bool = False
    ALLOW_TF32: bool = False
    USE_FAST_ACCUM: bool = False
    ACC_TYPE: Name = "tl.float32"
    written_version: int | None = msgspec.field(name="_version", default=None)


class _TimedConfig(msgspec.Struct, forbid_unknown_fields=True):
    config: PublicConfig
    time: float


class _Solution(msgspec.Struct, forbid_unknown_fields=True):
    timed_configs: list[_TimedConfig]


class _Operation(msgspec.Struct, forbid_unknown_fields=True):
    solution: dict[str, msgspec.Raw]


class _Device(msgspec.Struct, forbid_unknown_fields=True):
    operation: dict[Name, _Operation]


class _PublicDataset(msgspec.Struct, forbid_unknown_fields=True):
    hardware: dict[Name, _Device]
    version: Literal[1]


def read_public_form(data: bytes, encoding: Encoding) -> Dataset:
    public: _PublicDataset = decoded(data, _PublicDataset, encoding)
    refuse_duplicate_keys(data, encoding)
    builder = DatasetBuilder()
    for device_name, device in public.hardware.items():
        # Triton's choices, all that this form holds, are of what torch calls CUDA, AMD's devices among them.
        environment = Environment(Hardware(name=device_name, device_type="cuda"))
        for op, operation in device.operation.items():
            for shape, content in operation.solution.items():
                place = f"hardware.{device_name}.operation.{op}.solution.{shape}"
                problem = _problem(op, shape, place)
                solution: _Solution = decoded(content, _Solution, encoding, place)
                for number, timed in enumerate(solution.timed_configs):
                    where = f"{place}.timed_configs[{number}]"
                    builder.add(_measurement(problem, timed, environment, where))
    return builder.build()


def _problem(op: str, shape: str, place: str) -> MMShape:
    text = shape.encode()
    form: ShapeForm = decoded(text, ShapeForm, place=place)
    refuse_duplicate_keys(text, "json", place)
    return located_problem(op, form, place)


def _measurement(problem: MMShape, timed: _TimedConfig, environment: Environment, place: str) -> Measurement:
    timing, failure = None, None
    microseconds = timed.time * 1000
    if timed.time == math.inf:
        failure = Failure("unknown", "infinite time in a dataset of the public torch-diode")
    elif 0 < microseconds < math.inf:
        timing = Timing(time_us=microseconds, min_us=microseconds)
    else:
        raise Flaw(f"{place}.time", f"is {timed.time}, not a positive number of milliseconds")
    config = timed.config
    return Measurement(
        problem=msgspec.structs.replace(problem, allow_tf32=config.ALLOW_TF32 and problem.a.dtype == "float32"),
        choice=_choice(problem.op, config),
        environment=environment,
        method=PUBLIC_METHOD,
        timing=timing,
        failure=failure,
    )


def _choice(op: str, config: PublicConfig) -> TritonGEMMConfig:
    """The name there is free text and only tiled templates have these fields, so the op tells which template it was."""
    template = "triton::bmm" if op in BATCHED_OPS else "triton::mm"
    extra: list[tuple[str, int | str]] = [] if config.grid is None else [("grid", config.grid)]
    if config.name != template:
        extra.append(("name", config.name))
    return TritonGEMMConfig(
        template=template,
        block_m=config.block_m,
        block_n=config.block_n,
        block_k=config.block_k,
        num_stages=config.num_stages,
        num_warps=config.num_warps,
        group_m=config.group_m,
        even_k=config.EVEN_K,
        allow_tf32=config.ALLOW_TF32,
        use_fast_accum=config.USE_FAST_ACCUM,
        acc_type=config.ACC_TYPE,
        extra=tuple(extra),
    )
