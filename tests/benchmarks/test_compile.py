"""What a compile cost, told: problems chosen, searches cut off, figures summed up, and one cold compile for real."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
import torch
from tests.integration.choices.models import write_model
from torch._inductor.select_algorithm import get_algorithm_selector_cache

import cold_compile
import compile as benchmark
import compile_exhaustive
import compile_summary
from diode.errors import DiodeError
from diode.integration.matmul_integration import MatmulIntegration
from diode.model.evaluation import regime_of
from diode.storage import read_shapeset
from diode.types import MMShape
from diode.types.known_hardware import H200
from small_models import small_models

SHAPESET = Path(__file__).parents[2] / "diode_datasets" / "h200_test_shapeset.json"
HEAD = {"gpu": "NVIDIA H200", "torch": "2.11.0", "triton": "3.6.0", "model_sha256": "a"}


@pytest.fixture(scope="module")
def problems() -> tuple[MMShape, ...]:
    return read_shapeset(SHAPESET)


def row(**kernel_us_and_search: tuple[float | None, float]) -> dict[str, object]:
    rows = {
        mode: {
            "kernel_us": kernel_us,
            "search_seconds": search,
            "compile_seconds": search + 1.0,
            "kernels_compiled": 3,
            "kernels_benchmarked": 2,
        }
        for mode, (kernel_us, search) in kernel_us_and_search.items()
    }
    return {"name": "mm", "regime": "tiny", "rows": rows}


def test_the_first_of_the_chosen_problems_are_spread_already(problems):
    chosen = compile_summary.chosen_problems(problems, 24, H200)
    assert len(set(chosen)) == 24
    assert set(chosen) <= set(problems)
    for count in (8, 16, 24):
        first = chosen[:count]
        assert {problem.op for problem in first} == {"mm", "addmm", "bmm"}
        assert {regime_of(problem, compile_summary._expected_us(H200, problem)) for problem in first} == {
            "tiny",
            "skinny",
            "large",
            "ordinary",
        }
    assert chosen == compile_summary.chosen_problems(problems[::-1], 24, H200)


def test_no_chosen_problem_runs_for_long(problems):
    everything = compile_summary.chosen_problems(problems, 1000, H200)
    assert 100 < len(everything) < len(problems)
    assert max(problem.flops for problem in everything) < 5e11


def test_problems_that_are_searched_exhaustively_are_of_the_test_set_and_measured_there(problems):
    assert set(benchmark.EXHAUSTIVE_PROBLEMS) <= {str(problem) for problem in problems}
    measured = benchmark.Measured.of(benchmark.parsed(["--output", "out.json"]))
    assert measured.exhaustive == benchmark.EXHAUSTIVE_PROBLEMS  # the one whose search ends comes first
    assert not set(measured.exhaustive) & {str(problem) for problem in measured.problems}
    assert len(measured.problems) == len(problems) - len(measured.exhaustive)


def started(model: Path, output: Path, *words: str) -> str:
    """What a run with the model ends with on this machine, which has no GPU."""
    arguments = benchmark.parsed(["--model", str(model), "--output", str(output), *words])
    with pytest.raises((SystemExit, DiodeError)) as ended:
        benchmark.run(arguments, benchmark.Budget(60.0))
    return str(ended.value)


def test_a_model_that_would_fall_back_is_refused_before_anything_is_compiled(tmp_path):
    model, output = write_model(tmp_path / "m.safetensors", ops=("mm",), precisions=("bfloat16",)), tmp_path / "o.json"
    refused = "made-up 1 does not know addmm, bmm, float16, tf32, which are to be measured: "
    assert started(model, output).startswith(refused)
    assert started(model, output, "--ops", "mm").startswith("made-up 1 does not know float16")
    assert started(model, output, "--parts", "models").startswith("made-up 1 does not know addmm, which")
    for words in (("--any-op",), ("--ops", "mm", "--parts", "models"), ("--parts", "exhaustive")):
        assert started(model, output, *words).startswith("no CUDA device can be used here")
    assert started(model, output, "--ops", "mm,conv").startswith("--ops mm,conv: ")
    assert not output.exists()


def test_only_what_consists_of_the_ops_is_measured():
    measured = benchmark.Measured.of(benchmark.parsed(["--output", "out.json", "--ops", "mm"]))
    assert {problem.op for problem in measured.problems} == {"mm"}
    assert [model.name for model in measured.models] == ["Llama-style block"]


def test_speedups_and_ratios_are_geometric_means_beside_default():
    rows = [
        row(default=(10.0, 4.0), k1=(5.0, 0.25), aten=(20.0, 0.05)),
        row(default=(10.0, 9.0), k1=(20.0, 1.0), aten=(10.0, 0.05)),
    ]
    found = compile_summary.summary_of_problems(rows)
    assert found["problems"] == 2
    assert found["speedup_vs_default_kernels"] == {"k1": 1.0, "aten": pytest.approx(0.5**0.5, abs=1e-4)}
    assert found["search_ratio_vs_default"]["k1"] == pytest.approx((0.25 / 4 / 9) ** 0.5, abs=1e-4)
    assert found["beyond_aten_ratio_vs_default"]["k1"] == pytest.approx((0.2 + 0.95) / (3.95 + 8.95), abs=1e-4)
    assert compile_summary.by_regime(rows)["tiny"]["search_ratio_vs_default"] == found["search_ratio_vs_default"]


def test_what_was_not_measured_is_left_out_of_the_figures():
    rows = [row(default=(10.0, 4.0), k1=(None, 1.0)), row(default=(10.0, 4.0)), row(k1=(1.0, 1.0))]
    found = compile_summary.summary_of_problems(rows)
    assert found["speedup_vs_default_kernels"] == {"k1": None}
    assert found["search_ratio_vs_default"] == {"k1": 0.25}
    assert found["beyond_aten_ratio_vs_default"] == {"k1": None}
    assert compile_summary.summary_of_problems([])["speedup_vs_default_kernels"] == {}


def test_whatever_went_wrong_is_listed():
    odd = row(default=(10.0, 4.0), k1=(5.0, 1.0)) | {"errors": {"k3": "OutOfResources: too much"}}
    odd["rows"]["k1"] |= {"fallbacks": {"fallback_error": 1}, "wrong": None}
    odd["rows"]["default"] |= {"fallbacks": {}, "wrong": "relative error 0.1"}
    assert compile_summary.oddities([odd, row(default=(1.0, 1.0))]) == [
        "mm, k3: failed: OutOfResources: too much",
        "mm, default: wrong: relative error 0.1",
        "mm, k1: fell back: {'fallback_error': 1}",
    ]


def test_a_search_that_was_cut_off_is_a_lower_bound(tmp_path):
    told = tmp_path / "told.jsonl"
    before = row(k1=(5.0, 0.5), default=(6.0, 3.0))["rows"]
    lines = [json.dumps(facts) for facts in ({"rows": before, "regime": "tiny"}, {"entered": 1000.0})]
    told.write_text("\n".join(lines) + '\n{"rows": {"exhau')
    found = compile_exhaustive.cut_off(compile_exhaustive.read_told(told), ended=1200.0, kernels=1234)
    assert found["rows"]["exhaustive"] == {"cut_off": True, "search_seconds": 200.0, "kernels_compiled": 1234}
    assert found["rows"]["k1"] == before["k1"]
    summary = compile_summary.summary_of_exhaustive([found])
    assert summary["is_upper_bound"] is True
    assert summary["search_ratio_vs_exhaustive"] == {"default": 0.015, "k1": 0.0025}
    assert summary["speedup_vs_exhaustive_kernels"] == {"default": None, "k1": None}


def test_a_search_that_ended_is_no_bound():
    found = row(k1=(5.0, 0.5), exhaustive=(4.0, 100.0))
    facts = {"rows": found["rows"], "regime": "tiny", "entered": 5.0, "done": True}
    summary = compile_summary.summary_of_exhaustive([compile_exhaustive.cut_off(facts, ended=1e9, kernels=0)])
    assert summary["is_upper_bound"] is False
    assert summary["search_ratio_vs_exhaustive"] == {"k1": 0.005}
    assert summary["speedup_vs_exhaustive_kernels"] == {"k1": 0.8}


SEARCHES_FOREVER = """
import json, os, subprocess, sys, time
from pathlib import Path
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
folder = Path(given["--folder"], "exhaustive", "triton")
folder.mkdir(parents=True)
(folder / "one.cubin").touch()
with open(given["--told"], "a") as told:
    told.write(json.dumps({"rows": {}, "regime": given["--exhaustive-of"]}) + "\\n")
    told.write(json.dumps({"entered": time.time()}) + "\\n")
Path(given["--model"]).write_text(f"{os.getpid()} {worker.pid}")
time.sleep(600)
"""


def test_a_search_that_does_not_end_is_killed_with_its_workers(tmp_path):
    program, pids = tmp_path / "search.py", tmp_path / "pids"
    program.write_text(SEARCHES_FOREVER)
    found = compile_exhaustive.run_exhaustive("tiny", program, pids, SHAPESET, seconds=0.5, deadline=time.time() + 600)
    assert found["exit_code"] < 0
    assert found["regime"] == "tiny"
    assert 0.5 <= found["rows"]["exhaustive"]["search_seconds"] < 60
    assert found["rows"]["exhaustive"]["kernels_compiled"] == 1
    for pid in pids.read_text().split():
        assert ends(int(pid))


def test_a_search_is_told_of_by_its_deadline_however_long_it_might_take(tmp_path):
    program, pids = tmp_path / "search.py", tmp_path / "pids"
    program.write_text(SEARCHES_FOREVER)
    deadline = time.time() + compile_exhaustive.ENDING_SECONDS + 5
    found = compile_exhaustive.run_exhaustive("tiny", program, pids, SHAPESET, seconds=1e4, deadline=deadline)
    assert found["rows"]["exhaustive"]["cut_off"] is True
    assert found["rows"]["exhaustive"]["search_seconds"] <= 5 + compile_exhaustive.ENDING_SECONDS


def test_a_process_that_ends_before_its_search_is_an_error(tmp_path):
    program = tmp_path / "search.py"
    program.write_text("raise SystemExit(3)")
    found = compile_exhaustive.run_exhaustive("mm", program, tmp_path, SHAPESET, seconds=1.0, deadline=time.time() + 99)
    assert found["errors"] == {"exhaustive": "no search began; the process ended with 3"}
    assert compile_summary.oddities([found]) == [f"mm, exhaustive: failed: {found['errors']['exhaustive']}"]


def ends(pid: int) -> bool:
    """Its parent may be gone too: then it waits for whoever inherits it to take notice."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def test_a_run_goes_on_where_the_last_one_ended(problems, tmp_path):
    output = tmp_path / "out.json"
    first = benchmark.Results(output, HEAD, resume=False)
    chosen = [str(problem) for problem in benchmark.pending(first, problems, H200, 3)]
    first.add("problems", row(default=(10.0, 4.0), k1=(5.0, 1.0)) | {"name": chosen[0]})
    again = benchmark.Results(output, HEAD, resume=True)
    assert [str(problem) for problem in benchmark.pending(again, problems, H200, 3)] == chosen[1:]
    again.add("problems", row(default=(10.0, 4.0), k1=(2.5, 1.0)) | {"name": chosen[1]})
    told = json.loads(output.read_text())
    assert (told["problems"], told["gpu"]) == (2, "NVIDIA H200")
    assert told["speedup_vs_default_kernels"] == {"k1": pytest.approx(8**0.5, abs=1e-4)}
    anew = benchmark.Results(output, HEAD, resume=False)
    assert [str(problem) for problem in benchmark.pending(anew, problems, H200, 3)] == chosen


def test_figures_of_another_model_are_not_mixed_in(tmp_path):
    output = tmp_path / "out.json"
    benchmark.Results(output, HEAD, resume=False).write()
    with pytest.raises(SystemExit, match="model_sha256"):
        benchmark.Results(output, HEAD | {"model_sha256": "b"}, resume=True)


class Failing:
    """A machine on which nothing can be set up: its device is none."""

    device = "no such device"
    hardware = H200


def test_what_fails_as_a_whole_is_a_row_with_its_error_and_tried_again(problems, tmp_path):
    output = tmp_path / "out.json"
    results = benchmark.Results(output, HEAD, resume=False)
    budget = benchmark.Budget(600.0)
    benchmark.run_problems(Failing(), results, problems, 2, budget, 0.0)
    benchmark.run_models(Failing(), results, small_models(), budget, 0.0)
    told = json.loads(output.read_text())
    assert len(told["problems_measured"]) == 2
    assert [row["name"] for row in told["models_measured"]] == [model.name for model in small_models()]
    for failed in told["problems_measured"] + told["models_measured"]:
        assert "no such device" in failed["errors"]["all of it"]
    assert len(told["oddities"]) == 5
    assert (told["problems"], told["models"]["models"], told["speedup_vs_default_kernels"]) == (0, 0, {})

    again = benchmark.Results(output, HEAD, resume=True)
    name = told["problems_measured"][0]["name"]
    assert name in map(str, benchmark.pending(again, problems, H200, 2))
    again.add("problems", row(default=(10.0, 4.0)) | {"name": name})
    assert sorted(row["name"] for row in again.parts["problems"]) == sorted(
        row["name"] for row in told["problems_measured"]
    )


def test_a_search_that_never_began_is_tried_again(tmp_path):
    results = benchmark.Results(tmp_path / "out.json", HEAD, resume=False)
    results.add("exhaustive", row(default=(10.0, 4.0)) | {"errors": {"exhaustive": "no search began"}})
    assert not results.has("exhaustive", "mm")
    results.add("exhaustive", row(default=(10.0, 4.0), exhaustive=(9.0, 40.0)))
    assert results.has("exhaustive", "mm")
    assert len(results.parts["exhaustive"]) == 1


def test_the_first_part_leaves_time_to_the_later_ones(problems, tmp_path):
    results = benchmark.Results(tmp_path / "out.json", HEAD, resume=False)
    searches = benchmark.EXHAUSTIVE_PROBLEMS
    all_of_it = benchmark.reserved_seconds(results, small_models(), searches, 900.0)
    assert 900.0 / 2 >= all_of_it > benchmark.reserved_seconds(results, (), searches, 900.0) > 100.0
    assert benchmark.reserved_seconds(results, small_models(), searches, 100.0) == 50.0
    assert benchmark.reserved_seconds(results, (), (), 900.0) == 0.0
    results.add("exhaustive", row(exhaustive=(9.0, 40.0)) | {"name": searches[0]})
    assert benchmark.reserved_seconds(results, small_models(), searches, 900.0) < all_of_it
    benchmark.run_problems(Failing(), results, problems, 24, benchmark.Budget(90.0), reserved=91.0)
    assert results.parts["problems"] == []


def test_time_that_is_left_must_be_enough_for_the_longest_so_far():
    budget = benchmark.Budget(100.0)
    assert budget.allows("problem")
    budget.took("problem", 300.0)
    budget.took("problem", 2.0)
    assert not budget.allows("problem")
    assert budget.allows("model")
    assert not budget.allows("model", reserved=101.0)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Two cold compiles for this machine's CPU, of which the second makes Dynamo forget the first."""
    folder = tmp_path_factory.mktemp("caches")
    a, b = torch.randn(16, 24), torch.randn(24, 8)
    entered: list[str] = []
    kept, _, cost = cold_compile.compile_cold(
        torch.mm, lambda call: call(a, b), {}, folder / "1", on_entering=lambda: entered.append("mm")
    )
    cold_compile.compile_cold(torch.mm, lambda call: call(a, b), {}, folder / "2")
    return kept, cost, entered, (a, b), folder


def test_what_was_compiled_can_be_called_after_the_next_compile(compiled):
    kept, _, _, (a, b), _ = compiled
    (result,) = kept.compiled[0](a, b)
    torch.testing.assert_close(result, a @ b)


def test_a_cold_compile_is_told_by_what_it_took(compiled):
    _, cost, entered, _, folder = compiled
    assert entered == ["mm"]
    assert cost.graphs == 1
    assert 0 < cost.search_seconds < cost.compile_seconds
    assert (cost.kernels_compiled, cost.kernels_benchmarked) == (0, 0)
    assert cost.ended_with == ()
    assert list((folder / "2").iterdir()), "the second compile found the first one's results"


def counted_mm(a, b, *, out=None):
    return torch.mm(a, b, out=out)


def test_what_was_benchmarked_is_counted_and_the_fastest_named(tmp_path):
    a, b = torch.randn(16, 24), torch.randn(24, 8)
    options = {"max_autotune_gemm": True, "max_autotune_gemm_backends": "ATEN", "external_matmul": [counted_mm]}
    with torch.no_grad():
        _, _, cost = cold_compile.compile_cold(torch.mm, lambda call: call(a, b), options, tmp_path)
    assert cost.kernels_benchmarked == 2
    assert cost.ended_with in [("aten mm",), ("aten counted_mm",)]
    assert get_algorithm_selector_cache().feedback_saver_fns == []


def test_kernels_are_counted_where_triton_leaves_them(tmp_path):
    for name in ("a/kernel.cubin", "b/other.cubin", "b/other.ttir"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert cold_compile.kernels_in(tmp_path) == 2


def test_each_mode_has_diode_as_it_says_and_leaves_torch_alone(tmp_path):
    choosers = cold_compile.Choosers(write_model(tmp_path / "m.safetensors"))
    for mode, top_k in {"k1": 1, "k3": 3, "auto": "auto"}.items():
        with choosers.engaged(mode) as integration:
            assert isinstance(integration, MatmulIntegration)
            assert integration.choices.policy.top_k == top_k
            assert torch._inductor.config.inductor_choices_class is not None
            assert torch._inductor.config.triton.enable_persistent_tma_matmul
        assert torch._inductor.config.inductor_choices_class is None
        assert not torch._inductor.config.triton.enable_persistent_tma_matmul
    with choosers.engaged("default") as integration:
        assert integration is None
    with (
        pytest.raises(RuntimeError, match="cannot be registered"),
        cold_compile.Choosers(tmp_path / "no").engaged("k1"),
    ):
        pass


def test_the_plain_command_measures_everything():
    arguments = benchmark.parsed(["--output", "out.json"])
    assert arguments.parts == ["problems", "models", "exhaustive"]
    assert arguments.model.name == "diode_models"
    assert (arguments.problems, arguments.exhaustive_seconds) == (24, 240.0)
