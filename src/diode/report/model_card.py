"""What a package of models says of them, for people: `MODEL_CARD.md`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from diode.model.card import ModelCard
from diode.model.registry import ModelPointer
from diode.report.ranking_result import SHOWN_AT, Figures, RankingResult, RegimeFigures
from diode.report.words import count, counted, microseconds, percent

MODEL_CARD_NAME: Final = "MODEL_CARD.md"
_HARDEST: Final = 5
_BOUNDS: Final = ("oracle", "first round")
"""Baselines that measure everything: no model is to beat them."""


def model_card(pointers: Sequence[ModelPointer], rankings: Mapping[str, RankingResult]) -> str:
    """Markdown. `rankings` by the digest of the weights that were judged; a model without one is said to have none."""
    lines = [
        "# Model card",
        "",
        "Which kernel of a matrix product is the fastest, these models predict for `diode`, which has `torch.compile` "
        "choose by it. `diode describe-models` writes this page; the words and rules of its figures are in "
        "docs/evaluation.md of the project. Beside each file of weights lies its card (`.json`) with all that a "
        "program needs to know of it.",
        "",
    ]
    for pointer in pointers:
        lines += _model(pointer, rankings.get(pointer.card.weights_sha256))
    return "\n".join(lines).rstrip() + "\n"


def _model(pointer: ModelPointer, ranking: RankingResult | None) -> list[str]:
    card = pointer.card
    lines = [f"## {card}", ""]
    facts = [
        ("file", f"`{pointer.path.name}`, {count(pointer.path.stat().st_size)} bytes"),
        ("SHA-256", f"`{card.weights_sha256}`"),
        ("type", _type(card)),
        ("purpose", card.purpose),
        ("ops", ", ".join(card.ops)),
        ("precisions", ", ".join(card.precisions)),
        ("kernels", ", ".join(f"`{template}`" for template in card.templates)),
        ("needs", ", ".join(pointer.dependencies) or "nothing beyond diode"),
    ]
    lines += _table(("", ""), facts)
    lines += ["### Trained on", ""]
    for device in card.hardware:
        capability = f", capability {'.'.join(map(str, device.capability))}" if device.capability else ""
        multiprocessors = f", {device.sm_count} SMs" if device.sm_count else ""
        lines.append(f"- {device.name}{capability}{multiprocessors}")
    versions = [("torch", card.torch), ("triton", card.triton), ("diode", (card.diode,)), ("commit", (card.commit,))]
    lines += [f"- {name} {', '.join(known)}" for name, known in versions if any(known)]
    if card.trained:
        lines.append(f"- {card.trained}, seed {card.seed}")
    if card.command:
        lines.append(f"- by `{card.command}`")
    lines.append("")
    if card.data:
        data = [
            (f"`{file.name}`", count(file.problems), count(file.measurements), f"`{file.sha256[:12]}`")
            for file in card.data
        ]
        lines += _table(("data", "problems", "measurements", "SHA-256"), data)
    if card.metrics:
        lines += ["### On what training held back", ""]
        lines += _table(("", ""), [(name.replace("_", " "), f"{value:.4g}") for name, value in card.metrics.items()])
    lines += _judged(ranking) if ranking is not None else _not_judged()
    lines += _weak_spots(card, ranking)
    return lines


def _type(card: ModelCard) -> str:
    if card.network is None:
        return f"{card.type}, gradient-boosted trees"
    network = card.network
    shape = f"{counted(network.members, 'member')} of {counted(network.layers, 'layer')}, {network.hidden} wide"
    return f"{card.type}, {shape}" + (f", behind a screen {card.screen.hidden} wide" if card.screen else "")


def _judged(ranking: RankingResult) -> list[str]:
    versions = ((name, getattr(ranking, name)) for name in ("torch", "triton", "driver", "commit"))
    lines = [
        "### How good",
        "",
        f"On {counted(ranking.test_problems, 'problem')} that it was not trained on, with {count(ranking.choices)} "
        f"measured choices: {ranking.gpu}, {', '.join(f'{name} {value}' for name, value in versions if value)}"
        + (f", {ranking.taken}" if ranking.taken else "")
        + (f", by `{ranking.command}`" if ranking.command else "")
        + ". Efficiency is in percent of the oracle's speed, with the best of the first k choices; regret is what is "
        "lost to the oracle.",
        "",
    ]
    rows = [_regime_row(name, found) for name, found in ranking.by_regime.items()]
    floor = "" if ranking.noise_floor is None else percent(ranking.noise_floor.p95)
    rows.append(("all", count(ranking.test_problems), *_figures(ranking), floor))
    titles = ("regime", "problems", "@1", "@3", "@8", "regret p95 @1", "@3", "worst @3", "noise p95")
    lines += _table(titles, rows)
    beside = [("this model", *_efficiencies(ranking))]
    beside += [(name, *_efficiencies(found)) for name, found in ranking.baselines.items()]
    return lines + _table(("efficiency of", "@1", "@3", "@8"), beside)


def _not_judged() -> list[str]:
    return ["### How good", "", "Not judged yet on problems that were kept apart from training.", ""]


def _weak_spots(card: ModelCard, ranking: RankingResult | None) -> list[str]:
    lines = ["### Known weak spots", ""]
    if ranking is not None:
        behind = {
            name: found
            for name, found in ranking.by_regime.items()
            if found.regret_p95["3"] > ranking.regret_p95["3"] or found.efficiency["1"] < ranking.efficiency["1"]
        }
        for name, found in sorted(behind.items(), key=lambda item: item[1].efficiency["1"]):
            lines.append(
                f"- {name}: {found.efficiency['1']:.2f}% with one choice, {found.efficiency['3']:.2f}% with three "
                f"({ranking.efficiency['1']:.2f}% and {ranking.efficiency['3']:.2f}% over all)"
            )
        rivals = {name: found for name, found in ranking.baselines.items() if name not in _BOUNDS}
        lines += [
            f"- {name} is better with one choice: {found.efficiency['1']:.2f}%"
            for name, found in rivals.items()
            if found.efficiency["1"] > ranking.efficiency["1"]
        ]
    lines.append(
        f"- It knows {', '.join(card.ops)} in {', '.join(card.precisions)} on "
        f"{', '.join(device.name for device in card.hardware)}. Everything else is left to Inductor."
    )
    lines.append("")
    if ranking is not None and ranking.worst:
        hardest = [
            (
                f"`{found.problem}`",
                found.regime,
                f"`{found.chosen}`",
                "fails" if found.chosen_us is None else microseconds(found.chosen_us),
                f"`{found.oracle}`",
                microseconds(found.oracle_us),
            )
            for found in ranking.worst[:_HARDEST]
        ]
        lines += ["Where the first choice loses most:", ""]
        lines += _table(("problem", "regime", "chosen", "its time", "oracle", "its time"), hardest)
    return lines


def _regime_row(name: str, found: RegimeFigures) -> tuple[str, ...]:
    floor = "" if found.noise_floor is None else percent(found.noise_floor.p95)
    return (name, count(found.problems), *_figures(found), floor)


def _figures(found: Figures) -> tuple[str, ...]:
    regrets = (found.regret_p95["1"], found.regret_p95["3"], found.regret_worst["3"])
    return (*_efficiencies(found), *map(percent, regrets))


def _efficiencies(found: Figures) -> tuple[str, ...]:
    return tuple(f"{found.efficiency[k]:.2f}%" for k in SHOWN_AT)


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    head = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    return [*head, *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows), ""]


def described_digests(path: Path) -> set[str]:
    """The digests of all weights that a model card speaks of; none where there is no card."""
    if not path.exists():
        return set()
    words = path.read_text().replace("`", " ").split()
    return {word for word in words if len(word) == 64 and set(word) <= set("0123456789abcdef")}
