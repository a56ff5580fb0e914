"""The ``trellis`` command."""

from __future__ import annotations

import argparse
import logging
import sys
import tomllib
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.logging import RichHandler
from rich.table import Table as RichTable

import apps
from apps.recording import wording
from apps.runner import ENGINES, run
from sim.config import ConfigError
from sim.progress import LiveDisplay, listening
from sim.record import RunResult
from sim.tables import DataError

# What a user can mend; everything else is a defect and shows its trace.
_USER_ERRORS = (ValueError, RuntimeError, OSError, ImportError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = _parser().parse_args(arguments)
    console = Console()
    _set_up_logging(options.verbose)
    try:
        return int(options.act(options, console) or 0)
    except KeyboardInterrupt:
        console.print("[yellow]interrupted[/]; nothing already computed is lost")
        out = getattr(options, "resume", None) or getattr(options, "out", None)
        if out:
            console.print(f"go on with: trellis run {options.study} --resume {out}", soft_wrap=True)
        return 130
    except _USER_ERRORS as error:
        if options.verbose:
            raise
        console.print(f"[red]error:[/] {_escape(str(error))}", soft_wrap=True, highlight=False)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trellis", description="Federated graph learning under privacy, on Flower."
    )
    parser.add_argument("--verbose", action="store_true", help="log everything, show traces")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    listing = commands.add_parser("list", help="the studies, their settings and figures")
    listing.set_defaults(act=_list)

    running = commands.add_parser("run", help="run a study (or all)")
    running.add_argument("study", choices=[*apps.STUDIES, "all"], metavar="STUDY")
    running.add_argument("--config", type=Path, metavar="FILE.toml", help="settings from a file")
    running.add_argument("--data", type=Path, metavar="DIR", help="one file a client")
    running.add_argument("--engine", choices=ENGINES, default="local")
    running.add_argument("--seed", type=int, default=None)
    running.add_argument("--out", type=Path, metavar="DIR", help="keep result and report here")
    running.add_argument("--resume", type=Path, metavar="DIR", help="go on with the run in DIR")
    running.add_argument("--workers", type=int, default=0, help="threads of the local engine")
    running.set_defaults(act=_run)

    paper = commands.add_parser("paper", help="reproduce a paper's figures and tables")
    paper.add_argument("study", choices=list(apps.STUDIES), metavar="STUDY")
    paper.add_argument("figures", nargs="*", metavar="FIGURE", help="all of them by default")
    paper.add_argument("--out", type=Path, default=Path("results/paper"), metavar="DIR")
    paper.set_defaults(act=_paper)

    audit = commands.add_parser("audit", help="attack a study's privacy claims")
    audit.add_argument("study", choices=list(apps.STUDIES), metavar="STUDY")
    audit.add_argument("--trials", type=int, default=1_000_000, help="runs on each data set")
    audit.add_argument("--seed", type=int, default=1)
    audit.set_defaults(act=_audit)
    for command in (running, audit):
        command.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            dest="settings",
            help="a setting of the study; may be repeated",
        )

    report = commands.add_parser("report", help="(re)make the HTML report of a run")
    report.add_argument("folder", type=Path, metavar="DIR")
    report.set_defaults(act=_report)
    return parser


def _list(options: argparse.Namespace, console: Console) -> None:
    from apps.runner import config_class

    for study in apps.STUDIES:
        about = (
            (import_module(apps.STUDIES[study]).__doc__ or "").strip().removeprefix(f"{study}: ")
        )
        console.print(f"[bold]{study}[/]  {about}")
        settings = config_class(study)().settings()
        console.print("  settings: " + ", ".join(f"{k}={v}" for k, v in settings.items()))
        console.print("  figures:  " + ", ".join(apps.study_module(study, "paper").FIGURES))


def _run(options: argparse.Namespace, console: Console) -> int:
    if options.study == "all":
        return _run_all(options, console)
    settings, seed, data, out = _requested(options)
    with LiveDisplay(console) as display, listening(display):
        result = run(
            options.study,
            settings,
            data=data,
            engine=options.engine,
            seed=seed,
            out=out,
            resume=options.resume is not None,
            workers=options.workers,
        )
        display.finish(options.study)
    _show(console, [result])
    return 0


def _requested(
    options: argparse.Namespace,
) -> tuple[dict[str, Any], int, Path | None, Path | None]:
    """Return settings, seed, data and output folder: from the run to resume, file and options."""
    settings: dict[str, Any] = {}
    seed, data, out = 1, options.data, options.out
    if options.resume is not None:
        before = RunResult.load(options.resume)
        if before.study != options.study:
            raise ConfigError(f"{options.resume} holds a run of {before.study}")
        settings, seed, out = dict(before.config), before.seed, options.resume
        data = data or (Path(before.data) if before.data else None)
    if options.config is not None:
        settings |= _settings_file(options.config, options.study)
    settings |= _assignments(options)
    return settings, seed if options.seed is None else options.seed, data, out


def _assignments(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings given as ``--set KEY=VALUE``."""
    settings = {}
    for assignment in options.settings:
        key, separator, text = assignment.partition("=")
        if not separator:
            raise ConfigError(f"--set {assignment}: write KEY=VALUE")
        settings[key.strip().removeprefix(f"{options.study}.")] = _value(text.strip())
    return settings


def _settings_file(path: Path, study: str) -> dict[str, Any]:
    """Return the settings of ``study`` in a TOML file, flat or in a table of the study's name."""
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not a TOML file ({error})") from None
    if content.pop("study", study) != study:
        raise ConfigError(f"{path}: settings of another study")
    if study in content:
        content |= content.pop(study)
    return content


def _value(text: str) -> Any:
    """Return a setting typed as TOML; what is not TOML is text, so quotes are not needed."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def _run_all(options: argparse.Namespace, console: Console) -> int:
    from sim.report import write_index

    out = (options.out or Path("results")).resolve()
    results, failed = [], 0
    with LiveDisplay(console) as display, listening(display):
        for study in apps.STUDIES:
            try:
                seed = 1 if options.seed is None else options.seed
                results.append(run(study, engine=options.engine, seed=seed, out=out / study))
                display.finish(study)
            except _USER_ERRORS as error:  # the others go on
                failed += 1
                console.print(f"[red]{study} failed:[/] {_escape(str(error))}")
                if (out / study / "run.json").is_file():
                    results.append(RunResult.load(out / study))
    _show(console, results)
    words = {study: wording(study) for study in apps.STUDIES}
    path = write_index(results, out / "index.html", words)
    console.print(f"report: {path}", soft_wrap=True)
    return 1 if failed else 0


def _show(console: Console, results: Sequence[RunResult]) -> None:
    """Print the closing table."""
    for result in results:
        for note in result.notes:
            console.print(f"[yellow]{result.study}:[/] {_escape(note)}", soft_wrap=True)
    table = RichTable(title="Trellis")
    table.add_column("study", no_wrap=True)
    for column in ("rounds", "time", "sent up, down", "privacy"):
        table.add_column(column)
    table.add_column("result", no_wrap=True)
    for result in results:
        table.add_row(
            f"{result.study}\n{result.status}",
            str(len(result.metrics)),
            f"{result.seconds:.2f} s",
            f"{result.bytes_up / 1e3:,.0f} kB\n{result.bytes_down / 1e3:,.0f} kB",
            _privacy(result.ledger),
            "\n".join(f"{k} {v:.4g}" for k, v in result.headline.items() if k != "rounds"),
        )
    console.print(table)
    for result in results:
        if result.folder is not None:
            console.print(f"kept in {result.folder}", soft_wrap=True)


def _privacy(ledger: Mapping[str, Any]) -> str:
    mode = str(ledger.get("mode", "none"))
    return f"{mode}, epsilon {ledger['epsilon']:.3g}" if ledger.get("epsilon") else mode


def _paper(options: argparse.Namespace, console: Console) -> None:
    module = apps.study_module(options.study, "paper")
    known = {**module.FIGURES, **module.ON_REQUEST}
    wanted = options.figures or list(module.FIGURES)
    for name in wanted:
        if name not in known:
            raise ConfigError(f"{name}: unknown figure; use one of {', '.join(known)}")
    for name in wanted:
        try:
            known[name](options.out / options.study, console)
        except DataError as error:
            if options.figures:
                raise
            console.print(f"[yellow]{name} skipped:[/] {_escape(str(error))}", soft_wrap=True)


def _audit(options: argparse.Namespace, console: Console) -> None:
    if find_spec(f"{apps.STUDIES[options.study]}.audit") is None:
        raise ConfigError(f"{options.study} has no audits")
    audits = apps.study_module(options.study, "audit").audits
    findings = audits(_assignments(options), trials=options.trials, seed=options.seed)
    table = RichTable(
        title=f"{options.study}: epsilon claimed, and found by attack", show_lines=True
    )
    for column in ("mechanism", "claimed (delta)", "attack shows", "verdict"):
        table.add_column(column, no_wrap=column != "attack shows")
    for finding in findings:
        result = finding.result
        table.add_row(
            finding.mechanism,
            f"{finding.claimed:.4g} ({result.delta:.3g})",
            f">= {result.epsilon_lower:.3g}",
            f"[{'red' if finding.refuted else 'green'}]{finding.verdict}[/]",
        )
    console.print(table)
    console.print(
        *(f"{finding.mechanism}: {finding.setting}\n" for finding in findings),
        f"{result.trials:,} runs on each of two neighbouring data sets, at "
        f"{result.confidence:.0%}; so many show an epsilon of {result.ceiling:.3g} at most",
        sep="",
        soft_wrap=True,
    )


def _report(options: argparse.Namespace, console: Console) -> None:
    from sim.report import write_report

    result = RunResult.load(options.folder)
    module = apps.study_module(result.study, "report")
    if result.arrays:
        module.export_graphs(result, options.folder)
    path, words = options.folder / "report.html", wording(result.study)
    write_report(result, module.sections(result), path, words)
    console.print(f"report: {path}", soft_wrap=True)


def _escape(text: str) -> str:
    return text.replace("[", "\\[")


def _set_up_logging(verbose: bool) -> None:
    handler = RichHandler(console=Console(stderr=True), show_path=False, show_time=False)
    logger = logging.getLogger("trellis")
    logger.handlers = [handler]
    logger.setLevel(logging.DEBUG if verbose else logging.WARNING)
    logging.getLogger("flwr").setLevel(logging.INFO if verbose else logging.WARNING)


if __name__ == "__main__":
    sys.exit(main())
