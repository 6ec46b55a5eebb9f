"""Two values under one key: which of them was meant, no reader may guess."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diode.storage import read_dataset, read_shapeset, write_dataset, write_shapeset
from diode.storage.duplicate_keys import refuse_duplicate_keys
from diode.storage.flaws import Flaw
from diode.types import Dataset, MMShape


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"version":1', b'"version":1,"version":1', "has the key 'version' twice"),
        (b'"M":256', b'"M":256,"M":512', "problems[0]: has the key 'M' twice"),
        (b'"M":256', b'"M":256,"\\u004d":512', "problems[0]: has the key 'M' twice"),
        (b'"k_split":8', b'"k_split" : 8 , "k_split" : 4', "choices[3]: has the key 'k_split' twice"),
        (b'"sm_count":132', b'"sm_count":132,"sm_count":7', "environments[0].hardware: has the key 'sm_count' twice"),
        (b'"repeats":[', b'"repeats":[],"repeats":[', "columns: has the key 'repeats' twice"),
    ],
)
def test_json_names_object_and_key(old, new, message, sample: Dataset, tmp_path: Path, refused) -> None:
    write_dataset(sample, tmp_path / "a.json")
    content = (tmp_path / "a.json").read_bytes()
    (tmp_path / "a.json").unlink()
    assert old in content
    assert refused("twice.json", content.replace(old, new, 1)) == message


def test_msgpack_names_object_and_key(sample: Dataset, tmp_path: Path, refused) -> None:
    write_dataset(sample, tmp_path / "a.msgpack")
    content = (tmp_path / "a.msgpack").read_bytes()
    (tmp_path / "a.msgpack").unlink()
    once, twice = (
        b"\x82\xa4type\xabdecompose_k\xa7k_split\x08",
        b"\x83\xa4type\xabdecompose_k\xa7k_split\x08\xa7k_split\x04",
    )
    assert once in content
    assert refused("twice.msgpack", content.replace(once, twice)) == "choices[3]: has the key 'k_split' twice"


def test_a_shapeset_names_object_and_key(tmp_path: Path, refused) -> None:
    write_shapeset([MMShape.of("mm", 8, 16, 24)], tmp_path / "a.json")
    content = (tmp_path / "a.json").read_bytes()
    (tmp_path / "a.json").unlink()
    twice = content.replace(b'"K":24', b'"K":24,"K":48')
    message = refused("twice.json", twice, read_shapeset)
    assert message == "operations.mm.shapes[0]: has the key 'K' twice"


def test_braces_and_keys_inside_text_are_text(tmp_path: Path) -> None:
    nasty = 'a"b\\{"op":"x","op":[}],: {'
    form = {"M": 8, "M_dtype": "float16", "N": 8, "K": 8, "K_dtype": "float16", "out_dtype": "float16"}
    (tmp_path / "a.json").write_text(json.dumps({"operations": {nasty: {"shapes": [form, form]}}}))
    assert [problem.op for problem in read_shapeset(tmp_path / "a.json")] == [nasty, nasty]


PUBLIC = b'{"hardware": {"g": {"operation": {"mm": {"solution": {"s": %b}}}}}, "version": 1}'


@pytest.mark.parametrize("content", [b'{"\xff": 1, "\xff": 2}', b'{"a\\n\xff": 1}', b'{"\\q": 1}', b'{"\\ud800": 1}'])
def test_keys_that_are_no_text_are_refused_too(content: bytes, refused) -> None:
    assert refused("public.json", PUBLIC % content)
    assert refused("shapes.json", b'{"operations": {"mm": %b}}' % content, read_shapeset)


def test_keys_that_are_no_text_are_refused_in_msgpack(refused) -> None:
    for inner in ({1: 2}, {b"a": 1}, {None: 1}, msgspec.msgpack.Ext(1, b"x")):
        public = {"hardware": {"g": {"operation": {"mm": {"solution": {"s": inner}}}}}, "version": 1}
        message = refused("public.msgpack", msgspec.msgpack.encode(public))
        assert message.startswith("hardware.g.operation.mm.solution.s: ")


plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=20,
)


@given(plain)
def test_what_has_no_key_twice_is_never_refused(value: object) -> None:
    refuse_duplicate_keys(json.dumps(value, allow_nan=True).replace("Infinity", "1e9").encode(), "json")
    refuse_duplicate_keys(msgspec.msgpack.encode(value), "msgpack")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(value)) == value


@given(plain, st.text(min_size=1), st.text())
def test_a_key_that_stands_twice_is_found_wherever_it_stands(value: object, key: str, outer: str) -> None:
    encoded = json.dumps(key)
    inner = f"{{{encoded}: {json.dumps(value)}, {encoded}: 0}}"
    nested = json.dumps([value, {outer: "HERE"}]).replace('"HERE"', inner)
    with pytest.raises(Flaw, match="twice"):
        refuse_duplicate_keys(nested.encode(), "json")


@pytest.mark.parametrize("count", [1, 15, 16, 70_000])
def test_maps_and_texts_of_every_length_are_stepped_over(count: int, tmp_path: Path) -> None:
    value = {"texts": {str(number): "x" * min(number, 300) for number in range(count)}, "bytes": b"b" * count}
    content = msgspec.msgpack.encode(value)
    refuse_duplicate_keys(content, "msgpack")
    twice = b"\x83" + content[1:] + b"\xa5bytes\x01"
    with pytest.raises(Flaw, match="'bytes' twice"):
        refuse_duplicate_keys(twice, "msgpack")


def test_a_dataset_with_a_key_only_once_is_read(sample: Dataset, tmp_path: Path) -> None:
    write_dataset(sample, tmp_path / "a.json")
    assert list(read_dataset(tmp_path / "a.json")) == list(sample)
