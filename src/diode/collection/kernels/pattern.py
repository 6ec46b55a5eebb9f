"""From one kernel that Inductor rendered to the sources of all kernels of its kind.

Inductor writes sizes, strides and the config as literals, so each new size would be a new kernel. A pattern knows which
literal is which size. It gives back exactly Inductor's text for any problem and config of its kind (`static`), or a
kernel that takes M, N and the batch as arguments and serves a whole family of problems (`family`). K stays a literal in
both: it decides whether the K loop is unrolled and its loads are masked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from diode.errors import InvalidRecordError
from diode.types import MMShape, TiledConfig

_INTEGER: Final = re.compile(r"(?<![\w.])(\d{2,}|[2-9])(?![\w.])")
_CONFIG_LINE: Final = re.compile(r"^    ([A-Z][A-Z0-9_]*) : tl\.constexpr = .*$", re.MULTILINE)
_SIZE_LINE: Final = re.compile(r"^    (M) = M$|^    (N) = N$", re.MULTILINE)
_BATCH_LINE: Final = re.compile(r"^    BATCH = \d+$", re.MULTILINE)
_LAYOUT_TEST: Final = re.compile(r"^    if (\(.*stride_.*\)):$", re.MULTILINE)
_ASSIGNED: Final = re.compile(r"^    (stride_\w+|M|N|K) = (.+)$", re.MULTILINE)
_HEADER: Final = re.compile(r"^def (\w+)\(([^)]*)\):$", re.MULTILINE)

MAX_UNIT: Final = 8
"""Eight elements of 16 bits are the widest access, 16 bytes; a larger unit would only split families."""


@dataclass(frozen=True)
class KernelSource:
    """All that the compiler needs to know of a kernel, and no more: equal sources are one kernel."""

    text: str
    signature: tuple[tuple[str, str], ...]
    aligned: tuple[int, ...]
    num_warps: int
    num_stages: int

    @property
    def entry(self) -> str:
        header = _HEADER.search(self.text)
        if header is None:
            raise InvalidRecordError("a kernel source without a function header")
        return header.group(1)


@dataclass(frozen=True)
class SizeUnits:
    """M and N reach a family's kernel divided by these, so that the compiler knows their divisibility."""

    m: int
    n: int

    @classmethod
    def of(cls, problem: MMShape) -> SizeUnits:
        return cls(_unit(problem.M), _unit(problem.N))


@dataclass(frozen=True)
class KernelPattern:
    """A rendered kernel with `{M}`, `{N}`, `{K}`, `{B}` and the config's values in place of literals."""

    text: str
    signature: tuple[tuple[str, str], ...]
    aligned: tuple[int, ...]

    @classmethod
    def learn(
        cls, source: str, signature: tuple[tuple[str, str], ...], aligned: tuple[int, ...], example: MMShape
    ) -> KernelPattern:
        """`example` is the problem that `source` was rendered for; `pattern_example` makes one that is unambiguous."""
        names = _literals(example)
        header, body = _split_header(source.replace("{", "{{").replace("}", "}}"))
        body = _INTEGER.sub(lambda match: names.get(int(match.group()), match.group()), body)
        body = _BATCH_LINE.sub("    BATCH = {B}", body)
        header = _CONFIG_LINE.sub(lambda match: f"    {match.group(1)} : tl.constexpr = {{{match.group(1)}}}", header)
        return cls(header + body, signature, aligned)

    def static(self, problem: MMShape, config: TiledConfig) -> KernelSource:
        """The text that Inductor renders for this problem and config."""
        return self._source(self._fill(_size_values(problem), config), config)

    def family(self, problem: MMShape, config: TiledConfig) -> KernelSource:
        """A kernel for all problems that differ from this one in M, N and batch only.

        Their units and layout tests are the same, and either none of them or all have a batch of one.
        """
        units = SizeUnits.of(problem)
        values = _size_values(problem)
        decided = _decide_layout_tests(self.text, self._fill(values, config), values, config)
        symbolic = KernelPattern(decided, self.signature, self.aligned)._fill(
            {
                "M": "M",
                "N": "N",
                "K": str(problem.K),
                "MK": f"(M * {problem.K})",
                "KN": f"({problem.K} * N)",
                "MN": "(M * N)",
                "B": "1" if problem.B == 1 else "batch",
            },
            config,
        )
        counts = {"M": f"    M = m_units * {units.m}", "N": f"    N = n_units * {units.n}"}
        symbolic = _SIZE_LINE.sub(lambda match: counts[match.group().strip()[0]], symbolic)
        arguments = ("m_units", "n_units") if problem.B == 1 else ("m_units", "n_units", "batch")
        symbolic = _HEADER.sub(
            lambda match: f"def {match.group(1)}({', '.join((match.group(2), *arguments))}):", symbolic, count=1
        )
        source = self._source(symbolic, config)
        signature = (*source.signature, *((name, "i32") for name in arguments))
        return KernelSource(source.text, signature, source.aligned, source.num_warps, source.num_stages)

    def _fill(self, sizes: dict[str, str], config: TiledConfig) -> str:
        return self.text.format(**sizes, **config_literals(config))

    def _source(self, text: str, config: TiledConfig) -> KernelSource:
        return KernelSource(text, self.signature, self.aligned, config.num_warps, config.num_stages)


def family_sizes(problem: MMShape) -> tuple[int, ...]:
    """The integers that a family's kernel takes for this problem."""
    units = SizeUnits.of(problem)
    batch = () if problem.B == 1 else (problem.B,)
    return (problem.M // units.m, problem.N // units.n, *batch)


def pattern_example(problem: MMShape, *, even_k: bool) -> MMShape:
    """A problem of the same kind as `problem` whose sizes, and their products, are all different literals."""
    m = 1 if problem.M == 1 else 16 * 1013
    n = 1 if problem.N == 1 else 16 * 1019
    k = 256 * 13 if even_k else 1 if problem.K == 1 else 8 * 1009
    batch = problem.B if problem.B == 1 else 3
    return resized(problem, M=m, N=n, K=k, B=batch)


def resized(problem: MMShape, *, M: int, N: int, K: int, B: int) -> MMShape:
    """The problem with other sizes and the same layouts."""
    layout = problem.layout
    if "S" in layout:
        raise InvalidRecordError(f"{problem}: only dense operands can be resized")
    bias = None if problem.bias is None else ("vector" if problem.bias.strides[-2] == 0 else "matrix")
    return MMShape.of(
        problem.op,
        M,
        N,
        K,
        B=B,
        dtype=problem.a.dtype,
        layout=layout,  # type: ignore[arg-type]  # no S in it
        out_dtype=problem.out.dtype,
        bias=bias,  # type: ignore[arg-type]  # one of two literals
        allow_tf32=problem.allow_tf32,
    )


def config_literals(config: TiledConfig) -> dict[str, str]:
    """The values of a config as Inductor writes them into a kernel."""
    literals = {
        "EVEN_K": str(config.even_k),
        "USE_FAST_ACCUM": str(config.use_fast_accum),
        "ACC_TYPE": config.acc_type,
        "BLOCK_M": str(config.block_m),
        "BLOCK_N": str(config.block_n),
        "BLOCK_K": str(config.block_k),
        "GROUP_M": str(config.group_m),
        "ALLOW_TF32": str(config.allow_tf32),
        "INDEX_DTYPE": "tl.int32",
    }
    for name in ("a_row_major", "b_row_major", "num_sms", "tma_size", "tma_experimental_api"):
        if hasattr(config, name):
            literals[name.upper()] = str(getattr(config, name))
    return literals


def _unit(size: int) -> int:
    unit = MAX_UNIT
    while size % unit:
        unit //= 2
    return unit


def _literals(example: MMShape) -> dict[int, str]:
    m, n, k = example.M, example.N, example.K
    names = {m * k: "{MK}", k * n: "{KN}", m * n: "{MN}", m: "{M}", n: "{N}", k: "{K}"}
    return {value: name for value, name in names.items() if value > 1}


def _size_values(problem: MMShape) -> dict[str, str]:
    m, n, k = problem.M, problem.N, problem.K
    products = {"MK": str(m * k), "KN": str(k * n), "MN": str(m * n)}
    return {"M": str(m), "N": str(n), "K": str(k), "B": str(problem.B), **products}


def _split_header(source: str) -> tuple[str, str]:
    """The lines that declare the config, and the rest."""
    last = 0
    for match in _CONFIG_LINE.finditer(source):
        last = match.end()
    return source[:last], source[last:]


def _decide_layout_tests(pattern: str, static: str, values: dict[str, str], config: TiledConfig) -> str:
    """Writes True or False in place of the tests of strides and sizes, which are constants in the static kernel."""
    known: dict[str, object] = {name: int(value) for name, value in _ASSIGNED.findall(static)}
    known |= {"BLOCK_M": config.block_m, "BLOCK_N": config.block_n}

    def decide(match: re.Match[str]) -> str:
        test = match.group(1).format(**values)
        return f"    if {bool(eval(test, {'__builtins__': {}}, known))}:"  # Inductor's own text

    return _LAYOUT_TEST.sub(decide, pattern)
