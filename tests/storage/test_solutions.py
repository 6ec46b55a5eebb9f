"""Solution files: every form that is read, round trips, and what is refused."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diode.errors import FileAccessError, InvalidRecordError, UsageError
from diode.storage import filter_dataset, read_solution, solution_of, write_solution
from diode.types import (
    AtenChoice,
    Choice,
    ChoicePattern,
    Dataset,
    DecomposeKConfig,
    Environment,
    Failure,
    Hardware,
    Measurement,
    MMShape,
    OtherChoice,
    ProblemPattern,
    Solution,
    SolutionEntry,
    Timing,
    TimingMethod,
    TritonGEMMConfig,
)

every_format = pytest.mark.parametrize("suffix", [".json", ".csv"])

LINEAR = MMShape.of("addmm", 256, 512, 1024, dtype="float16", layout="NT")
TILED = TritonGEMMConfig("triton::mm", 64, 128, 32, 3, 4, even_k=True, extra=(("matrix_instr_nonkdim", 16),))
SOLUTION = Solution(
    "by hand",
    (
        SolutionEntry(LINEAR, TILED, 12.5),
        SolutionEntry(ProblemPattern(op="mm", M=256, layout="NT", allow_tf32=True), AtenChoice("mm")),
        SolutionEntry(LINEAR, ChoicePattern(kind="triton_gemm", block_m=64, allow_tf32=False)),
        SolutionEntry(choice=ChoicePattern(k_split=8), time_us=1e-3),
        SolutionEntry(ProblemPattern(dtype="float16")),
    ),
)

names = st.text(min_size=1, max_size=12)
sizes = st.integers(0, 2**48 - 1)
tile = st.integers(1, 2**20)
dtypes = st.sampled_from(["float16", "bfloat16", "a_type_to_come"])


def optional(**fields):
    return {name: st.one_of(st.none(), strategy) for name, strategy in fields.items()}


problem_patterns = st.builds(
    ProblemPattern,
    **optional(
        op=names,
        **dict.fromkeys(("B", "M", "N", "K"), sizes),
        **dict.fromkeys(("dtype", "b_dtype", "out_dtype"), dtypes),
        layout=st.sampled_from(["NN", "NT", "TS"]),
        allow_tf32=st.booleans(),
    ),
)
choice_patterns = st.builds(
    ChoicePattern,
    **optional(
        kind=st.sampled_from(["triton_gemm", "aten", "other"]),
        **dict.fromkeys(("template", "acc_type", "kernel", "backend"), names),
        **dict.fromkeys(("block_m", "block_n", "block_k", "num_warps", "group_m", "num_sms", "k_split"), tile),
        num_stages=st.integers(0, 64),
        **dict.fromkeys(("even_k", "allow_tf32", "use_fast_accum"), st.booleans()),
    ),
)
datasets = st.from_type(Dataset)
times = st.one_of(st.none(), st.floats(min_value=0, exclude_min=True, allow_infinity=False))


@st.composite
def entries(draw) -> SolutionEntry:
    some_choices: tuple[Choice, ...] = draw(datasets.map(lambda dataset: dataset.choices).filter(bool))
    problem = draw(
        st.one_of(problem_patterns.filter(lambda pattern: pattern != ProblemPattern()), st.from_type(MMShape))
    )
    return SolutionEntry(problem, draw(st.one_of(choice_patterns, st.sampled_from(some_choices))), draw(times))


solutions = st.builds(Solution, names, st.lists(entries(), min_size=1, max_size=4).map(tuple))


def exact(solution: Solution) -> str:
    """Tells 1 from 1.0 and True, as == does not."""
    return repr(solution)


def read_again(solution: Solution, suffix: str) -> Solution:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{suffix}"
        write_solution(solution, path)
        read = read_solution(path)
        write_solution(read, path.with_stem("b"))
        assert path.read_bytes() == path.with_stem("b").read_bytes()
        assert len(list(Path(folder).iterdir())) == 2
        return read


@every_format
@given(solution=solutions)
def test_what_is_read_is_exactly_what_was_written(suffix: str, solution: Solution) -> None:
    read = read_again(solution, suffix)
    assert read == solution
    assert exact(read) == exact(solution)


@every_format
def test_every_kind_of_entry_survives(suffix: str) -> None:
    assert exact(read_again(SOLUTION, suffix)) == exact(SOLUTION)


@every_format
@given(dataset=datasets)
def test_a_solution_made_from_measurements_survives_and_finds_them(suffix: str, dataset: Dataset) -> None:
    dataset = filter_dataset(dataset, problem=lambda problem: isinstance(problem, MMShape), succeeded=True)
    dataset = filter_dataset(dataset, hardware=[row.hardware.name for row in dataset.environments[:1]])
    if not len(dataset):
        return
    solution = solution_of(dataset, "s")
    assert exact(read_again(solution, suffix)) == exact(solution)
    for entry in solution.entries:
        assert dataset.choices.index(entry.choice) in solution.choices_for(entry.problem, dataset.choices)  # type: ignore[arg-type]
    assert {entry.problem for entry in solution.entries} == set(dataset.problems)


def test_one_line_of_json_for_each_entry(tmp_path: Path) -> None:
    write_solution(SOLUTION, tmp_path / "a.json")
    lines = (tmp_path / "a.json").read_text().splitlines()
    assert len(lines) == 2 + len(SOLUTION.entries)
    content = json.loads((tmp_path / "a.json").read_bytes())
    assert (content["version"], content["name"]) == (1, "by hand")
    assert content["solution"][0]["choice"]["type"] == "triton_gemm"
    assert content["solution"][3] == {"problem": {}, "choice": {"k_split": 8}, "time_us": 1e-3}


def test_the_launch_posts_form_is_read(tmp_path: Path) -> None:
    configs = [
        {"M": 1376, "N": 80, "K": 216, "block_m": 128, "block_n": 16, "block_k": 128},
        {"M": 2552, "N": 10616, "K": 7616, "block_m": 256, "block_n": 128, "block_k": 32},
        {"op": "bmm", "allow_tf32": True, "kind": "aten", "kernel": "bmm", "time_us": 3},
        {"M": 8, "block_m": 16, "num_stages": 3, "group_m": 8, "name": "mm", "grid": None, "EVEN_K": True},
    ]
    (tmp_path / "a.json").write_text(json.dumps({"name": "tutorial", "configs": configs}))
    solution = read_solution(tmp_path / "a.json")
    assert solution == Solution(
        "tutorial",
        (
            SolutionEntry(ProblemPattern(M=1376, N=80, K=216), ChoicePattern(block_m=128, block_n=16, block_k=128)),
            SolutionEntry(ProblemPattern(M=2552, N=10616, K=7616), ChoicePattern(block_m=256, block_n=128, block_k=32)),
            SolutionEntry(ProblemPattern(op="bmm", allow_tf32=True), ChoicePattern(kind="aten", kernel="bmm"), 3.0),
            SolutionEntry(ProblemPattern(M=8), ChoicePattern(block_m=16, num_stages=3, group_m=8)),
        ),
    )
    choices = [TILED, msgspec.structs.replace(TILED, block_m=128, block_n=16, block_k=128), AtenChoice("mm")]
    for dtype in ("float16", "bfloat16"):
        assert solution.choices_for(MMShape.of("mm", 1376, 80, 216, dtype=dtype), choices) == [1]
    assert solution.choices_for(MMShape.of("mm", 1376, 80, 217), choices) == []


PUBLIC = {
    "name": "mm", "grid": 1, "block_m": 64, "block_n": 128, "block_k": 32, "group_m": 8, "num_stages": 3,
    "num_warps": 4, "EVEN_K": False, "ALLOW_TF32": True, "USE_FAST_ACCUM": False, "ACC_TYPE": "tl.float32",
}  # fmt: skip


def test_the_public_packages_form_is_for_any_problem(tmp_path: Path) -> None:
    (tmp_path / "h100.json").write_text(json.dumps({"config": [PUBLIC, {**PUBLIC, "num_warps": 8}], "_version": 1}))
    solution = read_solution(tmp_path / "h100.json")
    assert (solution.name, len(solution.entries)) == ("h100", 2)
    choices = [AtenChoice("mm"), msgspec.structs.replace(TILED, num_stages=4), TILED]
    assert solution.choices_for(LINEAR, choices) == [2]
    assert solution.choices_for(MMShape.of("bmm", 8, 8, 7, B=3), choices) == [2]
    (tmp_path / "named.json").write_text(json.dumps({"name": "mm", "config": [PUBLIC], "version": 1}))
    assert read_solution(tmp_path / "named.json").name == "mm"


def test_a_table_written_by_hand_needs_only_the_columns_that_say_something(tmp_path: Path) -> None:
    (tmp_path / "hand.csv").write_text("M,N,K,block_m,kernel,kind\n8,16,24,64,,\n8,,,,mm,aten\n")
    assert read_solution(tmp_path / "hand.csv") == Solution(
        "hand",
        (
            SolutionEntry(ProblemPattern(M=8, N=16, K=24), ChoicePattern(block_m=64)),
            SolutionEntry(ProblemPattern(M=8), ChoicePattern(kind="aten", kernel="mm")),
        ),
    )


def test_a_table_shows_the_facts_of_full_records(tmp_path: Path) -> None:
    write_solution(SOLUTION, tmp_path / "a.csv")
    names, first, second, *_ = (tmp_path / "a.csv").read_text().splitlines()
    assert names.startswith("problem_type,op,B,M,N,K,dtype,")
    assert first.startswith("gemm,addmm,1,256,512,1024,float16,")
    assert second.startswith(",mm,,256,,,,")


ENTRY = {"problem": {"op": "mm", "M": 8}, "choice": {"block_m": 64}}
FULL = msgspec.to_builtins(LINEAR)
WRONG_ENTRIES = [
    ({"surprise": 1}, "solution[1]: Object contains unknown field `surprise`"),
    ({"time_us": 0}, "solution[1].time_us: Expected `float` > 0.0"),
    ({"time_us": None}, "solution[1].time_us: Expected `float`, got `null`"),
    ({"problem": []}, "solution[1].problem: Expected `object`, got `array`"),
    ({"problem": {"m": 8}}, "solution[1].problem: Object contains unknown field `m`"),
    ({"problem": {"M": "8"}}, "solution[1].problem.M: Expected `int | null`, got `str`"),
    ({"problem": {"M": -1}}, "solution[1].problem.M: Expected `int` >= 0"),
    ({"problem": {"M": None}}, "solution[1].problem.M: is null: leave it out where it may be any"),
    ({"problem": {"layout": "XN"}}, "solution[1].problem.layout: Expected `str` matching regex"),
    ({"problem": {"dtype": "Half!"}}, "solution[1].problem.dtype: Expected `str` matching regex"),
    ({"problem": {"allow_tf32": 1}}, "solution[1].problem.allow_tf32: Expected `bool | null`, got `int`"),
    ({"problem": {"block_m": 64}}, "solution[1].problem: Object contains unknown field `block_m`"),
    ({"problem": {**FULL, "K": None}}, "solution[1].problem.K: Expected `int`, got `null`"),
    ({"problem": {**FULL, "B": 2}}, "solution[1].problem: addmm 256x512x1024: B is 2, but this op has no batch"),
    ({"problem": {**FULL, "type": "other"}}, "solution[1].problem.type: Invalid value 'other'"),
    ({"problem": {"type": "gemm", "M": 8}}, "solution[1].problem: Object missing required field `op`"),
    ({"choice": {"block_m": 0}}, "solution[1].choice.block_m: Expected `int` >= 1"),
    ({"choice": {"kind": "to_come"}}, "solution[1].choice.kind: Invalid enum value 'to_come'"),
    ({"choice": {"type": "to_come"}}, "solution[1].choice.type: Invalid value 'to_come'"),
    ({"choice": {"type": "decompose_k"}}, "solution[1].choice: Object missing required field `k_split`"),
    ({"choice": {"M": 8}}, "solution[1].choice: Object contains unknown field `M`"),
    ({"choice": None}, "solution[1].choice: Expected `object`, got `null`"),
    ({"problem": {}, "choice": {}}, "solution[1]: an entry that names neither a fact of the problem nor one of"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG_ENTRIES)
def test_the_error_names_entry_and_field(changes: dict, message: str, refused) -> None:
    content = {"version": 1, "name": "s", "solution": [ENTRY, {**ENTRY, **changes}]}
    assert refused("wrong.json", msgspec.json.encode(content), read_solution).startswith(message)


FLAT = {"M": 8, "N": 8, "K": 8, "block_m": 64}
WRONG_CONFIGS = [
    ({"BLOCK_M": 64}, "configs[1]: Object contains unknown field `BLOCK_M`"),
    ({"M": 8.5}, "configs[1].M: Expected `int | null`, got `float`"),
    ({"M": None}, "configs[1].M: is null"),
    ({"block_m": "64"}, "configs[1].block_m: Expected `int | null`, got `str`"),
    ({"num_stages": 65}, "configs[1].num_stages: Expected `int` <= 64"),
    ({"time_us": -1}, "configs[1].time_us: Expected `float` > 0.0"),
    ({"EVEN_K": 1}, "configs[1].EVEN_K: Expected `bool`, got `int`"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG_CONFIGS)
def test_the_error_names_config_and_field(changes: dict, message: str, refused) -> None:
    content = {"name": "s", "configs": [FLAT, {**FLAT, **changes}]}
    assert refused("wrong.json", msgspec.json.encode(content), read_solution).startswith(message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Input data was truncated"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "holds neither solution nor configs nor config"),
        (b'{"operations": {}}', "holds neither solution nor configs nor config"),
        (b'{"version": 1, "name": "s", "solution": []}', "solution: Expected `array` of length >= 1"),
        (b'{"version": 1, "name": "s", "solution": [1], "configs": []}', "Object contains unknown field `configs`"),
        (b'{"version": 1, "name": "", "solution": [1]}', "name: Expected `str` of length >= 1"),
        (b'{"version": 1, "solution": [1]}', "Object missing required field `name`"),
        (b'{"name": "s", "solution": [1]}', "Object missing required field `version`"),
        (b'{"version": 1, "name": "s", "solution": [1]}', "solution[0]: Expected `object`, got `int`"),
        (b'{"version": 2, "name": "s", "solution": 1}', "version: 2 is newer than 1, the newest that this diode reads"),
        (b'{"version": 0, "name": "s", "solution": 1}', "version: Expected `int` >= 1"),
        (b'{"name": "s", "configs": []}', "configs: Expected `array` of length >= 1"),
        (b'{"configs": [{"M": 8}]}', "Object missing required field `name`"),
        (b'{"name": "s", "configs": [{}]}', "configs[0]: an entry that names neither"),
        (b'{"name": "s", "configs": [[]]}', "configs[0]: Expected `object`, got `array`"),
        (b'{"name": "s", "configs": [{"M": 8, "M": 9}]}', "configs[0]: has the key 'M' twice"),
        (b'{"version": 1, "name": "s", "solution": [{"choice": {"k_split": 1, "k_split": 2}}]}',
         "solution[0].choice: has the key 'k_split' twice"),
        (b'{"config": []}', "config: Expected `array` of length >= 1"),
        (b'{"config": [{"block_m": 64}]}', "config[0]: Object missing required field `name`"),
        (b'{"config": [{"M": 64}]}', "config[0]: Object contains unknown field `M`"),
        (b'{"version": 1, "name": "s", "solution": [{"choice": ' + b"[" * 10**5, ""),
    ],
)  # fmt: skip
def test_what_is_no_solution_is_refused(content: bytes, message: str, refused) -> None:
    assert refused("wrong.json", content, read_solution).startswith(message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"M,block_m\n", "holds no entry, only the names of columns"),
        (b"M,block_m\n8,64", "does not end with a line break"),
        (b"M,time\n8,64\n", "line 1, column 'time': is unknown"),
        (b"M,block_m\n8,64\n,\n", "line 3: an entry that names neither"),
        (b"M,block_m\n8,64\nany,64\n", "line 3, column M: is 'any', which is no JSON value"),
        (b"M,block_m\n8,0\n", "line 2, column block_m: Expected `int` >= 1"),
        (b"M,kind\n8,cublas\n", "line 2, column kind: Invalid enum value 'cublas'"),
        (b"M,allow_tf32\n8,1\n", "line 2, column allow_tf32: Expected `bool | null`, got `int`"),
        (b"M,a_strides\n8,\"[8,1]\"\n", "line 2, column a_strides: must be empty where problem_type is ''"),
        (b"problem_type,op,M\ngemm,mm,8\n", "line 2, column B: is empty"),
        (b"problem_type,op\nother,mm\n", "line 2, column problem_type: is 'other', none of '', 'gemm'"),
        (b"M,choice_type,k_split,block_m\n8,decompose_k,8,64\n", "line 2, column block_m: must be empty where "),
        (b"M,extra\n8,[]\n", "line 2, column extra: must be empty where choice_type is ''"),
        (b"M,solution\n8,a\n9,b\n", "line 3, column solution: is 'b', not the same as in the rows before"),
        (b"M,time_us\n8,0\n", "line 2, column time_us: Expected `float` > 0.0"),
    ],
)  # fmt: skip
def test_the_error_names_line_and_column(content: bytes, message: str, refused) -> None:
    assert refused("wrong.csv", content, read_solution).startswith(message)


@every_format
def test_a_solution_that_was_cut_anywhere_is_refused(suffix: str, tmp_path: Path, refused) -> None:
    write_solution(SOLUTION, tmp_path / f"a{suffix}")
    content = (tmp_path / f"a{suffix}").read_bytes().rstrip()
    (tmp_path / f"a{suffix}").unlink()
    for length in range(len(content)):
        if suffix == ".json" or not content[:length].endswith(b"\n"):
            assert refused(f"cut{suffix}", content[:length], read_solution), length


@every_format
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (SolutionEntry(MMShape.of("mm", 2**48, 8, 8)), r"solution\[1\].problem.M: Expected `int` <= 281474976710655"),
        (SolutionEntry(ProblemPattern(M=-1)), r"solution\[1\].problem.M: Expected `int` >= 0"),
        (SolutionEntry(choice=ChoicePattern(block_m=0)), r"solution\[1\].choice.block_m: Expected `int` >= 1"),
        (SolutionEntry(choice=DecomposeKConfig(2**70)), ""),
        (SolutionEntry(LINEAR, TILED, float("nan")), r"solution\[1\].time_us: Expected `float`, got `null`"),
        (SolutionEntry(LINEAR, OtherChoice("b", "n", (("x", float("inf")),))), ""),
    ],
)
def test_what_could_not_be_read_again_is_not_written(suffix: str, entry: SolutionEntry, message: str, tmp_path) -> None:
    path = tmp_path / f"kept{suffix}"
    path.write_bytes(b"what was there before")
    with pytest.raises(InvalidRecordError, match=f"not written, since it could not be read again: .*{message}"):
        write_solution(Solution("s", (SOLUTION.entries[0], entry)), path)
    assert path.read_bytes() == b"what was there before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["a.parquet", "a", "a.JSON"])
def test_another_suffix_is_refused(name: str, tmp_path: Path) -> None:
    for use in (read_solution, lambda path: write_solution(SOLUTION, path)):
        with pytest.raises(UsageError, match=r"is no suffix of solutions; name it .json or .csv"):
            use(tmp_path / name)
    assert not list(tmp_path.iterdir())


@every_format
def test_a_missing_file_and_a_missing_folder_are_named(suffix: str, tmp_path: Path) -> None:
    with pytest.raises(FileAccessError, match=rf"missing{suffix}: cannot be read: No such file"):
        read_solution(tmp_path / f"missing{suffix}")
    with pytest.raises(FileAccessError, match=rf"a{suffix}: cannot be written: No such file"):
        write_solution(SOLUTION, tmp_path / "missing" / f"a{suffix}")


def test_a_solution_takes_the_fastest_choice_of_each_gemm(sample: Dataset) -> None:
    with pytest.raises(UsageError, match=r"times of AMD EPYC 9554, NVIDIA H200, but a solution is for one device"):
        solution_of(sample, "s")
    solution = solution_of(filter_dataset(sample, hardware="NVIDIA H200"), "s")
    assert [(str(entry.problem), str(entry.choice), entry.time_us) for entry in solution.entries] == [
        ("addmm 256x512x1024 float16 NT", "mm_persistent_tma 128x256x64 stages=4 warps=8 group=8", 9.75),
        ("addmm 256x512x1024 float16 NT", "aten addmm", 11.0),
        ("bmm 7x64x96x128 tf32 NN", "cutlass cutlass_3x_sm90", 3.0),
    ]


def test_a_choice_that_is_the_fastest_by_two_timers_stands_there_once() -> None:
    environment = Environment(Hardware("gpu", "cuda"))
    methods = (TimingMethod("diode-sweep", "median"), TimingMethod("inductor", "min"))
    slow, fast = AtenChoice("mm"), DecomposeKConfig(2)
    rows = [
        Measurement(LINEAR, choice, environment, method, Timing(time))
        for method in methods
        for choice, time in ((slow, 9.0), (fast, 3.0))
    ]
    assert solution_of(Dataset.of(rows), "s").entries == (SolutionEntry(LINEAR, fast, 3.0),)


def test_measurements_without_a_time_of_a_gemm_make_no_solution(sample: Dataset) -> None:
    with pytest.raises(UsageError, match="solution 's': no GEMM among 0 measurements has a time"):
        solution_of(Dataset.of([]), "s")
    failed = [msgspec.structs.replace(row, timing=None, failure=Failure("crash")) for row in sample]
    with pytest.raises(UsageError, match="no GEMM among 7 measurements has a time"):
        solution_of(Dataset.of(failed), "s")
    with pytest.raises(UsageError, match="no GEMM among 1 measurements has a time"):
        solution_of(sample.select(np.array([5])), "s")
