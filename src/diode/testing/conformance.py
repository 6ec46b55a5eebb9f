"""What all suites have in common."""

from __future__ import annotations


class Conformance:
    """A suite: each of its methods `test_...` raises an `AssertionError` that says what breaks the contract."""

    def violations(self) -> dict[str, str]:
        """Runs every check; by its name, what is wrong. Empty where the contract is kept."""
        told = {name: self._violation(name) for name in self.checks()}
        return {name: what for name, what in told.items() if what is not None}

    def _violation(self, name: str) -> str | None:
        try:
            getattr(self, name)()
        except AssertionError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001  # other people's code, of which all checks are to be told
            return f"{type(error).__name__}: {error}"
        return None

    @classmethod
    def checks(cls) -> list[str]:
        return [name for name in dir(cls) if name.startswith("test_")]


def require(condition: object, message: str) -> None:
    """As `assert`, which python -O would leave out."""
    if not condition:
        raise AssertionError(message)
