"""The command that makes a folder of models a package's: describe-models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diode.cli.console import out
from diode.errors import FileAccessError, FileFormatError, UsageError
from diode.storage.atomic import write_atomically

if TYPE_CHECKING:
    from diode.report.ranking_result import RankingResult


def describe_models(
    folder: Annotated[Path, typer.Argument(help="A folder with models, each with its card beside it.")],
    ranking: Annotated[
        list[Path] | None, typer.Option(help="What benchmarks/ranking.py wrote of one of them. May be repeated.")
    ] = None,
) -> None:
    """Write the manifest and the model card of a folder of models, as a package of models has them."""
    from diode.model.registry import ModelRegistry
    from diode.report.model_card import MODEL_CARD_NAME, model_card
    from diode.report.ranking_result import read_ranking

    if not folder.is_dir():
        raise FileAccessError(f"{folder}: no such folder; name one that holds models")
    registry = ModelRegistry()
    registry.add(folder)
    if registry.problems:
        raise FileFormatError("; ".join(registry.problems.values()))
    if not registry.pointers:
        raise UsageError(f"{folder}: holds no model; diode train writes one")
    digests = {pointer.card.weights_sha256 for pointer in registry.pointers}
    rankings: dict[str, RankingResult] = {}
    for path in ranking or []:
        found = read_ranking(path)
        if found.model.sha256 not in digests:
            raise UsageError(
                f"{path}: judges {found.model.name} with the weights {found.model.sha256[:12]}, "
                f"and no model in {folder} has them: run benchmarks/ranking.py on one that is there"
            )
        rankings[found.model.sha256] = found
    for pointer in registry.pointers:
        _ = pointer.load().model  # what cannot be loaded is not to be described
    page = model_card(registry.pointers, rankings)
    manifest = registry.write_manifest(folder)
    write_atomically(folder / MODEL_CARD_NAME, page.encode())
    out.print(f"{manifest} and {MODEL_CARD_NAME}: {', '.join(str(p.card) for p in registry.pointers)}", markup=False)
