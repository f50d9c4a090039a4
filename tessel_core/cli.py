"""The same verbs from a terminal.  Results go to stdout, progress and errors to stderr."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.exceptions import TyperException

from tessel_core.errors import InputError

if TYPE_CHECKING:
    from tessel_core.control import Control
    from tessel_core.formats.files import Contents
    from tessel_core.model import MicroBatchPlan, ScheduleReport
    from tessel_core.rules import Violation

app = typer.Typer(
    name="tessel",
    help="Find, prove, compare and look at schedules of networks that do not fit on one device.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

_LOOPBACK = "127.0.0.1"

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Out = Annotated[Path | None, typer.Option("--out", help="File to write; nothing is written without a solution.")]


@app.command("app")
def open_app(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on the loopback interface.")] = 8501,
    headless: Annotated[bool, typer.Option(help="Do not open a browser window.")] = False,
) -> None:
    """Open the browser app on loopback."""
    import subprocess

    script = Path(__file__).resolve().parent.parent / "app.py"
    if not script.exists():
        raise InputError(str(script), "is missing; the app runs from a checkout of the project")
    if _taken(port):
        raise InputError("--port", f"{port} is in use on this machine; is the app open already? Else choose another")
    sys.stderr.write(f"Tessel Explorer is at http://{_LOOPBACK}:{port} (Ctrl-C stops it)\n")
    command = [sys.executable, "-m", "streamlit", "run", str(script), f"--server.address={_LOOPBACK}"]
    command += [f"--server.port={port}", f"--server.headless={str(headless).lower()}"]
    with contextlib.suppress(KeyboardInterrupt):
        raise typer.Exit(subprocess.call(command, cwd=script.parent))


def _taken(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex((_LOOPBACK, port)) == 0


@app.command()
def samples(
    name: Annotated[str | None, typer.Argument(help="Sample to write; all are listed without it.")] = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """List the samples, or write one."""
    from tessel_core import samples as catalogue
    from tessel_core.cli_output import print_samples
    from tessel_core.formats import plan_text, write_file

    if name is None:
        print_samples(catalogue.list_samples(), as_json=json)
        return
    text = plan_text(catalogue.load_sample(name))
    if out is None:
        sys.stdout.write(text)
    else:
        write_file(out, text)


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(help="Plans, schedules and workspaces.")],
    json: Json = False,
) -> None:
    """Ask the referee about any tessel file; exit 1 where one is not valid."""
    from tessel_core.cli_output import print_verdicts
    from tessel_core.formats import read_file

    verdicts = [(str(path), _violations(read_file(path))) for path in files]
    print_verdicts(verdicts, as_json=json)
    raise typer.Exit(1 if any(violations for _, violations in verdicts) else 0)


def _violations(found: Contents | None) -> list[Violation]:
    """A plan that could be read is valid; a schedule has rules to keep and claims to live up to."""
    from tessel_core.formats import ScheduleFile, WorkspaceFile
    from tessel_core.rules import check_claims, check_schedule

    if isinstance(found, WorkspaceFile):
        return _violations(found.opened)
    if not isinstance(found, ScheduleFile):
        return []
    broken, report = check_schedule(found.schedule), found.report
    if report is None:
        return broken
    claims = check_claims(found.schedule, report.status, report.objective_name, report.objective, report.bound)
    return broken + list(claims)


def schedule(
    plan: Path, scheduler: str, micro_batches: int, memory: int | None, out: Path | None, json: bool, **given: Any
) -> None:
    """Search or build a schedule of a plan."""
    from tessel_core.cli_output import print_schedule
    from tessel_core.formats import check_place, schedule_text, write_file

    if out is not None:
        check_place(out)
    problem = _plan_in(plan)
    if memory is not None:
        problem = problem.with_capacity(memory)
    report = _solve(scheduler, problem, micro_batches, _config(scheduler, given))
    if out is not None and report.solution is not None:
        write_file(out, schedule_text(report.solution, report))
    print_schedule(problem, report, as_json=json)
    raise typer.Exit(0 if report.solution is not None else 1)


def _plan_in(path: Path) -> MicroBatchPlan:
    from tessel_core.formats import ScheduleFile, WorkspaceFile, read_file

    found = read_file(path)
    if isinstance(found, WorkspaceFile):
        return found.plan
    return found.schedule.plan if isinstance(found, ScheduleFile) else found


def _config(scheduler: str, given: dict[str, Any]) -> object:
    """The scheduler's config from the options that were given; those that it does not have are left out, and said."""
    from tessel_core.scheduling import find_scheduler

    config = find_scheduler(scheduler).config
    known = {field.name for field in fields(config)}
    chosen = {name: value for name, value in given.items() if value is not None}
    for name in sorted(chosen.keys() - known):
        sys.stderr.write(f"note: --{name.replace('_', '-')} has no effect on scheduler {scheduler}\n")
    return config(**{name: value for name, value in chosen.items() if name in known})


def _solve(scheduler: str, plan: MicroBatchPlan, micro_batches: int, config: object) -> ScheduleReport:
    from concurrent.futures import ThreadPoolExecutor

    from tessel_core.cli_output import ProgressLine
    from tessel_core.control import Control
    from tessel_core.scheduling import solve_schedule

    with ProgressLine(plan) as line:
        control = Control(on_progress=line.show)
        # Python runs signal handlers on the main thread only, which must not be busy inside the solver.
        with _interrupt_cancels(control), ThreadPoolExecutor(max_workers=1) as aside:
            return aside.submit(solve_schedule, scheduler, plan, micro_batches, config, control).result()


@contextlib.contextmanager
def _interrupt_cancels(control: Control) -> Iterator[None]:
    """Ctrl-C keeps the best so far instead of throwing it away."""
    before = signal.signal(signal.SIGINT, lambda *_: control.cancel())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _add_schedule_command() -> None:
    """`tessel schedule` has the options of every scheduler's config: a new one brings its own."""
    import inspect

    from tessel_core.options import options_of
    from tessel_core.scheduling import DEFAULT_SCHEDULER, SCHEDULERS

    parameters = {
        "plan": Annotated[Path, typer.Argument(help="A tessel-plan file, or a schedule whose plan to use.")],
        "scheduler": Annotated[str, typer.Option(help=f"One of {', '.join(SCHEDULERS)}.")],
        "micro_batches": Annotated[int, typer.Option(help="How many micro-batches to schedule.")],
        "memory": Annotated[int | None, typer.Option(help="Replaces every device's memory_capacity.")],
        "out": Out,
        "json": Json,
    }
    defaults: dict[str, Any] = {"scheduler": DEFAULT_SCHEDULER, "micro_batches": 32, "memory": None, "out": None}
    defaults["json"] = False
    for each in SCHEDULERS.values():
        for name, (shown, default) in options_of(each.config).items():
            text = f"{shown.label}: {shown.help} [dim](default {default}{' ' + shown.unit if shown.unit else ''})[/dim]"
            parameters.setdefault(name, Annotated[type(default) | None, typer.Option(help=text, show_default=False)])
            defaults.setdefault(name, None)
    kind = inspect.Parameter.KEYWORD_ONLY
    schedule.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, kind, default=defaults.get(name, inspect.Parameter.empty), annotation=annotation)
            for name, annotation in parameters.items()
        ]
    )
    schedule.__annotations__ = dict(parameters)
    app.command()(schedule)


def main() -> None:
    """Run the command line; one line and exit code 2 for wrong input, never a traceback for it."""
    try:
        _add_schedule_command()
        sys.exit(app(standalone_mode=False) or 0)
    except InputError as error:
        _fail(str(error))
    except TyperException as error:
        # What typer says of usage, as one line; it has already printed the help where no command was given.
        message = error.format_message()
        _fail(f"{' '.join(['tessel', *sys.argv[1:2]])}: {message}") if message else sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)


def _fail(message: str) -> NoReturn:
    sys.stderr.write(f"error: {' '.join(message.split())}\n")
    sys.exit(2)


if __name__ == "__main__":
    main()
