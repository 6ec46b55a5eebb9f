"""Which of two versions is later, and what a model that goes on learning is called."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.integration.choices.models import write_model

from diode.model.registry import ModelRegistry
from diode.model.version import ModelVersion, next_version
from diode.types.known_hardware import H200

IN_ORDER = (
    "0.1",
    "0.1+learned.20261119",
    "0.1.1",
    "0.1.1+learned.20250101",
    "0.1.1+learned.20261119",
    "0.1.1+learned.20261119.2",
    "0.1.1+learned.20261119.10",
    "0.1.1+learned.20261120",
    "0.2",
    "0.10",
    "1.2.3",
    "1.2.3+learned.20261119",
    "1.2.3.1",
    "2",
)


def test_what_was_learned_later_or_from_a_later_model_is_later():
    versions = [ModelVersion.of(text) for text in IN_ORDER]
    assert sorted(versions) == versions
    assert len(set(versions)) == len(versions)


@pytest.mark.parametrize(("one", "other"), [("1", "1.0.0"), ("v2.1", "2.1"), ("1.2+cu130", "1.2"), ("", "none")])
def test_what_says_the_same_is_equal(one, other):
    assert ModelVersion.of(one) == ModelVersion.of(other)


@pytest.mark.parametrize("older", range(len(IN_ORDER) - 1))
def test_of_two_models_that_fit_alike_the_later_is_found(older, tmp_path: Path):
    registry = ModelRegistry()
    for name, version in (("a", IN_ORDER[older]), ("b", IN_ORDER[older + 1])):
        write_model(tmp_path / f"{name}.safetensors", version=version)
    registry.add(tmp_path)
    found = registry.find(hardware=H200)
    assert found.pointer.version == IN_ORDER[older + 1]


@pytest.mark.parametrize("version", [*IN_ORDER, "5+learned.99991231", "5+learned.99991231.7", "5+learned"])
def test_learning_gives_a_later_version_of_the_same_base_each_time(version):
    first = next_version(version)
    second = next_version(first)
    beside = next_version(version, [first, "77", second])
    versions = [ModelVersion.of(text) for text in (version, first, second, beside)]
    assert sorted(versions) == versions
    assert len(set(versions)) == 4
    assert {found.base for found in versions} == {versions[0].base}
    assert re.fullmatch(re.escape(version.partition("+")[0]) + r"\+learned\.\d{8}(\.\d+)?", beside)
