"""Measurements of every kind, drawn by hypothesis or written out, and what a refused file must leave as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from diode.errors import FileFormatError
from diode.storage import read_dataset
from diode.types import (
    AtenChoice,
    CppTemplateConfig,
    Dataset,
    DecomposeKConfig,
    Environment,
    Failure,
    Hardware,
    Measurement,
    MMShape,
    Operand,
    OtherChoice,
    OtherProblem,
    PersistentTMAConfig,
    TensorSpec,
    Timing,
    TimingMethod,
    TritonGEMMConfig,
)

# The same examples in every run, and no database of failures beside the tests.
settings.register_profile("storage", derandomize=True, database=None, deadline=None, max_examples=40)
settings.load_profile("storage")

names = st.text(min_size=1, max_size=12)
dtypes = st.sampled_from(["float16", "bfloat16", "float32", "float8_e4m3fn", "int8", "a_type_to_come"])
sizes = st.one_of(st.integers(0, 70_000), st.integers(0, 2**48 - 1))
strides = st.one_of(st.integers(-1, 70_000), st.integers(-(2**48) + 1, 2**48 - 1))
positive_floats = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
floats_from_zero = st.floats(min_value=0, allow_infinity=False)
positive_ints = st.integers(1, 2**20)
counts = st.integers(1, 2**31 - 1)
stages = st.integers(0, 64)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False), names
)
fields = st.lists(st.tuples(names, scalars), max_size=4).map(tuple)


def optional(strategy):
    return st.one_of(st.none(), strategy)


@st.composite
def gemms(draw) -> MMShape:
    op = draw(st.sampled_from(["mm", "addmm", "bmm", "baddbmm", "scaled_mm"]))
    rank = 3 if op in ("bmm", "baddbmm") else 2
    operands = st.builds(Operand, dtypes, st.tuples(*[strides] * rank))
    return MMShape(
        op=op,
        B=draw(sizes) if rank == 3 else 1,
        M=draw(sizes),
        N=draw(sizes),
        K=draw(sizes),
        a=draw(operands),
        b=draw(operands),
        out=draw(operands),
        bias=draw(optional(operands)),
        allow_tf32=draw(st.booleans()),
    )


tensors = st.builds(
    TensorSpec, st.lists(sizes, max_size=4).map(tuple), st.lists(strides, max_size=4).map(tuple), dtypes
)
other_problems = st.builds(OtherProblem, names, st.lists(tensors, max_size=3).map(tuple), optional(tensors))
tiles = {
    "template": names,
    **dict.fromkeys(("block_m", "block_n", "block_k", "num_warps", "group_m"), positive_ints),
    "num_stages": stages,
    **dict.fromkeys(("even_k", "allow_tf32", "use_fast_accum"), st.booleans()),
    "acc_type": names,
    "extra": fields,
}
choices = st.one_of(
    st.builds(TritonGEMMConfig, **tiles),
    st.builds(
        PersistentTMAConfig,
        **tiles,
        **dict.fromkeys(("a_row_major", "b_row_major", "tma_experimental_api"), st.booleans()),
        **dict.fromkeys(("num_sms", "tma_size"), positive_ints),
    ),
    st.builds(DecomposeKConfig, positive_ints),
    st.builds(AtenChoice, names),
    st.builds(CppTemplateConfig, names, fields),
    st.builds(OtherChoice, names, names, fields),
)
facts = optional(st.integers(0, 2**40))
hardware = st.builds(
    Hardware,
    names,
    st.sampled_from(["cuda", "cpu"]),
    optional(st.tuples(st.integers(0, 12), st.integers(0, 9))),
    *[facts] * 8,
    optional(positive_floats),
    st.lists(st.tuples(dtypes, positive_floats), max_size=2).map(tuple),
)
texts = st.text(max_size=8)
hashes = st.lists(st.tuples(names, texts), max_size=2).map(tuple)
environments = st.builds(Environment, hardware, *[texts] * 8, hashes)
methods = st.builds(
    TimingMethod,
    names,
    st.sampled_from(["median", "min"]),
    facts,
    optional(st.booleans()),
    optional(floats_from_zero),
    st.sampled_from(["static", "family", "backend"]),
    st.integers(1, 5),
)
timings = st.builds(
    Timing, positive_floats, optional(positive_floats), optional(floats_from_zero), optional(counts), optional(counts)
)
reasons = ["shared_memory", "registers", "compile_error", "wrong_result", "crash", "timeout", "unknown"]
failures = st.builds(Failure, st.sampled_from(reasons), st.text(max_size=20))


@st.composite
def measurement_lists(draw) -> list[Measurement]:
    """Rows that share problems, choices and circumstances, as those of a sweep do."""

    def pool(strategy):
        return st.sampled_from(draw(st.lists(strategy, min_size=1, max_size=3)))

    problem, choice = pool(st.one_of(gemms(), other_problems)), pool(choices)
    environment, method = pool(environments), pool(methods)
    timed = st.builds(Measurement, problem, choice, environment, method, timings)
    failed = st.builds(Measurement, problem, choice, environment, method, st.none(), failures)
    return draw(st.lists(st.one_of(timed, failed), max_size=8))


st.register_type_strategy(MMShape, gemms())
st.register_type_strategy(Dataset, measurement_lists().map(Dataset.of))


@pytest.fixture
def sample() -> Dataset:
    """Every kind of problem, choice and outcome once, fields that are not known among them."""
    gpu = Hardware("NVIDIA H200", "cuda", capability=(9, 0), sm_count=132, memory_bandwidth_gbs=4814.304)
    here = Environment(gpu, torch="2.11.0", triton="3.6.0", taken="2026-11-18", template_hashes=(("triton::mm", "0a"),))
    there = Environment(Hardware("AMD EPYC 9554", "cpu"))
    sweep = TimingMethod("diode-sweep", "median", 2**28, True, 1.25, "static", 2)
    inductor = TimingMethod("inductor", "min")
    linear = MMShape.of("addmm", 256, 512, 1024, dtype="float16", layout="NT")
    batched = MMShape.of("bmm", 64, 96, 128, B=7, dtype="float32", allow_tf32=True)
    image = TensorSpec((8, 3, 224, 224), (150528, 1, 672, 3), "float16")
    convolution = OtherProblem("convolution", (image, TensorSpec((64, 3, 7, 7), (147, 49, 7, 1), "float16")))
    tiled = TritonGEMMConfig("triton::mm", 64, 128, 32, 3, 4, even_k=True, extra=(("matrix_instr_nonkdim", 16),))
    tma = PersistentTMAConfig("triton::mm_persistent_tma", 128, 256, 64, 4, 8, True, False, 132)
    cpp = CppTemplateConfig("CppMicroGemmFP32Vec", (("block_n", 32), ("vnni", False)))
    cutlass = OtherChoice("cutlass", "cutlass_3x_sm90", (("none", None), ("ratio", 0.5), ("tile", "128x128"), ("x", 2)))
    return Dataset.of(
        [
            Measurement(linear, tiled, here, sweep, Timing(12.5, 12.25, 0.01, 30, 1980)),
            Measurement(linear, tma, here, sweep, Timing(9.75)),
            Measurement(linear, AtenChoice("addmm"), here, inductor, Timing(11.0, min_us=11.0)),
            Measurement(
                batched, DecomposeKConfig(8), here, inductor, None, Failure("shared_memory", "262144 > 232448")
            ),
            Measurement(batched, cutlass, here, sweep, Timing(3.0, spread=0.0, repeats=1)),
            Measurement(convolution, cpp, there, inductor, None, Failure("unknown")),
            Measurement(linear, cpp, there, inductor, Timing(1e-3, clock_mhz=3100)),
        ]
    )


Refused = Callable[..., str]


@pytest.fixture
def refused(tmp_path: Path) -> Refused:
    """`refused("a.json", content)` reads a file that must be refused, and gives what the error says after its name."""

    def message(name: str, content: bytes, read: Callable[[Path], object] = read_dataset) -> str:
        path = tmp_path / name
        path.write_bytes(content)
        modified = path.stat().st_mtime_ns
        with pytest.raises(FileFormatError) as caught:
            read(path)
        assert (path.read_bytes(), path.stat().st_mtime_ns) == (content, modified)
        assert list(tmp_path.iterdir()) == [path]
        file_name, separator, message = str(caught.value).partition(": ")
        assert (file_name, separator) == (str(path), ": ")
        assert "\n" not in message
        path.unlink()
        return message

    return message
