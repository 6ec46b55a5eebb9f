"""Weights as files of plain tensors: `.safetensors`, or `.pt` that is never unpickled into code."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from diode.errors import FileFormatError, UsageError
from diode.storage.flaws import naming_file

TENSOR_SUFFIXES: Final = (".safetensors", ".pt")
GBDT_SUFFIX: Final = ".txt"
"""LightGBM's own format; `diode.model.gbdt` reads it."""

Parameters = Mapping[str, NDArray[np.float32]]


def encode_tensors(parameters: Parameters, suffix: str) -> bytes:
    plain = {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in parameters.items()}
    if suffix == ".safetensors":
        from safetensors.numpy import save

        return save(plain)
    import torch

    content = io.BytesIO()
    torch.save({name: torch.from_numpy(value) for name, value in plain.items()}, content)
    return content.getvalue()


def decode_tensors(path: Path, content: bytes, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[np.float32]]:
    """The parameters, which must be exactly those of `shapes`, finite float32."""
    with naming_file(path):
        parameters = _safetensors(path, content) if path.suffix == ".safetensors" else _torch_tensors(path, content)
    for name in sorted(parameters.keys() ^ shapes.keys()):
        what = "is missing" if name in shapes else "does not belong to this type of model"
        raise FileFormatError(f"{path}: tensor {name!r} {what}")
    for name, value in parameters.items():
        if value.dtype != np.float32 or value.shape != shapes[name]:
            raise FileFormatError(
                f"{path}: tensor {name!r} is {value.dtype}{list(value.shape)}, not float32{list(shapes[name])}"
            )
        if not np.isfinite(value).all():
            raise FileFormatError(f"{path}: tensor {name!r} holds what is no number")
    return parameters


def check_suffix(path: Path) -> None:
    if path.suffix not in TENSOR_SUFFIXES:
        raise UsageError(f"{path}: weights are written as {' or '.join(TENSOR_SUFFIXES)}; name the model so")


def _safetensors(path: Path, content: bytes) -> dict[str, NDArray[np.float32]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(content)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise FileFormatError(f"{path}: not a file of tensors ({error})") from error


def _torch_tensors(path: Path, content: bytes) -> dict[str, NDArray[np.float32]]:
    import torch

    try:
        loaded = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise FileFormatError(
            f"{path}: holds more than plain tensors and could run code when it is loaded; it was not loaded"
        ) from error
    except (RuntimeError, EOFError, ValueError, LookupError, TypeError, AttributeError) as error:
        why = next(iter(str(error).splitlines()), type(error).__name__)
        raise FileFormatError(f"{path}: not a file of tensors ({why[:200]})") from error
    if not isinstance(loaded, dict) or not all(isinstance(value, torch.Tensor) for value in loaded.values()):
        raise FileFormatError(f"{path}: must hold a dictionary of tensors and nothing else")
    for name, value in loaded.items():
        if value.dtype != torch.float32:  # numpy does not know all of torch's types
            raise FileFormatError(f"{path}: tensor {str(name)!r} is {value.dtype}, not torch.float32")
    return {str(name): value.detach().numpy() for name, value in loaded.items()}
