"""What every result file says about how it came to be."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from diode.integration.device import current_environment
from diode.types import Hardware


def provenance(hardware: Hardware) -> dict[str, Any]:
    """GPU, versions, commit, date and command, to stand at the head of a result file."""
    environment = current_environment(hardware, command="python " + " ".join(sys.argv))
    facts: dict[str, Any] = msgspec.to_builtins(environment)
    facts["gpu"] = facts.pop("hardware")["name"]
    facts.pop("template_hashes")
    return facts
