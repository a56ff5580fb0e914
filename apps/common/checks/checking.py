"""The checks of a config class: each refuses by naming the setting, its value and what may be."""

from __future__ import annotations

from typing import ClassVar

from .limits import Limit, note

# A number that the study chooses by what the data is like; on the wire and in files the word.
AUTO, AUTO_WORD = -1.0, "auto"


class ConfigError(ValueError):
    """A setting that is unknown, of the wrong type or out of range."""


def kebab(name: str) -> str:
    """Return the name of a setting for users: ``lambda_`` is ``lambda``."""
    return name.rstrip("_").replace("_", "-")


class Checked:
    """What a config class checks its values by, in ``__post_init__``."""

    # Numbers that may be the word auto: the study chooses them, and says what it chose.
    auto_settings: ClassVar[tuple[str, ...]] = ()
    # For `by_client`.
    clients: int

    def positive(self, name: str) -> None:
        """Refuse a value that is not a positive finite number."""
        self._check(name, Limit(least=0.0, least_out=True))

    def at_least(self, name: str, least: float) -> None:
        """Refuse a value below ``least`` or not finite."""
        self._check(name, Limit(least=least))

    def between(
        self,
        name: str,
        least: float,
        most: float,
        *,
        least_out: bool = False,
        most_out: bool = False,
        beside: tuple[float, ...] = (),
        why: str = "",
    ) -> None:
        """Refuse a value outside a range.

        Parameters
        ----------
        least_out, most_out : whether an end itself is refused
        beside : numbers outside that are taken as well
        why : what to add to a refusal
        """
        limit = Limit(least, most, least_out=least_out, most_out=most_out, beside=beside)
        self._check(name, limit, f"; {why}" if why else "")

    def _check(self, name: str, limit: Limit, why: str = "") -> None:
        words = (AUTO_WORD,) if name in self.auto_settings else ()
        limit = Limit(**{**vars(limit), "words": words})
        note(name, limit)
        value = getattr(self, name)
        if not limit.takes(value) and not self.is_auto(name):
            raise ConfigError(f"{kebab(name)}={value}: must be {limit.told()}{why}")

    def is_auto(self, name: str) -> bool:
        """Return whether a setting, by its name in Python, is left to the study."""
        return name in self.auto_settings and getattr(self, name) == AUTO

    def one_of(self, name: str, allowed: tuple[str, ...]) -> None:
        """Refuse a value that is not among ``allowed``."""
        note(name, Limit(words=allowed))
        value = getattr(self, name)
        if value not in allowed:
            raise ConfigError(f"{kebab(name)}={value!r}: use one of {', '.join(allowed)}")

    def switch(self, name: str) -> str:
        """Return ``auto``, ``on`` or ``off``, for which true and false stand too."""
        note(name, Limit(words=("auto", "on", "off")))
        value = str(getattr(self, name))
        found = {"true": "on", "false": "off"}.get(value.lower(), value)
        if found not in ("auto", "on", "off"):
            raise ConfigError(f"{kebab(name)}={value!r}: use one of auto, on, off")
        return found

    def by_client(self, name: str, least: int) -> list[int]:
        """Return a setting that is one whole number for all clients, or one each, as K numbers."""
        form = f"a whole number >= {least}, or one per client with commas between"
        note(name, Limit(form=form))
        text = str(getattr(self, name))
        try:
            counts = [int(part) for part in text.split(",")]
        except ValueError:
            counts = []
        if not counts or min(counts) < least or len(counts) not in (1, self.clients):
            raise ConfigError(
                f"{kebab(name)}={text!r}: one whole number >= {least} for all clients, or "
                f"{self.clients} of them with commas between"
            )
        return counts * self.clients if len(counts) == 1 else counts
