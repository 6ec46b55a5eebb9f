"""Draws the picture of the README from a result file: efficiency against the number of choices, model and baselines.

Takes what benchmarks/ranking.py wrote of the test set where that is there, else what cross-validation wrote of training
data. Usage: python benchmarks/efficiency_picture.py
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import matplotlib

from diode.model.evaluation import AtK, Evaluation
from diode.report.charts import efficiency_chart
from diode.report.style import RC
from diode.storage.atomic import write_atomically

RESULTS: Final = Path("benchmarks/results")
RANKING: Final = RESULTS / "ranking_h200.json"
CROSS_VALIDATION: Final = RESULTS / "cross_validation_h200.json"
OUTPUT: Final = Path("docs/efficiency.svg")
MOST_SHOWN: Final = 20
SHOWN: Final = ("deep", "gbdt", "public architecture", "static table", "library", "random")
"""Of a cross-validation, which has variants too."""


def rankings_of(result: dict[str, Any]) -> dict[str, Evaluation]:
    """The model first, then what it has to beat."""
    if "runs" not in result:
        found = {"model": result, **result["baselines"]}
        return {name: evaluation(entry["efficiency"]) for name, entry in found.items() if name != "oracle"}
    # Runs that judge the same problems can stand side by side.
    first = next(run for run in result["runs"] if "deep" in run["models"])
    alike = [run for run in result["runs"] if all(run[key] == first[key] for key in ("dataset", "split", "judged"))]
    models = {name: entry for run in reversed(alike) for name, entry in run["models"].items()}
    return {"model" if n == "deep" else n: evaluation(models[n]["efficiency"]) for n in SHOWN if n in models}


def evaluation(efficiency: Mapping[str, float]) -> Evaluation:
    """Only what the chart draws."""
    nothing = (0.0, 0.0, 0.0, 0.0)
    entries = tuple(AtK(int(k), 0, value, *nothing) for k, value in efficiency.items() if int(k) <= MOST_SHOWN)
    return Evaluation(0, entries, {}, {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--result", type=Path, default=RANKING if RANKING.exists() else CROSS_VALIDATION)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    arguments = parser.parse_args()
    with matplotlib.rc_context(RC):
        picture = efficiency_chart(rankings_of(json.loads(arguments.result.read_text())), None)
    write_atomically(arguments.output, picture.svg())
    print(f"{arguments.output}: {picture.description}")


if __name__ == "__main__":
    main()
