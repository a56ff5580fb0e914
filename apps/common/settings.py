"""Settings of a study: a frozen dataclass, checked once, with errors that name the key.

Settings are kebab-case on the wire and on the command line, snake_case in Python; a trailing
underscore avoids a keyword (``lambda_`` is ``lambda``). In a Flower run config they stand under the
study: ``consensus-graph.rho``.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, Self

from trellis.apps.common.checks.checking import AUTO, AUTO_WORD, Checked, ConfigError, kebab
from trellis.apps.common.checks.limits import Limit, noting
from trellis.apps.common.methods import Method, Methods
from trellis.strategies.core.rules import FEWEST, RULES

__all__ = [
    "AUTO",
    "AUTO_WORD",
    "PRIVACY_MODES",
    "ConfigError",
    "Scalar",
    "StudyConfig",
    "config_class",
]

log = logging.getLogger("trellis.run")

Scalar = str | int | float | bool

PRIVACY_MODES = ("none", "paper", "dp")
# What ``dp`` was called; accepted with a warning for one release.
OLD_DP = "sound"


@dataclass(frozen=True, kw_only=True)
class StudyConfig(Checked):
    """The settings every study has; units stand in brackets, ranges where they are checked.

    Attributes
    ----------
    rounds : most rounds to run [rounds]
    tolerance : stop when the largest relative change of a round falls below it; 0 runs all rounds
        [share of the value]
    clients : how many clients take part [clients]
    clients_least : with how many of them the run still goes on, where others are not there or have
        data that cannot be used; 0 is all [clients]
    enrol_timeout : how long to wait at the start until all clients are there [seconds]
    sample : how many clients are asked in a round, drawn at random; 0 is all [clients]
    timeout : how long to wait for the replies of one round [seconds]
    privacy : ``none``, ``paper`` (the article as printed) or ``dp`` (what we stand behind)
    epsilon : the budget of differential privacy: what the whole run spends on one client at most,
        where privacy is on; settings with which it would spend more are refused [epsilon]
    delta : the probability that stands beside epsilon in (epsilon, delta)-differential privacy; far
        below one over the number of records [probability]
    method : the study's algorithm or one of its baselines; ``auto`` is the study's default for this
        privacy
    norm_bound : B, how far a client's reply may lie from what it was sent; 0 is any distance. What
        is measured is the study's, see its page [length of a reply]
    robust : what the server does against a bad client: ``none`` rejects what is beyond the bound,
        ``clip`` clips it, ``median`` and ``trimmed`` also replace means over clients
    trim : how many clients ``trimmed`` leaves out at either end [share of the clients]
    held_out : what is left out of learning at every client and scores the result [share of the
        records]
    dropout : how many clients a noisy sum may lose and still open [share of the clients]
    colluding : how many clients may work with the server without the claim being wrong [share of
        the clients]
    """

    study: ClassVar[str]
    methods: ClassVar[tuple[str, ...]]
    # What method and privacy choose, for a study whose methods are a table.
    table: ClassVar[Methods | None] = None
    # Settings that may name a part of one's own, with its kind: see `plugins`.
    plugin_settings: ClassVar[Mapping[str, str]] = {}
    # What settings are on a person's own data where they are left open, kebab-case.
    own_data: ClassVar[Mapping[str, Scalar]] = {"held-out": 0.2}

    rounds: int = 50
    tolerance: float = 1e-4
    clients: int = 5
    clients_least: int = 0
    enrol_timeout: float = 120.0
    sample: int = 0
    timeout: float = 3600.0
    privacy: str = "none"
    epsilon: float = 1.0
    delta: float = 1e-5
    method: str = ""
    norm_bound: float = 0.0
    robust: str = "none"
    trim: float = 0.1
    held_out: float = 0.0
    dropout: float = 0.1
    colluding: float = 0.1

    def __post_init__(self) -> None:
        self.at_least("rounds", 1)
        self.at_least("tolerance", 0.0)
        self.at_least("clients", 1)
        self.positive("enrol_timeout")
        self.at_least("sample", 0)
        if self.sample > self.clients:
            raise ConfigError(
                f"sample={self.sample}: more than clients={self.clients}; use 0 for all"
            )
        self.positive("timeout")
        self.one_of("privacy", PRIVACY_MODES)
        self.positive("epsilon")
        self.between("delta", 0.0, 1.0, least_out=True, most_out=True)
        if self.table is not None and self.method == AUTO_WORD:
            object.__setattr__(self, "method", self.table.default(self.privacy))
        self.one_of("method", self.methods)
        self.at_least("norm_bound", 0.0)
        self.one_of("robust", RULES)
        self.between("trim", 0.0, 0.5, least_out=True, most_out=True)
        if self.robust == "clip" and not self.norm_bound:
            raise ConfigError("robust='clip': needs norm-bound > 0, to which replies are clipped")
        asked = min(self.clients, self.sample or self.clients)
        if self.robust in ("median", "trimmed") and asked < FEWEST:
            raise ConfigError(
                f"robust={self.robust!r}: {asked} clients are asked, and of fewer than {FEWEST} "
                "nobody can tell the liar"
            )

        self.between("held_out", 0.0, 1.0, most_out=True)
        for name in ("dropout", "colluding"):
            self.between(name, 0.0, 1.0 / 3.0, why="secure sums do not hold beyond")
        self._check_method()
        self._check_least()

    def _check_method(self) -> None:
        """Refuse a pair of method and privacy that there is not."""
        assert self.row is None or self.row.method == self.method

    def refuse_without_effect(self) -> None:
        """Refuse settings without effect; the last that a study with a table checks."""
        row = self.row
        if row is None or self.table is None:
            return
        changed = [f for f in fields(self) if getattr(self, f.name) != f.default]
        self.table.refuse_without_effect(
            row, [kebab(f.name) for f in changed if not self.is_auto(f.name)]
        )

    def _check_least(self) -> None:
        self.at_least("clients_least", 0)
        least = self.clients_least
        if least > self.clients:
            raise ConfigError(
                f"clients-least={least}: more than clients={self.clients}; use 0 for all of them"
            )
        if not 0 < least < FEWEST:
            return
        if self.masked or self.robust in ("median", "trimmed"):
            what = "secure sums" if self.masked else f"robust={self.robust!r}"
            raise ConfigError(
                f"clients-least={least}: {what} must have {FEWEST} clients at least; or use 0 for "
                "all of them"
            )

    @property
    def row(self) -> Method | None:
        """The row of the study's table of methods; None for a study without a table."""
        return None if self.table is None else self.table.row(self.method, self.privacy)

    @property
    def sums(self) -> bool:
        """Whether devices add noise to a secure sum over all clients."""
        return self.row is not None and self.row.sums

    @property
    def at_home(self) -> bool:
        """Whether results of a client's own are made on the device, and stay there."""
        return self.row is not None and self.row.on_device

    @property
    def must_release(self) -> bool:
        """Whether a run with these settings must have entered releases in its ledger."""
        return self.privacy == "dp" and (self.sums or not self.at_home)

    @property
    def masked(self) -> bool:
        """Whether clients' replies reach the server as secure sums only."""
        return self.sums or getattr(self, "secure_aggregation", False) is True

    def few_for_a_sum(self) -> str:
        """Return why these are too few clients for a noisy sum; nothing if they are not."""
        if self.clients < 3:
            return f"clients={self.clients}: a secure sum needs three at least"
        return ""

    def refuse_robust(self, *, masked: bool = False, alone: str = "", no_mean: str = "") -> None:
        """Refuse rules against a bad client that have nothing to act on.

        Parameters
        ----------
        masked : whether clients' replies reach the server as a secure sum only
        alone : why no client's reply touches another's result, where that is so
        no_mean : why there is no mean over clients to replace, where that is so

        Raises
        ------
        ConfigError
            Names the settings that do not go together.
        """
        if alone and (self.norm_bound or self.robust != "none"):
            raise ConfigError(
                f"norm-bound={self.norm_bound:g}, robust={self.robust!r}: {alone}; set "
                "norm-bound=0 and robust='none'"
            )
        if masked and self.robust != "none":
            raise ConfigError(
                f"robust={self.robust!r} with secure aggregation: the server sees sums only, no "
                "client's reply by itself. norm-bound alone is kept by the devices, before they "
                "mask; or turn secure-aggregation off"
            )
        if no_mean and self.robust in ("median", "trimmed"):
            raise ConfigError(
                f"robust={self.robust!r}: {no_mean}; use robust='clip' or 'none' with norm-bound"
            )

    @property
    def clear_updates(self) -> bool:
        """Whether the server sees what a client computes, masked by nothing and counted nowhere."""
        return self.privacy != "dp"

    @property
    def divides_by_rounds(self) -> bool:
        """Whether the noise is made for this number of rounds, so that more would spend more."""
        return self.privacy == "paper"

    @property
    def tells_labels(self) -> bool:
        """Whether clients tell the labels of their data."""
        return False

    @classmethod
    def for_own_data(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings for a person's own data: those given, and those that were left open."""
        return {**cls.own_data, **given}

    @classmethod
    def for_number(cls, clients: int) -> dict[str, Scalar]:
        """Return settings of the built-in example that follow from its number of clients."""
        return {}

    @classmethod
    def as_defaults(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings for files that nothing is to be chosen for, as those of a figure.

        What was left open and would be another for a person's own data has the study's default.
        """
        usual = cls.defaults()
        open_ones = cls.for_own_data(given).keys() - given.keys()
        return {**{key: usual[key] for key in sorted(open_ones)}, **given}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Build the config from kebab-case settings; those not given keep their default."""
        values: dict[str, Any] = dict(cls.typed(key, value) for key, value in settings.items())
        return cls(**values)

    @classmethod
    def typed(cls, key: str, value: Any) -> tuple[str, Scalar]:
        """Return the name in Python of one kebab-case setting, and its value as it must be typed.

        Raises
        ------
        ConfigError
            For a key that the study does not have, or a value of another kind.
        """
        known = {kebab(f.name): f for f in fields(cls)}
        if key == "privacy" and value == OLD_DP:
            value = "dp"
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
            raise ConfigError(f"{key}: unknown setting of {cls.study}; {hint}")
        name = known[key].name
        if value == AUTO_WORD and name in cls.auto_settings:
            return name, AUTO
        found = _cast(key, value, str(known[key].type))
        if name in cls.auto_settings and found == AUTO:
            # The number stands for the word in here, and for nothing out there.
            raise ConfigError(f"{key}={found}: must not be below 0; or use {AUTO_WORD}")
        return name, found

    @classmethod
    def limits(cls) -> dict[str, Limit]:
        """Return what settings may be, kebab-case: what the class checks when it is made."""
        with noting() as found:
            cls()
        return {kebab(name): limit for name, limit in found.items()}

    @classmethod
    def kinds(cls) -> dict[str, str]:
        """Return of every setting, kebab-case, whether it is an int, float, bool or str."""
        return {kebab(f.name): str(f.type) for f in fields(cls)}

    @classmethod
    def from_run_config(cls, run_config: Mapping[str, Any]) -> Self:
        """Build the config from the keys of a Flower run config that stand under the study."""
        key: Any = cls  # a class is hashable, though mypy doubts it of type[Self]
        # A client builds its config for every message; the run config does not change meanwhile.
        last = _last.get(key)
        if last is not None and last[0] == run_config:
            return last[1]
        if (study := run_config.get("study", cls.study)) != cls.study:
            raise ConfigError(
                f"study={study!r}: an app of {cls.study} is asked, and would run with defaults; "
                f"give {study!r} a config class and apps of its own that read it"
            )
        prefix = f"{cls.study}."
        found = _from_items(
            key, tuple((k[len(prefix) :], v) for k, v in run_config.items() if k.startswith(prefix))
        )
        _last[key] = dict(run_config), found
        return found

    @classmethod
    def defaults(cls) -> dict[str, Scalar]:
        """Return the default of every setting, kebab-case, before anything is chosen for a run."""
        return {**cls().settings(), **({"method": AUTO_WORD} if cls.table is not None else {})}

    @classmethod
    def has_effect(cls, key: str, settings: Mapping[str, Any]) -> bool:
        """Return whether a setting has an effect with the method and privacy of these settings."""
        chosen = {**cls.defaults(), **settings}
        method, privacy = str(chosen["method"]), str(chosen["privacy"])
        for row in () if cls.table is None else cls.table.rows:
            if row.privacy == privacy and method in (row.method, AUTO_WORD):
                return row.has(key)
        return True  # building the config names what is wrong

    def settings(self) -> dict[str, Scalar]:
        """Return every setting of this run, kebab-case."""
        return {
            kebab(f.name): AUTO_WORD if self.is_auto(f.name) else getattr(self, f.name)
            for f in fields(self)
        }

    def run_config(self) -> dict[str, Scalar]:
        """Return every setting as it stands in a Flower run config."""
        return {f"{self.study}.{key}": value for key, value in self.settings().items()}


def in_current_words(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with what ``privacy`` is called now, and warn of the old word."""
    if settings.get("privacy") != OLD_DP:
        return dict(settings)
    log.warning("privacy='sound' is called privacy='dp' now; the old word goes with this release")
    return {**settings, "privacy": "dp"}


# By study: the run config that was read last, and the config that it gave.
_last: dict[Any, tuple[dict[str, Any], Any]] = {}


@lru_cache(maxsize=64)
def _from_items(cls: Any, items: tuple[tuple[str, Any], ...]) -> Any:
    return cls.from_settings(dict(items))


def _cast(key: str, value: Any, kind: str) -> Scalar:
    """Return ``value`` as the field's type; Flower passes what the user typed, unchecked."""
    wrong = ConfigError(f"{key}={value!r}: must be {_ARTICLES[kind]}")
    if kind == "str":
        return str(value)
    if kind == "bool":
        if isinstance(value, bool):
            return value
        raise wrong
    if isinstance(value, bool):
        raise wrong
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise wrong from None
    if kind == "float":
        return number
    if not number.is_integer():
        raise wrong
    return int(number)


_ARTICLES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
}


def config_class(study: str) -> type[StudyConfig]:
    """Return the class of a study's settings."""
    from trellis.apps import study_module

    module = study_module(study, "config")
    found = [c for c in vars(module).values() if getattr(c, "study", None) == study]
    return found[0]
