"""From a dataset to an artifact: trains a model of any type, describes it, writes it."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec
import numpy as np

from diode.errors import UsageError
from diode.features import COLUMNS, SCHEMA_VERSION
from diode.model.card import ModelCard, TrainingData, card_path, write_card
from diode.model.checkpoint import Checkpoint
from diode.model.gbdt import TreeSettings, train_trees
from diode.model.training import EpochReport, HeldOut, TrainedNetwork, TrainingSettings, train_network
from diode.model.truth import Truth
from diode.model.weights import GBDT_SUFFIX, TENSOR_SUFFIXES, encode_tensors
from diode.model.wrapper import SCREEN_PREFIX
from diode.storage.atomic import write_atomically
from diode.types import Choice, Dataset, MMShape

ModelType = Literal["deep", "base", "gbdt"]
MODEL_TYPES: Final[tuple[ModelType, ...]] = get_args(ModelType)
_NEAR: Final = 0.3
"""Log regret up to which the calibration looks at errors: decisions are made among the near-best."""


@dataclass(frozen=True)
class FitSettings:
    type: ModelType = "deep"
    network: TrainingSettings = field(default_factory=TrainingSettings)
    trees: TreeSettings = field(default_factory=TreeSettings)
    screen_hidden: int = 24
    """Width of the small network that spares the large one the hopeless choices; 0 for none."""
    name: str = "diode-matmul"
    version: str = "1"


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A model and its card, whose digest is filled in when it is written."""

    card: ModelCard
    encode: Callable[[str], bytes]
    """The weights for a suffix."""
    epochs: tuple[EpochReport, ...] = ()


def weights_suffixes(type: ModelType) -> tuple[str, ...]:
    return (GBDT_SUFFIX,) if type == "gbdt" else TENSOR_SUFFIXES


def check_model_path(path: Path, type: ModelType) -> None:
    """Refuses before training what could not be written after."""
    suffixes = weights_suffixes(type)
    if path.suffix not in suffixes:
        raise UsageError(f"{path}: a model of type {type} ends in {' or '.join(suffixes)}; name it so")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: its folder does not exist; create it or name another place")
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name another place")


def fit(
    dataset: Dataset,
    settings: FitSettings,
    data: Sequence[TrainingData] = (),
    report: Callable[[EpochReport], None] = lambda report: None,
    checkpoint: Checkpoint | None = None,
) -> FittedModel:
    truth = Truth.of(dataset)
    if settings.type == "gbdt":
        trees, held_out = train_trees(truth, settings.trees)
        card = _card(dataset, truth, settings, held_out, (), data)
        return FittedModel(card, lambda suffix: trees.encode())
    network_settings = replace(settings.network, type=settings.type)
    trained = train_network(truth, network_settings, report, checkpoint)
    parameters = {name: value.numpy() for name, value in trained.network.state_dict().items()}
    card = _card(dataset, truth, settings, trained.held_out, trained.epochs, data)
    screen = None
    if settings.screen_hidden:
        screened = _train_screen(truth, network_settings, settings.screen_hidden)
        screen = screened.network.spec
        parameters |= {SCREEN_PREFIX + name: value.numpy() for name, value in screened.network.state_dict().items()}
    card = msgspec.structs.replace(card, network=trained.network.spec, screen=screen)
    return FittedModel(card, lambda suffix: encode_tensors(parameters, suffix), trained.epochs)


def save_model(fitted: FittedModel, path: Path) -> ModelCard:
    """Writes the weights and, last, the card that names them: what is read is never half of a pair."""
    content = fitted.encode(path.suffix)
    card = msgspec.structs.replace(fitted.card, weights_sha256=hashlib.sha256(content).hexdigest())
    write_atomically(path, content)
    write_card(card, card_path(path))
    return card


def _train_screen(truth: Truth, settings: TrainingSettings, hidden: int) -> TrainedNetwork:
    """It need not order well, only keep the good: less of everything."""
    small = replace(settings, type="base", hidden=hidden, layers=1, members=1, epochs=max(1, settings.epochs // 2))
    return train_network(truth, small)


def describe(dataset: Dataset, truth: Truth, type: str = "", name: str = "", version: str = "") -> ModelCard:
    """A card that says what a model of these measurements knows; how good it is, is for others to fill in."""
    environments = dataset.environments
    problems = [measured.problem for measured in truth.problems]
    choices = [truth.choices[n] for n in sorted({int(n) for m in truth.problems for n in m.choice_ids})]
    return ModelCard(
        name=name,
        version=version,
        type=type,
        feature_schema=SCHEMA_VERSION,
        columns=COLUMNS,
        sigma_scale=1.0,
        weights_sha256="0" * 64,
        hardware=tuple(dict.fromkeys(environment.hardware for environment in environments)),
        ops=_distinct(problem.op for problem in problems),
        precisions=_distinct(map(_precision, problems)),
        templates=_distinct(map(_template, choices)),
        torch=_distinct(environment.torch for environment in environments),
        triton=_distinct(environment.triton for environment in environments),
        template_hashes=tuple(sorted({pair for row in environments for pair in row.template_hashes})),
        diode=next((environment.diode for environment in reversed(environments) if environment.diode), ""),
        trained=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    )


def _card(
    dataset: Dataset,
    truth: Truth,
    settings: FitSettings,
    held_out: HeldOut,
    epochs: Sequence[EpochReport],
    data: Sequence[TrainingData],
) -> ModelCard:
    return msgspec.structs.replace(
        describe(dataset, truth, settings.type, settings.name, settings.version),
        sigma_scale=sigma_scale_of(held_out),
        data=tuple(data),
        seed=settings.network.seed,
        settings=_plain_settings(settings),
        metrics=_metrics(held_out, epochs),
    )


def sigma_scale_of(held_out: HeldOut) -> float:
    """So that two thirds of the errors near the front are within one sigma."""
    near = held_out.log_regret < _NEAR
    if not near.any():
        return 1.0
    return max(float(np.quantile(np.abs(held_out.log_error[near]) / held_out.sigma[near], 0.683)), 1e-3)


def _metrics(held_out: HeldOut, epochs: Sequence[EpochReport]) -> dict[str, float]:
    near = held_out.log_regret < _NEAR
    metrics = {"held_out_rmse_log": float(np.sqrt(np.mean(np.square(held_out.log_error))))}
    if near.any():
        metrics["held_out_rmse_log_near"] = float(np.sqrt(np.mean(np.square(held_out.log_error[near]))))
    best = [entry for entry in epochs if entry.best]
    last_best = {entry.member: entry for entry in best}
    if last_best:
        metrics["held_out_regret_at_1"] = float(np.mean([entry.regret_at_1 for entry in last_best.values()]))
        metrics["held_out_regret_at_3"] = float(np.mean([entry.regret_at_3 for entry in last_best.values()]))
    return metrics


def _plain_settings(settings: FitSettings) -> dict[str, bool | int | float | str | None]:
    if settings.type == "gbdt":
        return dict(asdict(settings.trees))
    loss = {f"loss_{name}": value for name, value in asdict(settings.network.loss).items()}
    plain = {name: value for name, value in asdict(settings.network).items() if name not in ("loss", "type")}
    return {**plain, **loss, "screen_hidden": settings.screen_hidden}


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


def _precision(problem: MMShape) -> str:
    return "tf32" if problem.allow_tf32 else problem.a.dtype


def _template(choice: Choice) -> str:
    template: str | None = getattr(choice, "template", None)
    return template or str(choice).split(" ", 1)[0]
