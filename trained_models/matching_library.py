"""Run when the distribution is built: the library that models need is the one that they are released with."""

from __future__ import annotations

from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class MatchingLibrary(MetadataHookInterface):
    """`torch-diode-lib`, this version or a later one that computes the same features."""

    def update(self, metadata: dict[str, Any]) -> None:
        metadata["dependencies"] = [f"torch-diode-lib~={metadata['version']}"]
