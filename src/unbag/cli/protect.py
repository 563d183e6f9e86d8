"""``unbag protect``: from exact counts to a table that can be published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unbag.cli.options import split
from unbag.cli.shared import check_writable, plain_errors
from unbag.cli.tables import Json, OutFile, say_written


def protect(
    ctx: typer.Context,
    counts: Annotated[Path, typer.Argument(help="One row per group: its id, and an exact count for each class.")],
    *,
    out: OutFile,
    epsilon: Annotated[
        float | None, typer.Option(help="Add geometric noise with this privacy loss (needs the extra private).")
    ] = None,
    sensitivity: Annotated[
        int, typer.Option(help="By how much one person changes the counts of the table, over all cells.")
    ] = 1,
    round_to: Annotated[int | None, typer.Option(help="Round counts to multiples of this number.")] = None,
    suppress_below: Annotated[
        int | None, typer.Option(help="Write of counts below this number only that they are.")
    ] = None,
    group: Annotated[str | None, typer.Option(help="The column of group ids.")] = None,
    classes: Annotated[
        str | None, typer.Option(help="The columns of counts: healthy,ill; otherwise all others.")
    ] = None,
    keep_sizes: Annotated[
        bool, typer.Option("--keep-sizes", help="Write sizes of groups as they are; they are not protected.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a table that was protected before.")] = False,
    as_json: Json = False,
) -> None:
    """Make a table of noisy, rounded or suppressed counts from exact ones.

    Beside it, a small file tells unbag check and fit how to use them.
    """
    with plain_errors(debug=ctx.obj):
        from unbag.tables.protect import Protection, protect_counts  # noqa: PLC0415

        check_writable(out)
        rows, problems = protect_counts(
            counts,
            out,
            Protection(epsilon, sensitivity, round_to, suppress_below),
            group=group,
            classes=tuple(split(classes)) if classes else None,
            keep_sizes=keep_sizes,
            force=force,
        )
        say_written(rows, "groups", out, problems, as_json)
