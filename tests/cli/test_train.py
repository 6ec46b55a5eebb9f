"""`diode train`: from files to a model, with every flag heard."""

from __future__ import annotations

import itertools
import re
import signal
import time
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.cli.conftest import TINY
from tests.cli.running import Done, diode_here, finished, in_terminal, refusal, start_diode

from diode.model.card import ModelCard, read_card
from diode.model.fitting import FitSettings
from diode.model.wrapper import ModelWrapper
from diode.storage import read_dataset, write_dataset

QUICK = ("--num-epochs", 1, "--hidden-size", 4, "--layers", 1, "--members", 1)
EPOCH = re.compile(r"network 1/1, epoch (\d+)/\d+: .* regret ([\d.]+)% with 1, ([\d.]+)% with 3")


def trained(folder: Path, *words: object) -> ModelCard:
    done = diode_here(folder, "train", *words)
    assert done.code == 0, done.err
    (model,) = [Path(str(word)) for last, word in itertools.pairwise(words) if last == "--model"]
    return read_card(model.with_suffix(".json"))


def test_it_shows_losses_and_regret_and_says_what_it_made(training: tuple[Path, Done]) -> None:
    model, done = training
    first, *epochs = done.err.splitlines()
    assert re.fullmatch(r"training deep on \d+ measurements of 21 problems", first)
    assert [line.partition(":")[0] for line in epochs] == [
        f"network {member}/2, epoch {epoch}/4" for member in (1, 2) for epoch in (1, 2, 3, 4)
    ]
    for line in epochs:
        assert re.search(r": loss [\d.]+, validation [\d.]+, regret [\d.]+% with 1, [\d.]+% with 3$", line)
    assert re.fullmatch(
        re.escape(f"{model}: diode-matmul 1, ") + r"[\d.]+ MB, in \d+s; held_out_rmse_log .*\n", done.out
    )
    card = ModelWrapper(model).card
    assert [source.name for source in card.data] == ["training.parquet"]
    assert card.command.startswith("diode train --dataset training.parquet --model ")
    assert not model.with_name(model.name + ".checkpoint").exists()


def test_equal_seeds_make_equal_models_and_other_seeds_others(h200: Path, model: Path, tmp_path: Path) -> None:
    for name, seed in (("same", 42), ("other", 7)):
        trained_again = diode_here(
            h200, "--seed", seed, "train", "--dataset", "training.parquet", "--model", tmp_path / f"{name}.safetensors",
            *TINY,
        )  # fmt: skip
        assert trained_again.code == 0
    assert (tmp_path / "same.safetensors").read_bytes() == model.read_bytes()
    assert (tmp_path / "other.safetensors").read_bytes() != model.read_bytes()
    assert read_card(tmp_path / "other.json").seed == 7


def test_every_number_that_is_said_is_the_one_it_trains_with(h200: Path, tmp_path: Path) -> None:
    words = (
        *("--dataset", "training.parquet", "--model", tmp_path / "a.pt", "--model-type", "base"),
        *("--batch-size", 5, "--num-epochs", 2, "--learning-rate", 0.002, "--weight-decay", 0.25, "--patience", 3),
        *("--hidden-size", 12, "--layers", 3, "--members", 2, "--name", "mine", "--model-version", "7"),
    )
    card = trained(h200, *words)
    assert (card.name, card.version, card.type) == ("mine", "7", "base")
    said = {
        "batch_size": 5,
        "epochs": 2,
        "learning_rate": 0.002,
        "weight_decay": 0.25,
        "patience": 3,
        "hidden": 12,
        "layers": 3,
        "members": 2,
    }
    assert said.items() <= card.settings.items()
    assert card.network is not None
    assert (card.network.type, card.network.hidden, card.network.layers, card.network.members) == ("base", 12, 3, 2)


def test_what_is_not_said_is_what_makes_the_best_model(model: Path) -> None:
    usual = FitSettings().network
    card = read_card(model.with_suffix(".json"))
    assert card.type == "deep"
    assert (card.settings["learning_rate"], card.settings["weight_decay"]) == (usual.learning_rate, usual.weight_decay)
    assert (card.settings["patience"], card.settings["seed"]) == (usual.patience, 42)


def test_weight_decay_and_learning_rate_change_the_weights(h200: Path, tmp_path: Path) -> None:
    weights = set()
    for number, flag in enumerate([(), ("--weight-decay", 0.9), ("--learning-rate", 0.0005), ("--batch-size", 4)]):
        model = tmp_path / f"{number}.safetensors"
        trained(h200, "--dataset", "training.parquet", "--model", model, *QUICK, *flag)
        weights.add(model.read_bytes())
    assert len(weights) == 4


def test_a_folder_of_three_formats_is_learned_from_and_kinds_of_files_can_be_picked(
    mixed: Path, tmp_path: Path
) -> None:
    def files_of(*words: object) -> list[str]:
        card = trained(mixed, "--data-dir", ".", "--model", tmp_path / "a.safetensors", *QUICK, *words)
        return [source.name for source in card.data]

    assert files_of() == ["a.parquet", "b.json", "c.msgpack"]
    assert files_of("--file-extensions", "msgpack") == ["c.msgpack"]
    assert files_of("--file-extensions", "json,.parquet") == ["a.parquet", "b.json"]


@pytest.mark.parametrize("name", ["a.parquet", "b.json", "c.msgpack"])
def test_one_file_of_any_format_is_enough(name: str, mixed: Path, tmp_path: Path) -> None:
    card = trained(mixed, "--dataset", name, "--model", tmp_path / "a.pt", *QUICK)
    assert [source.name for source in card.data] == [name]


def test_only_the_hardware_and_the_ops_that_are_named_are_learned_from(mixed: Path, tmp_path: Path) -> None:
    folder = ("--data-dir", mixed, "--model", tmp_path / "a.safetensors", *QUICK)
    card = trained(mixed, *folder, "--hardware", "NVIDIA H100")
    assert ([gpu.name for gpu in card.hardware], card.ops) == (["NVIDIA H100"], ("addmm",))
    card = trained(mixed, *folder, "--ops", "mm")
    assert ([gpu.name for gpu in card.hardware], card.ops) == (["NVIDIA H200"], ("mm",))
    card = trained(mixed, *folder, "--ops", "mm,addmm", "--hardware", "NVIDIA H200, NVIDIA H100")
    assert ({gpu.name for gpu in card.hardware}, card.ops) == ({"NVIDIA H200", "NVIDIA H100"}, ("addmm", "mm"))


def test_a_folder_may_hold_the_models_made_of_it(mixed: Path, tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes((mixed / "a.parquet").read_bytes())
    for _ in range(2):
        card = trained(tmp_path, "--data-dir", tmp_path, "--model", tmp_path / "model.pt", *QUICK)
        assert [source.name for source in card.data] == ["a.parquet"]


def test_training_ends_early_with_the_weights_of_its_best_epoch(h200: Path, tmp_path: Path) -> None:
    # A rate this high ruins what the first epochs learned.
    words = ("train", "--dataset", "training.parquet", "--learning-rate", 0.3, "--members", 1, "--hidden-size", 8)
    words = (*words, "--num-epochs", 5, "--patience", 2)
    done = diode_here(h200, *words, "--model", tmp_path / "a.safetensors")
    epochs = [(int(epoch), float(one), float(three)) for epoch, one, three in EPOCH.findall(done.err)]
    best = min(epochs, key=lambda epoch: epoch[1] + epoch[2])
    assert epochs[-1][0] == best[0] + 2 < 5
    card = read_card(tmp_path / "a.json")
    assert card.metrics["held_out_regret_at_1"] == pytest.approx(best[1] / 100, abs=1e-4)
    # the same, never told to go on after its best epoch
    shorter = diode_here(h200, *words, "--patience", 1, "--model", tmp_path / "b.safetensors")
    assert shorter.err.count("epoch") == len(epochs) - 1
    assert network_bytes(tmp_path / "b.safetensors") == network_bytes(tmp_path / "a.safetensors")


def network_bytes(path: Path) -> dict[str, bytes]:
    """Of the network itself; the screen beside it has epochs of its own."""
    return {name: value.tobytes() for name, value in load_file(path).items() if not name.startswith("screen")}


def test_tensorboard_shows_losses_regret_and_a_rate_that_rises_and_falls(h200: Path, tmp_path: Path) -> None:
    words = ("--dataset", "training.parquet", "--model", tmp_path / "a.pt", "--members", 1, "--hidden-size", 4)
    trained(
        h200, *words, "--num-epochs", 12, "--learning-rate", 0.01, "--batch-size", 2, "--tensorboard", tmp_path / "logs"
    )
    logs = EventAccumulator(str(tmp_path / "logs"))
    logs.Reload()
    assert sorted(logs.Tags()["scalars"]) == [
        f"network1/{name}" for name in ("learning_rate", "loss/training", "loss/validation", "regret/1", "regret/3")
    ]
    rates = [event.value for event in logs.Scalars("network1/learning_rate")]
    assert len(rates) == 12
    highest = rates.index(max(rates))
    assert rates[highest] == pytest.approx(0.01, rel=0.02)
    assert rates[:highest] == sorted(rates[:highest])
    assert rates[highest:] == sorted(rates[highest:], reverse=True)
    assert rates[-1] < 0.1 * max(rates)
    losses = [event.value for event in logs.Scalars("network1/loss/training")]
    assert losses[-1] < losses[0]


def test_trees_are_a_model_too(h200: Path, tmp_path: Path) -> None:
    card = trained(
        h200, "--dataset", "training.parquet", "--model", tmp_path / "a.txt", "--model-type", "gbdt", "--num-epochs", 5
    )
    assert (card.type, card.settings["trees"]) == ("gbdt", 5)
    assert ModelWrapper(tmp_path / "a.txt").card == card


@pytest.fixture(scope="module")
def long_training(h200: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[object, ...], bytes]:
    """Words that take some seconds, and the model that they make when nobody interrupts."""
    words = ("train", "--dataset", h200 / "training.parquet", "--members", 1, "--hidden-size", 8)
    words = (*words, "--num-epochs", 150, "--batch-size", 2, "--patience", 150)
    model = tmp_path_factory.mktemp("whole") / "a.safetensors"
    done = diode_here(h200, *words, "--model", model)
    assert (done.code, "from where it was stopped" in done.err) == (0, False)
    return words, model.read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_training_that_was_stopped_goes_on_and_ends_with_the_same_model(
    number: signal.Signals, long_training: tuple[tuple[object, ...], bytes], tmp_path: Path
) -> None:
    words, whole = long_training
    words = (*words, "--model", "a.safetensors")
    checkpoint = tmp_path / "a.safetensors.checkpoint"
    process = start_diode(tmp_path, *words)
    while not checkpoint.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    stopped = finished(process)
    assert stopped.code == (130 if number is signal.SIGINT else -number)
    assert ("stopped: run the same command again to go on" in stopped.err) == (number is signal.SIGINT)
    assert sorted(tmp_path.iterdir()) == [checkpoint]
    again = diode_here(tmp_path, *words)
    assert again.code == 0
    assert ", from where it was stopped" in again.err.splitlines()[0]
    assert not checkpoint.exists()
    assert (tmp_path / "a.safetensors").read_bytes() == whole


def test_wrong_words_are_one_line_and_make_nothing(mixed: Path, tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes((mixed / "a.parquet").read_bytes())
    (tmp_path / "folder.pt").mkdir()
    data, model = ("--dataset", "a.parquet"), ("--model", "m.pt")
    wrong: list[tuple[tuple[object, ...], str]] = [
        ((*data,), "Missing option '--model'"),
        ((*model,), "give either --dataset FILE or --data-dir FOLDER"),
        ((*model, *data, "--data-dir", "."), "give either --dataset FILE or --data-dir FOLDER"),
        ((*model, *data, "--file-extensions", "json"), "--file-extensions picks files of --data-dir"),
        ((*model, "--data-dir", ".", "--file-extensions", "csv"), "extension '.csv' is none of .json"),
        ((*data, "--model", "m.onnx"), "m.onnx: a model of type deep ends in .safetensors or .pt"),
        ((*data, "--model", "m.pt", "--model-type", "gbdt"), "m.pt: a model of type gbdt ends in .txt"),
        ((*data, "--model", "missing/m.pt"), "missing/m.pt: its folder does not exist"),
        ((*data, "--model", "folder.pt"), "folder.pt: is a folder"),
        ((*data, *model, "--model-type", "forest"), "'forest' is not one of"),
        ((*data, *model, "--num-epochs", 0), "Invalid value for '--num-epochs'"),
        ((*data, *model, "--train-device", "tpu"), "--train-device tpu: use cpu, cuda, or cuda:1"),
        ((*data, *model, "--ops", "conv"), "--ops 'conv' leave no measurement: the data are of NVIDIA H200, ops addmm"),
        ((*data, *model, "--hardware", "H100"), "--hardware 'H100' --ops '' leave no measurement"),
        ((*data, "--model", "m.txt", "--model-type", "gbdt", "--hidden-size", 8, "--tensorboard", "logs"),
         "--model-type gbdt: trees have no --hidden-size, --tensorboard"),
    ]  # fmt: skip
    for words, message in wrong:
        assert message in refusal(tmp_path, "train", *words, code=2)


def test_what_cannot_be_read_or_run_on_is_one_line_and_makes_nothing(tmp_path: Path) -> None:
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 torn")
    (tmp_path / "empty").mkdir()
    model = ("--model", "m.pt")
    assert "torn.parquet" in refusal(tmp_path, "train", *model, "--dataset", "torn.parquet")
    assert "none.json: cannot be read: No such file" in refusal(tmp_path, "train", *model, "--dataset", "none.json")
    assert "empty: holds no .json, .msgpack, .parquet file" in refusal(tmp_path, "train", *model, "--data-dir", "empty")
    assert "this machine has 0 CUDA devices" in refusal(
        tmp_path, "train", *model, "--dataset", "torn.parquet", "--train-device", "cuda"
    )


def test_too_few_problems_and_a_file_in_place_of_a_log_folder_are_told(mixed: Path, tmp_path: Path) -> None:
    measured = read_dataset(mixed / "a.parquet")
    write_dataset(measured.select(measured.columns.problem_id == 0), tmp_path / "one.json")
    (tmp_path / "logs").write_text("a file")
    done = diode_here(tmp_path, "train", "--model", "m.pt", "--dataset", "one.json")
    assert (done.code, done.out) == (2, "")
    assert "1 measured GEMM problems are too few to train on" in done.err
    words = ("--dataset", mixed / "a.parquet", "--model", "m.pt", "--tensorboard", "logs")
    done = diode_here(tmp_path, "train", *words)
    assert (done.code, done.out) == (1, "")
    assert "error: --tensorboard logs: cannot be written: File exists; name a folder\n" in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs", "one.json"]


def test_a_terminal_shows_a_bar_with_losses_and_regret(h200: Path, tmp_path: Path) -> None:
    words = ("--dataset", h200 / "training.parquet", "--model", tmp_path / "a.pt", *QUICK, "--num-epochs", 3)
    done = in_terminal(tmp_path, "train", *words)
    assert done.code == 0
    assert re.search(r"network 1/1 \S+ 3/3 \S+ loss [\d.]+, validation [\d.]+, regret [\d.]+% with 1", done.out)
    assert "epoch" not in done.out
