"""What every study's ServerApp does around its strategy: config, folder, result, report."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid

from trellis.apps import study_module
from trellis.apps.common.evaluation.model_file import write_model_file
from trellis.apps.common.evaluation.scores import gather, numbers
from trellis.apps.common.federation import engine_of
from trellis.apps.common.files.metrics_file import MetricsFile
from trellis.apps.common.files.run_folder import (
    CHOSEN,
    clear,
    gone_before,
    note_written,
    refuse_fewer_rounds,
    refuse_other_clients,
    refuse_to_replace,
    refuse_to_resume,
    sweep,
)
from trellis.apps.common.private.notes import sum_notes
from trellis.apps.common.progress import publish
from trellis.apps.common.results import FolderLock, Row, RunResult, is_held, said
from trellis.apps.common.seeds import generator
from trellis.apps.common.settings import ConfigError, StudyConfig
from trellis.apps.network.place import clients_here, place_of, tell_of_graph
from trellis.apps.pages.wording import Wording
from trellis.privacy.accounting.ledger import Ledger
from trellis.strategies.core.checkpoint import Checkpoint
from trellis.strategies.core.declared import Client, count_notes
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.core.robust import Robust
from trellis.strategies.node_strategy import Sampler
from trellis.strategies.rounds import RoundPlan, Rounds

log = logging.getLogger("trellis.run")

Config = TypeVar("Config", bound=StudyConfig)

# A resumed run may go on for longer, where its noise was not made for so many rounds, or more
# strictly; everything else must be as it was.
_MAY_DIFFER_ON_RESUME = ("rounds", "tolerance", "timeout", "clients-least", "enrol-timeout")


class StudyRun(Generic[Config]):
    """One run of a study on a server: its config, seed and folder, and the result it fills.

    Parameters
    ----------
    context : of the ServerApp; the run config names study, seed, out, resume, force, report, data,
        devices
    grid : tells on which engine this runs
    config_class : the study's settings
    """

    def __init__(self, context: Context, grid: Grid, config_class: type[Config]) -> None:
        run_config = context.run_config
        engine = engine_of(grid)
        self.config = config_class.from_run_config(run_config)
        self.seed = _seed(run_config)
        self.resume = bool(run_config.get("resume", False))
        self.force = bool(run_config.get("force", False))
        self.report = bool(run_config.get("report", True))
        self.data = str(run_config.get("data", ""))
        self.devices = _names(str(run_config.get("devices", "")))
        self.folder = _folder(str(run_config.get("out", "")))
        if self.resume and self.folder is None:
            raise ConfigError("resume=true: needs out, the folder of the run to go on with")
        if self.folder is None and engine != "local":
            self.folder = kept_folder(self.config.study, context.run_id)
        if engine != "local":
            log.info("the result goes to %s", self.folder)
        self.place = place_of(run_config, self.config, self.seed)
        self._clients = self.config.clients
        if self.place is not None:
            servers = int(self.config.settings()["servers"])
            here = run_config, self.config.clients, servers, self.place.server
            self._clients = clients_here(*here)
        self._lock: FolderLock | None = None
        # Whether this run may write into its folder: a resumed one when it has been taken up.
        self._ready = True
        self._seconds_before = 0.0
        self.result = RunResult(
            study=self.config.study,
            seed=self.seed,
            engine=engine,
            config=self.config.settings(),
            data=self.data,
        )
        if chosen := str(run_config.get("chosen", "")):
            self.result.notes.append(f"{CHOSEN}{chosen}.")
            log.info("chosen for this run: %s", chosen)
        self.ledger = Ledger(self.config.privacy, self.config.delta)

    @property
    def robust(self) -> Robust:
        """What the run does against a bad client."""
        return Robust(self.config.robust, self.config.norm_bound, self.config.trim)

    def sampler(self) -> Sampler | None:
        """Return who is asked in a round, drawn from the run's seed; None asks everyone."""
        number, seed = self.config.sample, self.seed
        if not number:
            return None

        def draw(server_round: int, nodes: Sequence[int]) -> Sequence[int]:
            if number >= len(nodes):
                return nodes
            rng = generator(seed, "sampling", 0, server_round)
            return [nodes[i] for i in rng.choice(len(nodes), number, replace=False)]

        return draw

    def round_arguments(self) -> dict[str, Any]:
        """Return what `Rounds` needs, from the config."""
        config = self.config
        checkpoint = None
        if self.folder is not None:
            fixed = self._fixed()
            if self.place is not None:
                fixed |= {"server": self.place.server, "graph-run": self.place.run}
            checkpoint = Checkpoint(self.folder / "checkpoint", fixed)
        return {
            "plan": RoundPlan(
                rounds=config.rounds,
                tolerance=config.tolerance,
                clients=self._clients,
                sample=config.sample,
                timeout=config.timeout,
                enrol_timeout=config.enrol_timeout,
                clients_least=config.clients_least,
                devices=self.devices,
                scores=_who_scores(config),
            ),
            "ledger": self.ledger,
            "checkpoint": checkpoint,
            "on_round": lambda row: publish(config.study, config.rounds, row),
        }

    def _fixed(self) -> dict[str, Any]:
        """Return what must be as it was for a run to be resumed."""
        config = self.config
        fixed = {k: v for k, v in config.settings().items() if k not in _MAY_DIFFER_ON_RESUME}
        if config.divides_by_rounds:
            fixed["rounds"] = config.rounds
        return fixed | {"study": config.study, "seed": self.seed, "data": self.data}

    @contextmanager
    def recording(self, strategy: Rounds) -> Iterator[None]:
        """Write ``run.json`` at the start, and the truth about the end whatever it is.

        One run at a time: another in the same folder is refused, and leaves everything as it is. So
        does one that cannot be resumed, or would replace a run that was not asked to be.
        """
        with ExitStack() as stack:
            if self.folder is not None:
                self._look_at(self.folder, strategy)
                self._lock = FolderLock(self.folder)
                stack.callback(self._lock.release)
                self._begin(self.folder, strategy)
            with _written_as_they_end(strategy, self.folder):
                yield from self._recorded(strategy)
            stack.pop_all()  # locked until the report is written, too

    def _look_at(self, folder: Path, strategy: Rounds) -> None:
        """Refuse what the folder itself speaks against, before anything in it is touched."""
        if is_held(folder):
            return  # which refuses this run anyway, and what is being written cannot be judged
        if not self.resume:
            refuse_to_replace(folder, force=self.force)
            return
        if strategy.checkpoint is not None and strategy.checkpoint.is_there():
            kept = strategy.checkpoint.load()  # raises where it is of another run
            done = 0 if kept is None else kept.server_round
            refuse_fewer_rounds(folder, self.config.rounds, done)
        else:
            refuse_to_resume(folder, self._fixed())

    def _begin(self, folder: Path, strategy: Rounds) -> None:
        if self.resume:
            kept = strategy.checkpoint is not None and strategy.checkpoint.is_there()
            self._seconds_before, chosen = gone_before(folder)
            self.result.notes = [*chosen, *self.result.notes]

            def ready() -> None:
                if not kept:
                    refuse_other_clients(folder, strategy.clients)
                self._ready = True
                sweep(folder)
                self._collect_facts(strategy)
                self.result.save(folder)

            self._ready = False
            strategy.on_ready = ready
            return
        # What an earlier run left in this folder must not pass for this one's.
        clear(folder)
        self.result.save(folder)

    def _recorded(self, strategy: Rounds) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
            self._refuse_without_release(strategy)
            self.result.status = "completed"
        except BaseException as error:
            self.result.status, note = _end(error, resumable=self.folder is not None)
            self.result.notes.append(note)
            raise
        finally:
            self.result.seconds = self._seconds_before + time.monotonic() - began
            self._collect(strategy)
            self._account(strategy)
            if self.folder is not None and self._ready:
                self.result.save(self.folder)
                if self.result.status == "completed":
                    write_model_file(self.result, self.folder)
            log.info("%s", self.result.summary())

    def _refuse_without_release(self, strategy: Rounds) -> None:
        """Refuse to call a private run completed in which nobody entered a release."""
        names = [client.name for client in strategy.clients]
        if self.config.must_release and not any(map(self.ledger.series, names)):
            raise StudyError(
                f"privacy={self.config.privacy!r}: the run has ended and no client entered a "
                "release in its ledger, so nothing shows that noise was added. Do the clients run "
                "the ClientApp of this study and method?"
            )

    def _collect_facts(self, strategy: Rounds) -> None:
        result, progress = self.result, strategy.progress
        result.metrics = progress.rows
        result.bytes_up, result.bytes_down = progress.bytes_up, progress.bytes_down
        kept = ("name", "partition", "count", "rounds", "failures", "last_failure")
        result.clients = [{k: getattr(c, k) for k in kept} for c in strategy.clients]
        if strategy.clients:
            result.variables = strategy.clients[0].variables

    def _settled(self, strategy: Rounds) -> bool | None:
        """Return whether more rounds would change nothing; None where nobody asked."""
        rows = strategy.progress.rows
        # Some methods need no tolerance to know that they are done.
        done = bool(rows) and strategy.exhausted() and strategy.settled(rows[-1])
        if strategy.progress.converged or done:
            return True
        return False if self.config.tolerance > 0.0 else None

    def _collect(self, strategy: Rounds) -> None:
        result = self.result
        tell_of_graph(result, strategy)
        self._collect_scores(strategy)
        self._collect_facts(strategy)
        result.settled = self._settled(strategy)
        if not result.settled and result.status == "completed" and self.config.tolerance > 0:
            result.notes.append(
                f"Stopped at rounds={self.config.rounds} with {strategy.shortfall()}, "
                f"above tolerance={self.config.tolerance:g}: raise rounds for a converged result."
            )
        groups = {c.name: strategy.sum_group(i) for i, c in enumerate(strategy.clients)}
        result.notes += sum_notes(self.ledger, groups)
        result.notes += [f"A client refused to take part: {text}" for text in strategy.refusals]
        result.notes += [f"A client was left out: {text}" for text in strategy.left_out]
        result.notes += count_notes(strategy.clients)
        result.notes += [f"A client did not get its result: {t}" for t in strategy.undelivered]
        for client in strategy.clients:
            if client.joined:
                result.notes.append(
                    f"Client {client.name} came late, before round {client.joined}."
                )
            if client.failures:
                result.notes.append(
                    f"Client {client.name} was left out of {client.failures} rounds; last reason: "
                    f"{client.last_failure}"
                )
            if client.out_of_range:
                result.notes.append(_out_of_range(client, self.config.norm_bound))

    def _account(self, strategy: Rounds) -> None:
        """Tell what was released, also where the run ended before its study could."""
        names = [client.name for client in strategy.clients]
        if not self.result.ledger and any(map(self.ledger.series, names)):
            claim = {"claim": "The run did not come to its end. This was released until then."}
            self.result.ledger = self.ledger.report(names, claim)

    def _collect_scores(self, strategy: Rounds) -> None:
        """Put held-out scores into the result, the means into its headline and its last round."""
        named = {strategy.clients[c].name: table for c, table in sorted(strategy.scores.items())}
        self.result.scores = gather(named)
        means = numbers(self.result.scores)
        for name, value in means.items():
            self.result.headline.setdefault(name, value)
        if strategy.progress.rows and means:
            strategy.progress.rows[-1] = {**means, **strategy.progress.rows[-1]}
        if self.config.held_out and self.result.status == "completed" and not means:
            self.result.notes.append(_no_scores(self.config, bool(strategy.evaluated)))
        elif means and self.config.privacy != "none":
            self.result.notes.append(
                "Held-out scores were gathered for evaluation, as this is a simulation. On devices "
                "they stay with their owners."
            )

    def write_report(self) -> None:
        """Write ``report.html`` and the graphs, where a folder, matplotlib and Jinja2 are there.

        The last that a run does: its folder is free for another one then.
        """
        if self.folder is None:
            log.warning("nothing is kept: set out to an absolute folder for results and report")
            return
        try:
            if self.report:
                self._write_report(self.folder)
        finally:
            if self._lock is not None:
                self._lock.release()

    def _write_report(self, folder: Path) -> None:
        try:
            # Here: a run that keeps nothing, and every one until its end, does without.
            from trellis.apps.pages.clients.once import sharing
            from trellis.apps.pages.report import write_report

            study = study_module(self.result.study, "report")
            path, words = folder / "report.html", wording(self.result.study)
            with sharing():
                note_written(folder, study.export_graphs(self.result, folder))
                write_report(self.result, study.sections(self.result), path, words)
        except ImportError as error:
            log.warning("no report: %s; then: trellis report %s", error, folder)


@contextmanager
def _written_as_they_end(strategy: Rounds, folder: Path | None) -> Iterator[None]:
    """Have rounds written into ``metrics.csv``, where there is a folder, before they are told."""
    if folder is None:
        yield
        return
    tell = strategy.on_round
    with MetricsFile(folder) as file:

        def written(row: Row) -> None:
            file.add(strategy.progress.rows)
            tell(row)

        strategy.on_round = written
        yield


def _end(error: BaseException, *, resumable: bool) -> tuple[str, str]:
    """Return the status of a run that ended early, and a note on it in words."""
    go_on = "; it can be resumed from its last checkpoint" if resumable else ""
    if isinstance(error, SystemExit):  # what Flower raises in a ServerApp for `flwr stop`
        return "stopped", f"The run was stopped before its end, by flwr stop or a signal{go_on}."
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", f"The run was interrupted{go_on}."
    return "failed", f"The run stopped: {said(error)}"


def _who_scores(config: StudyConfig) -> Literal["nobody", "simulated", "all"]:
    """Return who tells how the result does on held-out records: devices without privacy only."""
    if not config.held_out:
        return "nobody"
    return "all" if config.privacy == "none" else "simulated"


def _no_scores(config: StudyConfig, asked: bool) -> str:
    kept = f"held-out={config.held_out:g}: "
    if asked:
        return (
            kept
            + "no client told a score: the method has no model, or clients have too few records."
        )
    return kept + "scores of held-out records stay on the devices, on their owners' pages."


def _out_of_range(client: Client, bound: float) -> str:
    told = f"Client {client.name} sent {client.out_of_range} replies beyond norm-bound={bound:g}"
    if client.left_out:
        told += f"; it was left out for good in round {client.left_out}"
    return f"{told}."


def wording(study: str) -> Wording:
    """Return what a study calls its numbers in a report: ``WORDING`` of its report module."""
    found: Wording = getattr(study_module(study, "report"), "WORDING", Wording())
    return found


def _seed(run_config: Mapping[str, Any]) -> int:
    value = run_config.get("seed", 1)
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise ConfigError(f"seed={value!r}: must be a whole number >= 0")
    return int(value)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def kept_folder(study: str, run_id: int) -> Path:
    """Return where a run of Flower is kept that names no folder.

    Not in the current directory, which is that of whoever started the SuperLink.
    """
    home = Path(os.environ.get("TRELLIS_HOME") or Path.home() / ".trellis")
    if not home.is_absolute():
        raise ConfigError(f"TRELLIS_HOME={str(home)!r}: must be an absolute path")
    return home / "runs" / f"{study}-{time.strftime('%Y%m%d-%H%M%S')}-{run_id}"


def _folder(out: str) -> Path | None:
    if not out:
        return None
    folder = Path(out)
    if not folder.is_absolute():
        raise ConfigError(f"out={out!r}: must be an absolute path; runtimes change directory")
    return folder
