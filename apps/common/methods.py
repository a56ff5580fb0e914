"""Methods: what a study's settings ``method`` and ``privacy`` choose.

A study lists its methods in a table, ``apps/<study>/methods.py``: for every pair of ``method`` and
``privacy`` what the server and the clients run, which settings have an effect, and what is claimed.
Everything below that table is written for one method and asks for no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trellis.apps.common.checks.checking import ConfigError
from trellis.privacy.device.codes import PrivacyRefused

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp

    from trellis.apps.common.private.personal import Personal
    from trellis.apps.common.settings import StudyConfig
    from trellis.privacy.secagg.client import Summands

# Settings of a run that have an effect in every method.
OF_EVERY_RUN = frozenset(
    [
        "rounds",
        "tolerance",
        "clients",
        "clients-least",
        "enrol-timeout",
        "timeout",
        "privacy",
        "method",
        "held-out",
    ]
)


@dataclass(frozen=True)
class Method:
    """One row of a study's table.

    Attributes
    ----------
    method, privacy : by which settings it is chosen
    settings : the settings that have an effect in it, kebab-case, besides `OF_EVERY_RUN`
    claim : what is claimed of its privacy: ``claim``, ``adversary``, ``neighbouring``,
        ``not_covered``
    server : what builds the server's rounds, ``module:function`` in the study's package
    client : what answers ``train`` messages on a client, in the same form, loaded when needed;
        empty if no reply of a single client ever leaves it
    summands, score : what a client adds to secure sums, for ``train`` and ``evaluate`` messages;
        empty if there are no such sums
    own : what answers the last message: makes the client's own result, or takes what the server
        has made
    sums : whether clients' replies are noisy secure sums, so that ``epsilon`` is spent on these
    masks : whether clients' replies reach the server as secure sums only
    on_device : whether clients make results of their own on their devices, which stay there
    """

    method: str
    privacy: str
    settings: frozenset[str]
    claim: Mapping[str, str]
    server: str
    client: str = ""
    summands: str = ""
    score: str = ""
    own: str = ""
    sums: bool = False
    masks: bool = False
    on_device: bool = False

    def has(self, key: str) -> bool:
        """Return whether a setting has an effect in this method."""
        return key in self.settings or key in OF_EVERY_RUN


@dataclass(frozen=True)
class Methods:
    """A study's table of methods; ``package`` is where its modules are.

    The first row of a privacy is what ``method = "auto"`` chooses there.
    """

    package: str
    rows: tuple[Method, ...]
    _by_name: dict[tuple[str, str], Method] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        self._by_name.update({(row.method, row.privacy): row for row in self.rows})

    def names(self) -> tuple[str, ...]:
        """Return the names of all methods, each once, in order."""
        return tuple(dict.fromkeys(row.method for row in self.rows))

    def default(self, privacy: str) -> str:
        """Return the method that ``auto`` is with this privacy: that of its first row.

        Raises
        ------
        ConfigError
            For a privacy that no method has.
        """
        for row in self.rows:
            if row.privacy == privacy:
                return row.method
        having = _either(row.privacy for row in self.rows)
        raise ConfigError(f"privacy={privacy!r}: no method of this study has it; use {having}")

    def row(self, method: str, privacy: str) -> Method:
        """Return one method.

        Raises
        ------
        ConfigError
            For a pair that is not in the table; names those that are.
        """
        found = self._by_name.get((method, privacy))
        if found is not None:
            return found
        with_it = [row.privacy for row in self.rows if row.method == method]
        if with_it:
            others = _either(row.method for row in self.rows if row.privacy == privacy)
            raise ConfigError(
                f"privacy={privacy!r} with method={method!r}: this method has privacy="
                f"{_either(with_it)}" + (f"; {privacy!r} has method={others}" if others else "")
            )
        raise ConfigError(f"method={method!r}: use one of {', '.join(self.names())}")

    def load(self, name: str) -> Callable[..., Any]:
        """Return a function that a row names as ``module:function``."""
        return _load(f"{self.package}.{name}")

    def answer_train(self, app: ClientApp, settings: Callable[[Context], StudyConfig]) -> None:
        """Let ``app`` answer ``train`` messages as the row of the run's settings says.

        The one place that decides it: a client whose replies reach the server as secure sums only,
        or not at all, refuses to send one in the clear.

        Parameters
        ----------
        settings : returns a run's settings
        """

        @app.train()
        def train(message: Message, context: Context) -> Message:
            config = settings(context)
            row = self.row(config.method, config.privacy)
            if config.masked or not row.client:
                raise PrivacyRefused(
                    f"method={row.method!r} with privacy={row.privacy!r}: this reply would be in "
                    "the clear; clients answer in secure sums only, or not at all"
                )
            reply: Message = self.load(row.client)(message, context)
            return reply

    def in_sums(
        self, role: str, settings: Callable[[Context], StudyConfig]
    ) -> Callable[[Message, Context], Summands]:
        """Return what adds to secure sums as the row of the run's settings says.

        Parameters
        ----------
        role : ``summands`` or ``score``
        settings : returns a run's settings
        """

        def add(message: Message, context: Context) -> Summands:
            config = settings(context)
            row = self.row(config.method, config.privacy)
            name = getattr(row, role)
            if not (config.masked and name):
                raise PrivacyRefused(
                    f"method={row.method!r} with privacy={row.privacy!r}: this run has no secure "
                    f"sum of clients' {role}"
                )
            found: Summands = self.load(name)(message, context)
            return found

        return add

    def own(
        self, settings: Callable[[Context], StudyConfig]
    ) -> Callable[[Message, Context], Personal]:
        """Return what answers the last message as the row of the run's settings says."""

        def answer(message: Message, context: Context) -> Personal:
            config = settings(context)
            row = self.row(config.method, config.privacy)
            found: Personal = self.load(row.own)(message, context)
            return found

        return answer

    def refuse_without_effect(self, row: Method, changed: Iterable[str]) -> None:
        """Refuse settings that a user has changed and that have no effect in this method.

        Parameters
        ----------
        changed : kebab-case names of the settings that differ from their default

        Raises
        ------
        ConfigError
            Names the setting, and what would make it effective.
        """
        for key in changed:
            if not row.has(key):
                raise ConfigError(self.without_effect(key, row))

    def without_effect(self, key: str, row: Method) -> str:
        """Return that a setting has no effect in a method, and what would make it effective."""
        return (
            f"{key} has no effect with method={row.method!r} and privacy={row.privacy!r}; "
            f"{self._remedy(key, row)}"
        )

    def _remedy(self, key: str, row: Method) -> str:
        having = [other for other in self.rows if key in other.settings]
        if privacies := [other.privacy for other in having if other.method == row.method]:
            return f"it has with privacy={_either(privacies)}, or leave it at its default"
        if methods := [other.method for other in having if other.privacy == row.privacy]:
            return f"it has with method={_either(methods)}, or leave it at its default"
        if not having:
            return "no method of this study uses it; leave it at its default"
        named, modes = ({getattr(row, part) for row in having} for part in ("method", "privacy"))
        if len(having) == len(named) * len(modes):  # every pair of them
            names = _either(row.method for row in having)
            where = f"{names} and privacy={_either(row.privacy for row in having)}"
        else:
            where = _either(f"{row.method} and privacy={row.privacy}" for row in having)
        return f"it has with method={where}, or leave it at its default"


@cache
def _load(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def _either(names: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(names))
