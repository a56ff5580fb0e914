"""Settings that fit a federation: what was left open is chosen, and what does not fit is told.

All of it before anything is submitted, and all at once: a person must not meet one error after the
other, each after half a minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trellis.apps.common.own_data.choosing import FEWEST, Chosen, choose_places
from trellis.apps.common.settings import (
    ConfigError,
    StudyConfig,
    config_class,
    in_current_words,
)


@dataclass
class Fitted:
    """Settings of a run for a federation's devices.

    Attributes
    ----------
    settings : those given and those chosen
    chosen : the latter by name, with the reason
    """

    settings: dict[str, Any]
    chosen: dict[str, str] = field(default_factory=dict)


def fit(
    study: str,
    given: Mapping[str, Any],
    devices: Mapping[str, Mapping[str, Any]],
    *,
    apart: bool = False,
) -> Fitted:
    """Return settings that fit these devices.

    Parameters
    ----------
    study : a key of `apps.STUDIES`
    given : settings that somebody asked for
    devices : every device's node config, by name
    apart : whether servers have SuperLinks of their own: nobody knows the units of all data then

    Raises
    ------
    ConfigError
        Names everything that does not fit.
    """
    fitter = _Fitter(study, in_current_words(given), devices)
    fitter.refuse_unknown()
    fitter.choose(apart)
    fitter.check()
    if fitter.problems:
        lines = "".join(f"\n- {problem}" for problem in fitter.problems)
        raise ConfigError(f"{study} on these {len(devices)} devices was not submitted:{lines}")
    return fitter.fitted


class _Fitter:
    def __init__(
        self, study: str, given: Mapping[str, Any], devices: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self.kind = config_class(study)
        self.chosen = Chosen(self.kind, dict(given))
        self.defaults = self.chosen.defaults
        self.given, self.devices = given, devices
        self.fitted = Fitted(self.chosen.settings, self.chosen.reasons)
        self.problems: list[str] = []

    def refuse_unknown(self) -> None:
        """Name every setting that the study does not have."""
        for key, value in list(self.given.items()):
            if key not in self.defaults:
                try:
                    self.kind.from_settings({key: value})
                except ConfigError as error:
                    self.problems.append(str(error))
                del self.fitted.settings[key]

    def choose(self, apart: bool) -> None:
        """Choose what was left open."""
        self.chosen.take("clients", len(self.devices), "all devices")
        choose_places(self.chosen, list(self.devices.values()), "every node config")
        if strict := self._strict():
            self.chosen.take("privacy", "dp", f"{strict[0]} allows nothing else")
        if not apart:
            self._choose_for_own_data()

    def _choose_for_own_data(self) -> None:
        """Choose what is chosen for files of one's own (``trellis run --data``), too.

        But for records to hold out under privacy, where a score costs a part of the budget; and for
        a method that would take updates of devices in the clear.
        """
        settings = dict(self.chosen.settings)
        not_here = {"method"} | (
            {"held-out"} if settings.get("privacy", "none") != "none" else set()
        )
        for key, value in self.kind.for_own_data(settings).items():
            if key not in not_here:
                self.chosen.take(key, value, "for data of one's own")

    def check(self) -> None:
        """Name what does not fit the devices, then what does not fit together."""
        count = len(self.devices)
        clients = self.chosen.number("clients", count)
        if clients > count:
            self.problems.append(f"clients={clients}: there are {count} devices")
        apart = "servers" in self.defaults and self.chosen.has("servers")
        servers = self.chosen.number("servers", 1) if apart else 1
        if servers > clients:
            self.problems.append(
                f"servers={servers}: more than clients={clients}; every server needs one at least"
            )
        if apart:
            for name, node in self.devices.items():
                place = int(node.get("partition-id", -1))
                if "server" not in node and not 0 <= place < clients:
                    self.problems.append(
                        f"{name}: its node config says neither server nor a partition-id from 0 to "
                        f"{clients - 1}"
                    )
        try:
            config = self.kind.from_settings(self.fitted.settings)
        except ConfigError as error:
            if not any(str(error).partition(":")[0] in problem for problem in self.problems):
                self.problems.append(str(error))
            return
        if apart and config.masked:
            self._check_sums(servers, clients)
        self._check_clusters(config)
        self._check_policies(config)

    def _check_sums(self, servers: int, clients: int) -> None:
        if 0 < clients // max(servers, 1) < FEWEST:
            self.problems.append(
                f"servers={servers}: {clients} clients leave a server with "
                f"{clients // servers}, and a secure sum needs {FEWEST}; use servers="
                f"{max(1, clients // FEWEST)}"
                + ("" if clients >= FEWEST else " and method=none with secure-aggregation=off")
            )

    def _check_clusters(self, config: StudyConfig) -> None:
        clusters = str(getattr(config, "clusters", "1"))
        if not clusters.isdecimal() or int(clusters) == 1:
            return
        if config.method not in ("pgfl", "clusterfl"):
            return
        lost = [name for name, node in self.devices.items() if "cluster" not in node]
        if lost:
            self.problems.append(
                f"clusters={clusters}: {', '.join(lost)} do not say in which they are; set cluster "
                f"in their device.toml, or clusters=auto:{clusters}"
            )

    def _check_policies(self, config: StudyConfig) -> None:
        from trellis.apps.common.device_mod import wish
        from trellis.privacy.device.codes import PrivacyRefused
        from trellis.privacy.device.policy import Policy

        asked = wish(config)
        for name, node in self.devices.items():
            try:
                Policy.from_node_config(node).permit_run(asked)
            except PrivacyRefused as reason:
                self.problems.append(f"{name} would refuse: {reason}")
            except ValueError as error:
                self.problems.append(f"{name}: {error}")

    def _strict(self) -> list[str]:
        """Return the devices that take part in private runs only."""
        from trellis.privacy.device.policy import Policy

        found = []
        for name, node in self.devices.items():
            try:
                if Policy.from_node_config(node).modes == ("dp",):
                    found.append(name)
            except ValueError:
                continue  # told by the check
        return found
