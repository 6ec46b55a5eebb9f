from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diode.errors import FileAccessError, InvalidRecordError
from diode.storage import read_shapeset, write_shapeset
from diode.types import MMShape, Operand

SHAPE = {
    "B": 1, "M": 256, "M_dtype": "float16", "N": 197951, "K": 512, "K_dtype": "float16", "out_dtype": "float16",
    "out_size": [256, 197951], "out_stride": [197951, 1],
}  # fmt: skip


def shapeset(*shapes: dict, op: str = "addmm") -> bytes:
    return json.dumps({"operations": {op: {"shapes": shapes}}}).encode()


def test_the_public_form_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(shapeset(SHAPE))
    (problem,) = read_shapeset(tmp_path / "a.json")
    assert problem == MMShape.of("addmm", 256, 197951, 512, dtype="float16", bias="vector")


@pytest.mark.parametrize(
    ("op", "changes", "expected"),
    [
        ("mm", {"M_dtype": "torch.bfloat16", "K_dtype": "torch.bfloat16", "out_dtype": "torch.bfloat16"},
         MMShape.of("mm", 256, 197951, 512)),
        ("mm", {"out_size": [1, 256, 197951], "out_stride": [50675456, 197951, 1]},
         MMShape.of("mm", 256, 197951, 512, dtype="float16")),
        ("bmm", {"B": 3, "out_size": [3, 256, 197951], "out_stride": [50675456, 197951, 1]},
         MMShape.of("bmm", 256, 197951, 512, B=3, dtype="float16")),
        ("mm", {"layout": "TN"}, MMShape.of("mm", 256, 197951, 512, dtype="float16", layout="TN")),
        ("mm", {"out_dtype": "float32"}, MMShape.of("mm", 256, 197951, 512, dtype="float16", out_dtype="float32")),
    ],
)  # fmt: skip
def test_the_public_forms_variants_are_read(op, changes, expected, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(shapeset({**SHAPE, **changes}, op=op))
    assert read_shapeset(tmp_path / "a.json") == (expected,)


def test_what_is_written_is_also_in_the_public_form(tmp_path: Path) -> None:
    write_shapeset([MMShape.of("addmm", 256, 197951, 512, dtype="float16")], tmp_path / "a.json")
    written = json.loads((tmp_path / "a.json").read_bytes())
    assert (written["format"], written["version"]) == ("diode-shapeset", 1)
    (shape,) = written["operations"]["addmm"]["shapes"]
    assert shape.items() >= SHAPE.items()


@given(st.lists(st.from_type(MMShape), max_size=5))
def test_what_is_read_is_what_was_written_gathered_by_op(problems: list[MMShape]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_shapeset(problems, Path(folder) / "a.json")
        read = read_shapeset(Path(folder) / "a.json")
    ops = list(dict.fromkeys(problem.op for problem in problems))
    assert list(read) == sorted(problems, key=lambda problem: ops.index(problem.op))


def test_strides_bias_and_tf32_survive(tmp_path: Path) -> None:
    padded = Operand("float32", (520, 1))
    skewed, scalar = Operand("float32", (7, 3)), Operand("bfloat16", (0, 0))
    base = MMShape.of("addmm", 64, 96, 512, dtype="float32", allow_tf32=True)
    problems = [
        base,
        MMShape("addmm", 1, 64, 96, 512, padded, base.b, base.out, None),
        MMShape("addmm", 1, 64, 96, 512, base.a, skewed, skewed, scalar),
        MMShape("mm", 1, 64, 96, 512, base.a, base.b, base.out, base.bias),
        MMShape.of("baddbmm", 8, 8, 8, B=4, bias="matrix", layout="TT"),
    ]
    write_shapeset(problems, tmp_path / "a.json")
    assert set(read_shapeset(tmp_path / "a.json")) == set(problems)


def test_no_problems_are_a_shapeset_too(tmp_path: Path) -> None:
    write_shapeset([], tmp_path / "a.json")
    assert read_shapeset(tmp_path / "a.json") == ()


WRONG = [
    ({"M": -1}, "operations.addmm.shapes[1].M: Expected `int` >= 0"),
    ({"M": "256"}, "operations.addmm.shapes[1].M: Expected `int`, got `str`"),
    ({"M": None}, "operations.addmm.shapes[1].M: Expected `int`, got `null`"),
    ({"M": 2**60}, "operations.addmm.shapes[1].M: Expected `int` <= 281474976710655"),
    ({"M_dtype": "half!"}, "operations.addmm.shapes[1].M_dtype: Expected `str` matching regex"),
    ({"surprise": 1}, "operations.addmm.shapes[1]: Object contains unknown field `surprise`"),
    ({"B": 2}, "operations.addmm.shapes[1]: addmm 256x197951x512: B is 2, but this op has no batch"),
    ({"out_size": [256, 8]}, "operations.addmm.shapes[1].out_size: is [256, 8], but the sizes make it [256, 197951]"),
    ({"out_stride": [1]}, "operations.addmm.shapes[1]: addmm 256x197951x512: operand out has 1 strides, not the 2"),
    ({"layout": "XY"}, "operations.addmm.shapes[1].layout: Invalid enum value 'XY'"),
    ({"a_stride": [512, 1]}, "operations.addmm.shapes[1].b_stride: is missing: give both strides or a layout"),
    ({"b_stride": [512, 1]}, "operations.addmm.shapes[1].a_stride: is missing: give both strides or a layout"),
    ({"layout": "NN", "a_stride": [512, 1], "b_stride": [1, 1]}, "operations.addmm.shapes[1].layout: contradicts"),
    ({"bias_stride": None, "bias_dtype": "int8"}, "operations.addmm.shapes[1].bias_dtype: contradicts a bias_stride"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_the_error_names_shape_and_field(changes: dict, message: str, refused) -> None:
    assert refused("wrong.json", shapeset(SHAPE, {**SHAPE, **changes}), read_shapeset).startswith(message)


def test_a_bias_type_without_strides_is_refused_where_no_bias_is_usual(refused) -> None:
    content = shapeset({**SHAPE, "bias_dtype": "float16"}, op="mm")
    message = refused("wrong.json", content, read_shapeset)
    assert message == "operations.mm.shapes[0].bias_stride: is missing beside bias_dtype"


@pytest.mark.parametrize("field", ["M", "N", "K", "M_dtype", "K_dtype", "out_dtype"])
def test_a_missing_field_is_named(field: str, refused) -> None:
    content = shapeset({name: value for name, value in SHAPE.items() if name != field})
    message = refused("missing.json", content, read_shapeset)
    assert message == f"operations.addmm.shapes[0]: Object missing required field `{field}`"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Input data was truncated"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "Object missing required field `operations`"),
        (b'{"operations": {"mm": {"shapes": [', "Input data was truncated"),
        (b'{"operations": {"mm": []}}', "operations.mm: Expected `object`, got `array`"),
        (b'{"operations": {"mm": {"shapes": [' + b"[" * 10**5, ""),
        (b'{"operations": {}, "surprise": 1}', "Object contains unknown field `surprise`"),
        (b'{"operations": {}, "format": "diode-dataset"}', "format: is 'diode-dataset', not 'diode-shapeset'"),
        (b'{"operations": {}, "version": 2}', "version: 2 is newer than 1, the newest that this diode reads"),
        (b'{"operations": [], "version": 2}', "version: 2 is newer than 1, the newest that this diode reads"),
        (b'{"operations": {}, "version": 0}', "version: Expected `int` >= 1"),
    ],
)
def test_what_is_no_shapeset_is_refused(content: bytes, message: str, refused) -> None:
    assert refused("wrong.json", content, read_shapeset).startswith(message)


def test_a_shapeset_cut_anywhere_is_refused(tmp_path: Path, refused) -> None:
    write_shapeset([MMShape.of("addmm", 8, 16, 24), MMShape.of("bmm", 8, 16, 24, B=3)], tmp_path / "a.json")
    content = (tmp_path / "a.json").read_bytes().rstrip()
    (tmp_path / "a.json").unlink()
    for length in range(len(content)):
        assert refused("cut.json", content[:length], read_shapeset)


@pytest.mark.parametrize(
    "wrong",
    [
        MMShape.of("mm", 2**70, 8, 8),
        MMShape.of("mm", -8, 8, 8),
        MMShape.of("", 8, 8, 8),
        MMShape.of("mm", 8, 8, 8, dtype="Float 16"),
        MMShape.of("mm", 8.5, 8, 8),  # type: ignore[arg-type]
    ],
)
def test_what_could_not_be_read_again_is_not_written(wrong: MMShape, tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    path.write_bytes(b"what was there before")
    with pytest.raises(InvalidRecordError, match="not written, since it could not be read again: problem 1"):
        write_shapeset([MMShape.of("mm", 8, 8, 8), wrong], path)
    assert path.read_bytes() == b"what was there before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileAccessError, match=r"missing\.json: cannot be read: No such file"):
        read_shapeset(tmp_path / "missing.json")
    with pytest.raises(FileAccessError, match="cannot be read: Is a directory"):
        read_shapeset(tmp_path)
