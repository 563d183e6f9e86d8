"""``unbag check``, ``fit``, ``predict`` and ``disaggregate``: from two files to predictions."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from unbag.cli.shared import check_writable, plain_errors
from unbag.cli.tables_shown import show_checked, show_learned, show_problems
from unbag.run_folder import Run
from unbag.terminal import Terminal, visible

KINDS = "label_proportions, multiple_instance, pairwise_similarity, triplet_comparison, ordinal_rank or ordinal_triplet"

Instances = Annotated[Path, typer.Argument(help="One row per instance: CSV, Parquet, or a folder of Parquet files.")]
Groups = Annotated[Path, typer.Argument(help="One row per group, pair or triplet, with what was observed of it.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")]
OutFile = Annotated[Path, typer.Option("--out", "-o", help="The file to write, ending in .csv or .parquet.")]
RawText = Annotated[
    bool, typer.Option("--raw-text", help="Write text to CSV as it is, also what a spreadsheet runs as a formula.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON in place of text.")]
Device = Annotated[str | None, typer.Option(help="Where to compute, for example cuda.", rich_help_panel="Training")]
Drop = Annotated[
    bool | None,
    typer.Option(
        "--drop-unmatched", help="Leave out rows and groups without a partner in the other file, and say which."
    ),
]

COLUMNS = "Columns"
Aggregate = Annotated[str | None, typer.Option("--aggregate", "-a", help=f"What was observed: {KINDS}.")]
Also = Annotated[
    list[str] | None,
    typer.Option(metavar="KIND=FILE", help="A further file of observations; may be given several times."),
]
Id = Annotated[str | None, typer.Option("--id", help="The column of row ids.", rich_help_panel=COLUMNS)]
Group = Annotated[
    str | None, typer.Option("--group", help="The column of instances that names the group.", rich_help_panel=COLUMNS)
]
GroupInGroups = Annotated[
    str | None, typer.Option(help="The same in the file of groups, if it differs.", rich_help_panel=COLUMNS)
]
Members = Annotated[
    str | None, typer.Option(help="The columns of row ids of pairs or triplets: a,b,c.", rich_help_panel=COLUMNS)
]
Observed = Annotated[str | None, typer.Option(help="The column of what was observed.", rich_help_panel=COLUMNS)]
Size = Annotated[str | None, typer.Option(help="The column of group sizes.", rich_help_panel=COLUMNS)]
Relation = Annotated[
    str | None,
    typer.Option(
        help="What 1 means for ranks: that the first is < (or >, <=, >=) the second.", rich_help_panel=COLUMNS
    ),
]
Features = Annotated[str | None, typer.Option(help="The columns to learn from: age,town.", rich_help_panel=COLUMNS)]
Exclude = Annotated[str | None, typer.Option(help="Columns not to learn from.", rich_help_panel=COLUMNS)]
Categorical = Annotated[
    str | None, typer.Option(help="Columns of numbers that are names of categories.", rich_help_panel=COLUMNS)
]
Trust = Annotated[
    str | None,
    typer.Option(
        help="Columns to learn from although they look like the answer or like an id.", rich_help_panel=COLUMNS
    ),
]
Label = Annotated[
    str | None, typer.Option(help="The column of true classes, used for judging alone.", rich_help_panel=COLUMNS)
]
Names = Annotated[
    str | None,
    typer.Option(
        "--names",
        help="A column with the class of a few rows, which name the classes of pairs and triplets.",
        rich_help_panel=COLUMNS,
    ),
]
Classes = Annotated[
    str | None, typer.Option(help="The classes; for proportions, the columns that count them.", rich_help_panel=COLUMNS)
]
NClasses = Annotated[
    int | None, typer.Option("--n-classes", help="How many classes there are.", rich_help_panel=COLUMNS)
]

LISTS = ("members", "features", "exclude", "categorical", "trust", "classes")


def check(
    ctx: typer.Context,
    instances: Instances,
    groups: Groups,
    *,
    aggregate: Aggregate = None,
    also: Also = None,
    id: Id = None,
    group: Group = None,
    group_in_groups: GroupInGroups = None,
    members: Members = None,
    observed: Observed = None,
    size: Size = None,
    relation: Relation = None,
    features: Features = None,
    exclude: Exclude = None,
    categorical: Categorical = None,
    trust: Trust = None,
    label: Label = None,
    names: Names = None,
    classes: Classes = None,
    n_classes: NClasses = None,
    drop_unmatched: Drop = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 where there are warnings.")] = False,
    as_json: Json = False,
) -> None:
    """Say how two files are understood, and list everything that is wrong with them.

    Exit code 0: nothing is; 1: there are warnings, with --strict; 2: there are errors.
    """
    options = _given(locals())
    with plain_errors(debug=ctx.obj):
        from unbag.tables import check_tables, make_plan  # noqa: PLC0415

        checked = check_tables(make_plan(options))
        worst = checked.worst()
        if as_json:
            problems = [one.as_dict() for one in checked.problems]
            typer.echo(json.dumps({"result": worst, "understood": checked.understood, "problems": problems}, indent=1))
        else:
            show_checked(Terminal(), checked)
    if worst == "error":
        raise typer.Exit(2)
    if worst == "warning" and strict:
        raise typer.Exit(1)


TRAINING = "Training"


def fit(
    ctx: typer.Context,
    instances: Annotated[Path | None, typer.Argument(help="One row per instance.")] = None,
    groups: Annotated[Path | None, typer.Argument(help="One row per group, pair or triplet.")] = None,
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="RUN", help="The folder to keep the run in.")
    ] = None,
    aggregate: Aggregate = None,
    also: Also = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file with any of these settings; the command line wins.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the run that the folder holds.")] = False,
    drop_unmatched: Drop = None,
    as_json: Json = False,
    id: Id = None,
    group: Group = None,
    group_in_groups: GroupInGroups = None,
    members: Members = None,
    observed: Observed = None,
    size: Size = None,
    relation: Relation = None,
    features: Features = None,
    exclude: Exclude = None,
    categorical: Categorical = None,
    trust: Trust = None,
    label: Label = None,
    names: Names = None,
    classes: Classes = None,
    n_classes: NClasses = None,
    model: Annotated[str | None, typer.Option(help="linear or mlp.", rich_help_panel=TRAINING)] = None,
    method: Annotated[str | None, typer.Option(help="uum or likelihood.", rich_help_panel=TRAINING)] = None,
    loss: Annotated[str | None, typer.Option(help="Loss of uum, for example gce.", rich_help_panel=TRAINING)] = None,
    epochs: Annotated[int | None, typer.Option(help="Most visits to each group.", rich_help_panel=TRAINING)] = None,
    warm_up: Annotated[int | None, typer.Option(help="Epochs of likelihood first.", rich_help_panel=TRAINING)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Groups a step.", rich_help_panel=TRAINING)] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of Adam.", rich_help_panel=TRAINING)] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Of Adam.", rich_help_panel=TRAINING)] = None,
    scaling: Annotated[
        str | None, typer.Option(help="auto, standard, table or none.", rich_help_panel=TRAINING)
    ] = None,
    n_restarts: Annotated[int | None, typer.Option(help="Models to choose from.", rich_help_panel=TRAINING)] = None,
    ensemble: Annotated[
        bool | None, typer.Option("--ensemble", help="Keep all of them, and average.", rich_help_panel=TRAINING)
    ] = None,
    validation_fraction: Annotated[
        float | None, typer.Option(help="Share of groups to choose by.", rich_help_panel=TRAINING)
    ] = None,
    patience: Annotated[
        int | None, typer.Option(help="Stop after so many epochs without progress.", rich_help_panel=TRAINING)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of all random numbers.", rich_help_panel=TRAINING)] = None,
    device: Device = None,
) -> None:
    """Learn from two files, and keep the run in a folder.

    A run that was interrupted goes on when it is asked for again.
    """
    options = _given(locals())
    with plain_errors(debug=ctx.obj):
        from unbag.tables import fit_tables, make_plan, read_config  # noqa: PLC0415
        from unbag.tables.problems import fail  # noqa: PLC0415

        if config is not None:
            options = {**read_config(config), **options}
        if options.get("out") is None:
            raise fail("name the folder to keep the run in, with --out or as out = ... in the file of settings")
        run = Run(Path(options["out"]))
        plan = make_plan(options)
        try:
            learned = fit_tables(plan, run, force=force, verbose=not as_json)
        except KeyboardInterrupt:
            _say_how_to_go_on(run)
            raise typer.Exit(130) from None
        if as_json:
            problems = [one.as_dict() for one in learned.problems]
            content = {"run": str(run.folder), "summary": learned.summary, "problems": problems}
            typer.echo(json.dumps(content, indent=1))
        else:
            show_problems(Terminal(stderr=True), learned.problems)
            show_learned(Terminal(), learned)


def predict(
    ctx: typer.Context,
    run: RunFolder,
    instances: Instances,
    *,
    out: OutFile,
    id: Id = None,
    keep: Annotated[str | None, typer.Option(help="Further columns to copy: name,town.")] = None,
    raw_text: RawText = False,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Write the class of each row and the probability of each class, in the order of the rows.

    The file is read piece by piece, so that it may be larger than the memory.
    """
    with plain_errors(debug=ctx.obj):
        from unbag.tables import predict_table  # noqa: PLC0415

        check_writable(out)
        rows, problems = predict_table(
            Run(run), instances, out, id=id, keep=_split(keep) or [], raw_text=raw_text, device=device or "cpu"
        )
        _say_written(rows, "rows", out, problems, as_json)


def disaggregate(
    ctx: typer.Context,
    run: RunFolder,
    instances: Instances,
    groups: Groups,
    *,
    out: OutFile,
    aggregate: Aggregate = None,
    drop_unmatched: Drop = None,
    raw_text: RawText = False,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Write the probability of each class for rows in observed groups, given what was observed of these."""
    with plain_errors(debug=ctx.obj):
        from unbag.tables import disaggregate_table  # noqa: PLC0415

        check_writable(out)
        rows, problems = disaggregate_table(
            Run(run),
            instances,
            groups,
            out,
            aggregate=aggregate,
            drop_unmatched=bool(drop_unmatched),
            raw_text=raw_text,
            device=device or "cpu",
        )
        _say_written(rows, "lines", out, problems, as_json)


def _given(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given, lists as lists."""
    left_out = ("ctx", "strict", "as_json", "config", "force")
    options = {name: value for name, value in arguments.items() if value is not None and name not in left_out}
    options.update({name: _split(options[name]) for name in LISTS if name in options})
    if "also" in options:
        options["also"] = [_read_also(one) for one in options["also"]]
    return options


def _split(names: str | None) -> list[str] | None:
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]


def _read_also(given: str) -> dict[str, str]:
    kind, equals, file = given.partition("=")
    if not equals:
        raise typer.BadParameter(f"--also takes KIND=FILE, for example pairwise_similarity=pairs.csv; got {given!r}")
    return {"aggregate": kind, "file": file}


def _say_how_to_go_on(run: Run) -> None:
    console = Terminal(stderr=True, soft_wrap=True, highlight=False, markup=False)
    if not run.head.exists() or run.read()["status"] == "finished":
        console.print("Stopped before training began; nothing was written.")
        return
    saved = any(run.checkpoint.rglob("*.safetensors"))
    where = "from where it was last saved" if saved else "from the beginning, because nothing was saved yet"
    command = visible(shlex.join(["unbag", *sys.argv[1:]]))
    console.print(f"Stopped. The run in {visible(run.folder)} is not finished; to go on with it, {where}:\n  {command}")


def _say_written(rows: int, what: str, out: Path, problems: list[Any], as_json: bool) -> None:
    if as_json:
        notes = [one.as_dict() for one in problems]
        typer.echo(json.dumps({what: rows, "file": str(out), "problems": notes}, indent=1))
        return
    show_problems(Terminal(stderr=True), problems)
    Terminal(soft_wrap=True, highlight=False, markup=False).print(f"{rows:,} {what} written to {visible(out)}")
