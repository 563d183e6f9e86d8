"""The commands, in the order of their use. Modules that are slow to import wait until a command needs them."""

import json
import os
import re
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from unbag._utils.files import raise_if_input, write_atomic
from unbag._utils.terminal import Terminal, visible
from unbag.cli.display import make_table, show_checked, show_columns, show_fit, show_problems
from unbag.cli.shared import FILE_OPTIONS, OPTIONS, check_writable, command, passed, select_options, split
from unbag.persistence.run_folder import REPORT, SUMMARY, Run
from unbag.tables.options import WHERE, Protection, options_of

DEMO_TITLE = "Digits from counts in groups of six"
INSTANCES = (
    "One row per instance: CSV, Excel, Parquet, a folder of Parquet files, or a folder with an array for each bag "
    "(.npy, .pt, .safetensors, .h5)."
)
GROUPS = "One row per group, pair or triplet, with its observation."
Instances = Annotated[Path, Argument(help=INSTANCES)]
Groups = Annotated[Path, Argument(help=GROUPS)]
RunFolder = Annotated[Path, Argument(metavar="RUN", help="The folder of a finished run.")]
OutFile = Annotated[Path, Option("--out", "-o", help="The file to write, ending in .csv or .parquet.")]
OutPage = Annotated[Path | None, Option("--out", help="Where to write the page.", show_default="report.html in RUN")]
OutFolder = Annotated[Path, Option("--out", help="The folder to write the report to.")]
OutRun = Annotated[
    Path | None, Option("--out", "-o", metavar="RUN", help="The folder of the run; required here or in --config.")
]
Seed = Annotated[int, Option(min=0, help="Seed of the groups and of the models.")]
RawText = Annotated[
    bool, Option("--raw-text", help="Write text to CSV unchanged, even if a spreadsheet runs it as a formula.")
]
Published = Annotated[
    Path | None, Option(help="TOML file that describes how the counts were published; by default FILE.published.toml.")
]
ENGINE = "local: this process; ray: a cluster (RAY_ADDRESS), or workers of this machine."
Engine = Annotated[Literal["local", "ray"], Option(rich_help_panel=WHERE, help=ENGINE)]
Json = Annotated[bool, Option("--json", help="Print JSON instead of text.")]
Also = Annotated[list[str] | None, Option(metavar="KIND=FILE", help="A further file of observations; may be repeated.")]


@command("unbag demo --out unbag-demo")
def demo(out: OutFolder = Path("unbag-demo"), seed: Seed = 0) -> None:
    """Learn to read digits from counts in groups of six, and compare with other methods, in a minute or two."""
    _check_demo_folder(out)
    progress = Terminal(stderr=True, highlight=False, markup=False)
    with progress.status("starting"):
        from unbag.cli.demo import run  # noqa: PLC0415
    folder = Run(out)
    summary = run(DEMO_TITLE, seed, report=progress.print)
    rows = [(row["method"], f"{row['accuracy']:.1%}", f"{row['seconds']:.0f}") for row in summary["comparison"]]
    title = "Accuracy on new images, which no method has used"
    Terminal().print(make_table(("method", "accuracy", "seconds"), rows, title=title))
    write_atomic(folder.summary, f"{json.dumps(summary, allow_nan=False)}\n".encode())
    _write_page(summary, folder.report)


@command("unbag check people.csv wards.csv", FILE_OPTIONS)
def check(
    instances: Instances,
    groups: Groups,
    *,
    also: Also = None,
    published: Published = None,
    strict: Annotated[bool, Option("--strict", help="Exit with code 1 if there are warnings.")] = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Show how two files are understood, and list their problems.

    Columns are found by their names; use options if yours have other names.

    The exit code is 0 without problems, 1 with warnings if --strict is set, and 2 with errors.
    """
    from unbag.tables import check_tables, make_plan  # noqa: PLC0415

    files = {"instances": instances, "groups": groups, "published": published, "also": _read_also(also)}
    checked = check_tables(make_plan(passed({**options, **files})))
    worst = checked.worst()
    if as_json:
        _print_json(checked.problems, result=worst, understood=checked.understood)
    else:
        show_checked(Terminal(), checked)
    if worst == "error" or (worst == "warning" and strict):
        raise typer.Exit(2 if worst == "error" else 1)


@command("unbag fit people.csv wards.csv --out run", OPTIONS)
def fit(
    instances: Annotated[Path | None, Argument(help=INSTANCES)] = None,
    groups: Annotated[Path | None, Argument(help=GROUPS)] = None,
    *,
    out: OutRun = None,
    also: Also = None,
    published: Published = None,
    config: Annotated[
        Path | None, Option(help="TOML file with any of these options; the command line takes precedence.")
    ] = None,
    force: Annotated[bool, Option("--force", help="Replace the run in the folder.")] = False,
    engine: Engine = "local",
    as_json: Json = False,
    **options: Any,
) -> None:
    """Fit a classifier to two files, and save the run in a folder.

    Columns are found by their names, as unbag check shows.

    Ctrl-C ends training with the best result so far, a second one at once. A network that is trained by Algorithm 1 is
    saved while it is trained: the same command resumes an interrupted run.
    """
    from unbag._utils.problems import fail  # noqa: PLC0415
    from unbag.tables import fit_tables, make_plan, read_config  # noqa: PLC0415
    from unbag.training.processes import Launcher, ProcessLost  # noqa: PLC0415

    files = {"instances": instances, "groups": groups, "published": published, "also": _read_also(also), "out": out}
    options = {**(read_config(config) if config is not None else {}), **passed({**options, **files})}
    if options.get("out") is None:
        raise fail("name the folder of the run, with --out or as out = ... in the file of settings")
    run = Run(Path(options["out"]))
    if engine == "ray" or "WORLD_SIZE" in os.environ:  # of torchrun
        options.setdefault("devices", "auto")
    plan = make_plan(options)
    network, device = plan.training.network, plan.training.device
    if engine == "ray" and network is not None:
        from unbag.tables.cluster import fit_on_cluster  # noqa: PLC0415

        typer.echo(fit_on_cluster(_without_processes(sys.argv[2:]), network, device), nl=False)
        return
    if network is not None and not Launcher(network.devices, network.nodes, device).first:
        with TemporaryDirectory() as folder:  # the first process keeps the run
            fit_tables(plan, Run(Path(folder)), rows=run.rows)
        return
    try:
        on_read = (lambda loaded: None) if as_json else _show_read
        fitted = fit_tables(plan, run, force=force, verbose=not as_json, on_read=on_read)
    except (KeyboardInterrupt, ProcessLost) as error:
        _show_how_to_resume(run)
        if isinstance(error, ProcessLost):
            raise
        raise typer.Exit(130) from None
    if as_json:
        _print_json(fitted.problems, run=str(run.folder), summary=fitted.summary)
    else:
        show_problems(Terminal(stderr=True), fitted.problems)
        show_fit(Terminal(), fitted)


@command("unbag report unbag-demo --out digits.html")
def report(run: RunFolder, out: OutPage = None) -> None:
    """Make one HTML page of a run: its data, quality and limitations."""
    from unbag._utils.problems import failing  # noqa: PLC0415 (numpy is slow to import)
    from unbag.report import check_format  # noqa: PLC0415

    folder = Run(run)
    out = folder.report if out is None else out
    summary = folder.read_summary()
    with failing(str(folder.summary)):
        check_format(summary)
    raise_if_input(out, folder.inputs)
    _write_page(summary, out)


@command("unbag predict run people.csv --out predicted.csv", select_options("id", "group", "aggregate", "device"))
def predict(
    run: RunFolder,
    instances: Instances,
    *,
    out: OutFile,
    keep: Annotated[str | None, Option(help="Further columns to copy: name,town.")] = None,
    groups: Annotated[
        Path | None,
        Option(help="Predict groups, pairs or triplets: a file with their ids, or the instances if they name groups."),
    ] = None,
    raw_text: RawText = False,
    engine: Engine = "local",
    as_json: Json = False,
    **options: Any,
) -> None:
    """Predict the class of each row, or the observation of each group, with probabilities.

    The file of instances is read piece by piece, so that it may be larger than the memory. With --engine ray, several
    workers predict a folder of Parquet parts, and --out is a new folder of parts.
    """
    from unbag._utils.problems import fail  # noqa: PLC0415
    from unbag.tables import predict_groups_table, predict_table  # noqa: PLC0415
    from unbag.tables.cluster import predict_on_cluster  # noqa: PLC0415

    arguments = passed(options)
    if groups is None and (wrong := [f"--{name}" for name in ("group", "aggregate") if name in arguments]):
        raise fail(f"{wrong[0]} applies to groups; name their file with --groups")
    if groups is not None and keep is not None:
        raise fail("--keep copies columns of rows, which are not written with --groups; leave it out")
    if groups is not None and engine == "ray":
        raise fail("--engine ray predicts rows; leave --groups out, or predict groups with --engine local")
    if engine == "local":
        check_writable(out)
        arguments["raw_text"] = raw_text
    if groups is not None:
        written = predict_groups_table(Run(run), instances, groups, out, **arguments)
    else:
        write: Any = predict_on_cluster if engine == "ray" else predict_table
        written = write(Run(run), instances, out, keep=split(keep or ""), **arguments)
    _show_written("rows" if groups is None else "groups", written, out, as_json)


@command(
    "unbag disaggregate run people.csv wards.csv --out labels.csv",
    select_options("aggregate", "drop_unmatched", "device"),
)
def disaggregate(
    run: RunFolder,
    instances: Instances,
    groups: Groups,
    *,
    out: OutFile,
    raw_text: RawText = False,
    engine: Engine = "local",
    as_json: Json = False,
    **options: Any,
) -> None:
    """Write the probability of each class for rows in observed groups, given the observations.

    Options of the fit, such as --drop-unmatched and --missing-members, apply here, too.
    """
    from unbag.tables.cluster import disaggregate_on_cluster  # noqa: PLC0415
    from unbag.tables.predict import disaggregate_table  # noqa: PLC0415

    check_writable(out)
    write: Any = disaggregate_on_cluster if engine == "ray" else disaggregate_table
    written = write(Run(run), instances, groups, out, raw_text=raw_text, **passed(options))
    _show_written("lines", written, out, as_json)


@command("unbag protect wards.csv --epsilon 1 --out protected.csv", options_of(Protection))
def protect(
    counts: Annotated[Path, Argument(help="One row per group: its id, and an exact count for each class.")],
    *,
    out: OutFile,
    force: Annotated[bool, Option("--force", help="Replace an earlier protected table.")] = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Make a table of noisy, rounded or suppressed counts from exact counts.

    A small file next to it describes the protection to unbag check and fit. Copy or move both files together.
    """
    from unbag.tables.published_files import protect_counts  # noqa: PLC0415

    check_writable(out)
    written = protect_counts(counts, out, Protection(**passed(options)), force=force)
    _show_written("groups", written, out, as_json)


def _check_demo_folder(folder: Path) -> None:
    """Make the folder; raise an error if it contains anything but the results of an earlier demonstration."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; name a folder with --out")
    others = {path.name for path in folder.iterdir()} if folder.exists() else set()
    with suppress(OSError, ValueError, KeyError, TypeError):
        if json.loads((folder / SUMMARY).read_bytes())["title"] == DEMO_TITLE:
            others -= {SUMMARY, REPORT}
    if others:
        raise FileExistsError(f"{folder} has other files, such as {min(others)}; name another folder with --out")
    folder.mkdir(parents=True, exist_ok=True)
    check_writable(Run(folder).report)


def _write_page(summary: dict[str, Any], path: Path) -> None:
    from unbag.report import render  # noqa: PLC0415

    check_writable(path)
    write_atomic(path, render(summary).encode())
    Terminal(soft_wrap=True).print(f"The report is in {visible(os.path.abspath(path))}", highlight=False, markup=False)


def _show_read(loaded: Any) -> None:
    for observed in loaded.observed:
        show_columns(Terminal(stderr=True), observed.table.file, [read._asdict() for read in observed.read])


def _print_json(problems: list[Any], **content: Any) -> None:
    typer.echo(json.dumps({**content, "problems": [problem.as_dict() for problem in problems]}, indent=1))


def _without_processes(arguments: list[str]) -> list[str]:
    """Return the arguments of fit without the engine and the number of processes."""
    joined = "\0".join(arguments)
    return re.sub(r"(^|\0)--(engine|devices|nodes)[=\0][^\0]*", "", joined).strip("\0").split("\0")


def _read_also(written: list[str] | None) -> list[dict[str, str]] | None:
    files = []
    for text in written or []:
        if (parts := re.fullmatch(r"([^=(]*(?:\([^)]*\))?)=(.*)", text)) is None:
            raise typer.BadParameter(f"--also must be KIND=FILE, such as pairwise_similarity=pairs.csv; got {text!r}")
        files.append({"aggregate": parts[1], "file": parts[2]})
    return files or None


def _show_how_to_resume(run: Run) -> None:
    console = Terminal(stderr=True, soft_wrap=True, highlight=False, markup=False)
    if not run.head.exists() or run.read()["status"] == "finished":
        console.print("Stopped before anything was saved; nothing was written.")
        return
    command = visible(shlex.join(["unbag", *sys.argv[1:]]))
    folder = visible(run.folder)
    console.print(f"Stopped. The run in {folder} is not finished; to resume it from the last checkpoint:\n  {command}")


def _show_written(what: str, written: tuple[int, list[Any]], out: Path, as_json: bool) -> None:
    """Print notes, and the number of rows that were written."""
    count, problems = written
    if as_json:
        _print_json(problems, **{what: count, "file": str(out)})
        return
    show_problems(Terminal(stderr=True), problems)
    Terminal(soft_wrap=True, highlight=False, markup=False).print(f"{count:,} {what} written to {visible(out)}")
