"""The devices on which a model is trained or runs."""

from __future__ import annotations

from diode.errors import UnsupportedError, UsageError


def check_model_device(device: str, option: str) -> None:
    """Refuses beforehand what torch would fail on in the middle of the work; `option` is where it was said."""
    kind, colon, number = device.partition(":")
    if kind not in ("cpu", "cuda") or (colon and (kind == "cpu" or not number.isdigit())):
        raise UsageError(f"{option} {device}: use cpu, cuda, or cuda:1")
    if kind == "cuda":
        import torch

        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(number or 0) >= count:
            raise UnsupportedError(f"{option} {device}: this machine has {count} CUDA devices that torch can use")
