"""What a device's owner allows, and the refusal of what they do not.

The owner writes a file and names it by ``policy`` in the node config, or sets single keys there:

    max-epsilon      the most that may ever be released about this data, over all runs
    run-epsilon      the most that one run may add to it
    delta            the delta at which both are counted (1e-5 by default)
    require-privacy  refuse runs without differential privacy, without setting a budget

and more, see `policy_file`. Where any of these (or a file) is given, what is not named is denied:
modes other than ``dp``, labels, updates that are neither masked nor counted. On every device,
with or without a policy, parts of other packages are not used unless listed, and work is bounded.

A run is judged by its settings alone, before any data is read, at every message.

Adversary: a server that chooses run config and messages. Not covered: a device runs the code it is
sent, this file included; see Flower's ``--trusted-entities``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .codes import PrivacyRefused
from .policy_file import KEYS, MODES, OLD_DP, check, whole_config


@dataclass(frozen=True)
class Wish:
    """What a run asks of a device, by its settings.

    Attributes
    ----------
    study, method, privacy : as in the settings
    names : losses and models of other packages, by the setting that names them
    clear_updates : whether updates come in the clear and are counted against no budget
    labels : whether labels are to be told
    numbers : the run's settings that are whole numbers
    """

    study: str
    method: str
    privacy: str
    names: Mapping[str, str] = field(default_factory=dict)
    clear_updates: bool = False
    labels: bool = False
    numbers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Policy:
    """What a device's owner allows.

    Attributes
    ----------
    max_epsilon : lifetime budget; infinite where none is set
    delta : where the budget is counted
    require_privacy : whether a run without differential privacy is refused
    run_epsilon : what one run may add to what is spent
    studies, methods : those allowed; None is any
    modes : values of ``privacy`` that are allowed
    clear_updates, labels : whether these may be sent
    names : losses and models of other packages that a run may use
    most_steps, most_megabytes, most_seconds : what a message may cost
    """

    max_epsilon: float = math.inf
    delta: float = 1e-5
    require_privacy: bool = False
    run_epsilon: float = math.inf
    studies: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    modes: tuple[str, ...] = MODES
    clear_updates: bool = True
    labels: bool = True
    names: tuple[str, ...] = ()
    most_steps: int = 100_000
    most_megabytes: float = 1000.0
    most_seconds: float = 3600.0

    @classmethod
    def from_node_config(cls, config: Mapping[str, Any]) -> Policy:
        """Read the owner's node config, and the policy file where it names one.

        Raises
        ------
        ValueError
            For a value that is no budget: a typing error must not become "no limit".
        """
        given = {key: value for key, value in whole_config(config).items() if key in KEYS}
        for key, value in given.items():
            check(key, value)
        budget = float(given.get("max-epsilon", math.inf))
        run_budget = float(given.get("run-epsilon", math.inf))
        modes = tuple("dp" if mode == OLD_DP else mode for mode in given.get("privacy", MODES))
        strict = bool(given.get("require-privacy")) or math.isfinite(min(budget, run_budget))
        strict = strict or modes == ("dp",)
        return cls(
            max_epsilon=budget,
            delta=float(given.get("delta", 1e-5)),
            require_privacy=strict,
            run_epsilon=run_budget,
            studies=_some(given, "studies"),
            methods=_some(given, "methods"),
            modes=("dp",) if strict else modes,
            clear_updates=given.get("clear-updates", not strict),
            labels=given.get("share-labels", not strict),
            names=tuple(given.get("names", ())),
            most_steps=given.get("most-steps", cls.most_steps),
            most_megabytes=float(given.get("most-megabytes", cls.most_megabytes)),
            most_seconds=float(given.get("most-seconds", cls.most_seconds)),
        )

    def permit(self, mode: str) -> None:
        """Refuse a run whose ``privacy`` setting does not protect this device's data."""
        if self.require_privacy and mode != "dp":
            raise PrivacyRefused(
                f"this device requires privacy='dp', the run asks for privacy={mode!r}"
            )
        if mode not in self.modes:
            raise PrivacyRefused(
                f"this device allows privacy {_or(self.modes)}, the run asks for {mode!r}"
            )

    def permit_run(self, wish: Wish) -> None:
        """Refuse a run that asks for more than the owner allows; reads no data.

        Raises
        ------
        PrivacyRefused
            Says what is asked for and which key of the policy would allow it.
        """
        self.permit(wish.privacy)
        for key, value, allowed in (
            ("studies", wish.study, self.studies),
            ("methods", wish.method, self.methods),
        ):
            if allowed is not None and value not in allowed:
                raise PrivacyRefused(f"{value!r} is not among this device's {key}: {_or(allowed)}")
        for key, name in wish.names.items():
            self.permit_name(key, name)
        if wish.clear_updates and not self.clear_updates:
            raise PrivacyRefused(
                f"{wish.study} with method={wish.method!r} would send this device's updates in the "
                "clear, counted against no budget; the run must use secure aggregation, or the "
                "owner set clear-updates=true"
            )
        if wish.labels and not self.labels:
            raise PrivacyRefused(
                "the run asks for labels; either the run must set share-labels=false, or the owner "
                "share-labels=true"
            )
        self.permit_numbers(wish.numbers)

    def permit_numbers(self, numbers: Mapping[str, float]) -> None:
        """Refuse settings that ask for too much work, also before they are looked at closer."""
        for key, number in numbers.items():
            if number > self.most_steps:
                raise PrivacyRefused(
                    f"{key}={number:.15g}: more than this device's most-steps={self.most_steps}"
                )

    def permit_name(self, key: str, name: str) -> None:
        """Refuse a part of one's own, a loss or a model, that the owner does not list."""
        if name not in self.names:
            raise PrivacyRefused(
                f"{key}={name!r}: a device uses a loss or model of another package only if its "
                "owner lists it in names"
            )

    def permit_size(self, size: int) -> None:
        """Refuse a message of too many bytes."""
        if size > 1e6 * self.most_megabytes:
            raise PrivacyRefused(
                f"a message of {size} bytes: more than most-megabytes={self.most_megabytes:g}"
            )


def _some(given: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    return tuple(given[key]) if key in given else None


def _or(words: tuple[str, ...]) -> str:
    return ", ".join(words) or "none"
