"""The model that serves a device: found, judged by what it was trained on, loaded when a GEMM first needs it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec

from diode.errors import DiodeError, SelectionError
from diode.integration.fallback import say_once
from diode.model.card import ModelCard
from diode.model.registry import ModelPointer, ModelRegistry
from diode.model.wrapper import ModelWrapper
from diode.settings import OnMismatch
from diode.types import Hardware

PURPOSE: Final = "matmul"


def named_or_at_hand(path: Path | None) -> ModelRegistry:
    if path is None:
        return ModelRegistry.at_hand()
    registry = ModelRegistry()
    registry.add(path, "model_path")
    return registry


def why_no_model(registry: ModelRegistry) -> str:
    if registry.problems:
        return f"no model can be read: {'; '.join(registry.problems.values())}"
    return "no model is at hand: install torch-diode, set DIODE_MODEL_PATH, or give model_path"


@dataclass(frozen=True)
class Software:
    """What a kernel's time depends on beside the device."""

    torch: str
    triton: str
    template_hashes: tuple[tuple[str, str], ...] = ()


class ModelSource:
    """One model that was named, or the best of those at hand for each device and op."""

    def __init__(self, path: str | Path | None, device: str, on_mismatch: OnMismatch | None) -> None:
        self._path = None if path is None else Path(path)
        self._device = device
        self._on_mismatch = on_mismatch
        self._lock = threading.RLock()
        self._loaded: dict[Path, ModelWrapper] = {}

    @cached_property
    def registry(self) -> ModelRegistry:
        return named_or_at_hand(self._path)

    @cached_property
    def digest(self) -> str:
        """Equal for equal models; part of the key of torch's caches, so it reads the cards and no weights."""
        cards = sorted(pointer.card.weights_sha256 for pointer in self.registry.pointers)
        told = (*cards, *sorted(self.registry.problems), self._on_mismatch or "")
        return hashlib.sha256("\n".join(told).encode()).hexdigest()

    def model_for(self, hardware: Hardware, op: str, software: Software) -> ModelWrapper:
        """The loaded model, or a `SelectionError` that says why there is none."""
        found = self.registry.find(purpose=PURPOSE, hardware=hardware)
        if found is None:
            raise SelectionError("fallback_no_model", why_no_model(self.registry))
        known = self.registry.find(purpose=PURPOSE, hardware=hardware, op=op)
        if known is None or (found.same_hardware and not known.same_hardware):
            raise SelectionError(
                "fallback_unsupported_op",
                f"{found.pointer.card} knows {', '.join(found.pointer.card.ops)}, not {op}: "
                "train a model on that op for it to be chosen by one",
            )
        self._judge(known.pointer.card, hardware, known.same_hardware, software)
        return self._load(known.pointer)

    def _judge(self, card: ModelCard, hardware: Hardware, same_hardware: bool, software: Software) -> None:
        trained = ", ".join(device.name for device in card.hardware)
        if not same_hardware:
            message = f"{card} was trained on {trained}, and this is {hardware.name}"
            if self._on_mismatch in (None, "off"):
                raise SelectionError(
                    "fallback_hardware_mismatch", f"{message}: train one here, or set DIODE_ON_MISMATCH=warn to use it"
                )
            if self._on_mismatch == "warn":
                say_once(f"hardware {card.weights_sha256} {hardware.name}", f"{message}; it is used all the same")
        other = _other_software(card, software)
        if not other:
            return
        message = f"{card} was trained with {other}"
        if self._on_mismatch == "off":
            raise SelectionError(
                "fallback_hardware_mismatch", f"{message}: train one with this software, or unset DIODE_ON_MISMATCH"
            )
        if self._on_mismatch != "use":
            say_once(
                f"software {card.weights_sha256}",
                f"{message}; it is used all the same (DIODE_ON_MISMATCH=off refuses it, =use says nothing)",
            )

    def _load(self, pointer: ModelPointer) -> ModelWrapper:
        with self._lock:
            wrapper = self._loaded.get(pointer.path)
            if wrapper is None:
                wrapper = pointer.load(self._device)
                try:
                    _ = wrapper.card, wrapper.model
                except DiodeError as error:
                    raise SelectionError("fallback_no_model", str(error)) from error
                except Exception as error:  # whatever a damaged file makes its reader raise
                    raise SelectionError(
                        "fallback_no_model", f"{pointer.path}: cannot be loaded: {type(error).__name__}: {error}"
                    ) from error
                self._loaded[pointer.path] = wrapper
            return wrapper


def as_trained(hardware: Hardware, card: ModelCard) -> Hardware:
    """The device at hand, with what its driver does not tell taken from the record that the model was trained on."""
    known = next((device for device in card.hardware if device.name == hardware.name), None)
    if known is None:
        return hardware
    missing = {
        name: getattr(known, name) for name in Hardware.__struct_fields__ if getattr(hardware, name) in (None, ())
    }
    return msgspec.structs.replace(hardware, **missing)


def _other_software(card: ModelCard, software: Software) -> str:
    """In what the software at hand differs from that of the training; empty where it does not."""
    differences = []
    if card.torch and not _has_release(card.torch, software.torch):
        differences.append(f"torch {', '.join(card.torch)} (this is {software.torch})")
    if card.triton and not _has_release(card.triton, software.triton):
        differences.append(f"triton {', '.join(card.triton)} (this is {software.triton or 'none'})")
    here = dict(software.template_hashes)
    changed = sorted({uid for uid, _ in card.template_hashes if uid in here} - _unchanged(card, here))
    if changed and not differences:
        differences.append(f"other sources of {', '.join(changed)}")
    return " and ".join(differences)


def _unchanged(card: ModelCard, here: dict[str, str]) -> set[str]:
    return {uid for uid, source_hash in card.template_hashes if here.get(uid) == source_hash}


def _has_release(versions: Iterable[str], version: str) -> bool:
    return version.partition("+")[0] in {known.partition("+")[0] for known in versions}
