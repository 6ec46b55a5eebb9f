"""What the command line consists of: promised names and defaults, its page in the docs, what it says to wrong words."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.cli.running import ONE_THREAD, diode_here, refusal

from diode.cli.app import app
from diode.cli.collection_options import KernelFormName, SamplerName, SearchSpaceName, sampler_of, settings_of
from diode.collection.sampling import ChoiceSample

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
PROMISED: dict[str, dict[str, object]] = {
    "diode": {"--format": None, "--seed": 42},
    "diode collect": {
        "--output": "required",
        "--num-shapes": 100,
        "--search-space": "EXHAUSTIVE",
        "--search-mode": "max-autotune",
        "--log-normal": False,
        "--budget": None,
        "--device": None,
    },
    "diode collect-shapeset": {"--shapeset": "required", "--output": "required", "--ops": "", "--without": None},
    "diode create-validation": {
        "--output": "required",
        "--num-shapes": 30,
        "--search-space": "EXHAUSTIVE",
        "--search-mode": "max-autotune",
        "--log-normal": False,
    },
    "diode compile-ahead": {"--shapeset": "required", "--hardware": "h200", "--ops": "", "--without": None},
    "diode train": {
        **dict.fromkeys(("--dataset", "--data-dir", "--batch-size", "--num-epochs", "--learning-rate")),
        **dict.fromkeys(("--weight-decay", "--patience", "--hidden-size", "--layers", "--tensorboard")),
        **dict.fromkeys(("--hardware", "--ops", "--file-extensions"), ""),
        "--model": "required",
        "--model-type": "deep",
    },
    "diode learn": {"--store": "required", "--model": "required", "--output": "required", "--dataset": None},
    "diode validate-model": {
        "--model": "required",
        "--dataset": "required",
        "--batch-size": 64,
        "--top-n-worst": 10,
        "--json": False,
    },
    "diode validate-max-autotune": {
        "--model": "required",
        "--dataset": "required",
        "--max-autotune-solution": None,
        "--batch-size": 64,
        "--output": Path("model_performance_analysis_by_op.json"),
        "--json": False,
    },
    "diode report": {"--model": "required", "--dataset": "required"},
    "diode describe-models": {"--ranking": None},
    "diode collect-and-train": dict.fromkeys(
        ("--skip-collection", "--skip-validation-set", "--skip-training", "--skip-validation"), False
    ),
    "diode dataset stats": {"--json": False},
    "diode dataset merge": {"--output": "required"},
    "diode dataset convert": {},
    "diode dataset solution": {"--output": "required", "--json": False},
}


def commands() -> dict[str, Any]:
    """Every command of the real parser, by its words."""

    def walk(command: Any, name: str) -> Iterator[tuple[str, Any]]:
        below = getattr(command, "commands", {})
        if not below or name == "diode":
            yield name, command
        for word, each in below.items():
            yield from walk(each, f"{name} {word}")

    return dict(walk(typer.main.get_command(app), "diode"))


def default_of(parameter: Any) -> object:
    if parameter.required:
        return "required"
    return parameter.default.value if isinstance(parameter.default, Enum) else parameter.default


def test_every_promised_flag_is_there_with_its_default() -> None:
    there = commands()
    assert set(there) == set(PROMISED)
    for name, flags in PROMISED.items():
        defaults = {flag: default_of(parameter) for parameter in there[name].params for flag in parameter.opts}
        assert {flag: defaults.get(flag, "missing") for flag in flags} == flags


def sections() -> dict[str, str]:
    titles = re.split(r"^## (.*)\n", PAGE.read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(titles[::2], titles[1::2], strict=True))


def test_the_page_has_a_section_for_each_command() -> None:
    assert list(sections()) == list(commands())


@pytest.mark.parametrize("name", list(PROMISED))
def test_the_page_says_what_the_parser_says(name: str) -> None:
    section, command = sections()[name], commands()[name]
    rows = re.findall(r"^\| `(.*)` \| (.*) \| (.*) \|$", section, re.MULTILINE)
    expected = []
    for parameter in command.params:
        words = [parameter.name.upper()] if parameter.param_type_name == "argument" else parameter.opts
        default = default_of(parameter)
        shown = f"`{default}`"
        if default is None or default is False or default in ("", "required"):
            shown = str(default or "")
        elif default is True:
            shown = "on"
        told = " ".join(parameter.help.split())
        expected.append(("`, `".join([*words, *parameter.secondary_opts]), shown, told))
    assert rows == expected
    if name != "diode":
        assert " ".join(section.split()).startswith(" ".join(command.help.split()))


@pytest.mark.parametrize("name", list(PROMISED))
def test_the_example_of_each_section_is_made_of_words_that_the_command_knows(name: str) -> None:
    (example,) = re.findall(r"^```\n(diode .*)\n```$", sections()[name], re.MULTILINE)
    said = shlex.split(example)[1:]
    group = typer.main.get_command(app)
    context = group.make_context("diode", said[:], resilient_parsing=False)
    command, rest = group, [*context._protected_args, *context.args]
    words = ["diode"]
    while hasattr(command, "commands"):
        command = command.commands[rest[0]]
        words.append(rest.pop(0))
        context = command.make_context(words[-1], list(rest), parent=context)
        rest = [*context._protected_args, *context.args]
    assert name in ("diode", " ".join(words))
    assert rest == []


@pytest.mark.parametrize("name", list(PROMISED))
def test_help_explains_every_flag(name: str, tmp_path: Path) -> None:
    done = diode_here(tmp_path, *name.split()[1:], "--help")
    assert (done.code, done.err) == (0, "")
    for parameter in commands()[name].params:
        assert parameter.help
        if parameter.param_type_name == "option":
            assert re.search(rf"^ +{parameter.opts[0]}\b", done.out, re.MULTILINE)


def test_what_is_drawn_and_measured_follows_the_words() -> None:
    def kinds(*words: str, **named: Any) -> set[tuple[str, str, str]]:
        return {(p.op, p.layout, p.a.dtype) for p in sampler_of(1, False, None, 1, *words, **named).sample(40)}

    assert {op for op, _, _ in kinds()} == {"mm", "addmm", "bmm"}
    assert kinds("bmm", "float16", "TN") == {("bmm", "TN", "float16")}
    assert {layout for _, layout, _ in kinds("", "", "NT,NN")} == {"NT", "NN"}
    usual = sampler_of(42, False, None).sample(20)
    assert sampler_of(42, True, None).sample(20) == sampler_of(42, False, SamplerName.log_normal).sample(20) == usual
    assert sampler_of(43, True, None).sample(20) != usual
    assert len({sampler_of(42, False, name).sample(20) for name in SamplerName}) == 4
    assert all(problem.flops <= 2e6 for problem in sampler_of(42, True, None, max_gflop=0.002).sample(20))
    shared = sampler_of(42, True, None, group=4).sample(8)
    assert len({(p.op, p.K, p.layout, p.a.dtype) for p in shared}) == 2

    def settings(space: str = "EXHAUSTIVE", choices: int | None = None, *, shared: bool = False) -> Any:
        kernels = KernelFormName.static
        return settings_of(7, SearchSpaceName(space), choices, None, kernels, shared=shared, confirm=True)

    assert (settings().space, settings("DEFAULT").space) == ("EXHAUSTIVE", "DEFAULT")
    assert (settings().sample, settings(choices=12).sample) == (None, ChoiceSample(12, 7))
    assert settings(choices=12, shared=True).sample == ChoiceSample(12, 7, shared=True)
    assert (settings().form, settings().confirm) == ("static", True)


def test_words_that_make_no_command_are_one_line(tmp_path: Path) -> None:
    for words, message in (
        (("collects",), "No such command 'collects'."),
        (("dataset", "stat", "a"), "No such command 'stat'."),
        (("--format", "xml", "collect"), "'xml' is not one of 'json', 'msgpack', 'parquet'."),
        (("--seed", "x", "collect"), "Invalid value for '--seed': "),
        (("collect", "--outptu", "a.json"), "--outptu"),
    ):
        said = refusal(tmp_path, *words, code=2)
        assert message in said
        assert re.search(r" \(\S.* --help explains\)$", said)


def test_without_words_the_help_is_shown(tmp_path: Path) -> None:
    for words in ((), ("dataset",)):
        done = diode_here(tmp_path, *words)
        assert done.code == 2
        assert "Usage: " in done.out + done.err
        assert "..." not in (done.out + done.err).partition("Commands:")[2]  # nothing cut off


def shell(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    command = line.replace("diode ", f"{sys.executable} -m diode.cli ")
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", **ONE_THREAD},
    )


def test_who_reads_may_stop_and_a_full_disk_is_one_line(h200: Path) -> None:
    stopped = shell(h200, "diode dataset stats training.parquet --fastest 10000 | true")
    assert (stopped.returncode, stopped.stderr) == (1, "")
    full = shell(h200, "diode dataset stats training.parquet > /dev/full")
    assert full.returncode == 1
    assert full.stderr == "error: the output: cannot be read or written: No space left on device\n"


def test_where_letters_are_few_tables_are_drawn_with_them(h200: Path) -> None:
    done = shell(h200, "PYTHONIOENCODING=ascii diode dataset stats training.parquet")
    assert (done.returncode, done.stderr) == (0, "")
    assert "NVIDIA H200" in done.stdout
    assert done.stdout.isascii()
