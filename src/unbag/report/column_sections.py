"""The sections of a report on which columns matter, and where the model is unsure."""

from __future__ import annotations

from typing import Any

from unbag._utils.pages.tables import Cell
from unbag.aggregates import Wording
from unbag.report import plots
from unbag.report.page_elements import Picture, Section, count, in_number, in_percent, number, percent, table, written

# The most likely class of a row is doubtful where it is less likely than this, an edge of the histogram's bins.
DOUBTFUL = 0.6

SUREST_SHOWN = 10


def importance(summary: dict[str, Any]) -> Section | None:
    """Show how much worse groups are explained without each column; None where there are no columns."""
    if not summary.get("columns"):  # images, or a summary of an earlier version
        return None
    section, measured = Section("importance", "Which columns matter"), summary["importance"]
    if measured is None:
        section.text.append(
            "Groups are too large, or the time limit is too short, to try one column after the other, or the model "
            "rules all groups out."
        )
        return section
    columns = measured["columns"]
    judged = "that were left out of training" if measured["held_out"] else "that were trained on, as none was held out"
    section.text.append(
        f"Values of one column at a time were shuffled among {count(measured['rows'], 'row')} of "
        f"{count(measured['groups'], 'group')} {judged}, {count(measured['permutations'], 'time')}: the more "
        "log-likelihood per group is lost, the more the predictions rest on that column. Columns that tell the same "
        "share their importance, so that each may look dispensable; and what predicts is not what causes."
    )
    if (total := summary["columns"]) > len(columns):
        section.text.append(
            f"Tried were {len(columns)} of {count(total, 'column')}: those whose values correlate most with predicted "
            "probabilities."
        )
    section.pictures.append(
        Picture(
            plots.importance("importance", columns),
            "Bars: log-likelihood per group that is lost when a column is shuffled, with its standard error",
            _say_importance(columns),
        )
    )
    shown = {
        "column": lambda one: Cell(one["column"]),
        "log-likelihood lost per group": lambda one: _lost(one["drop"]),
        "standard error": lambda one: in_number(one["error"]),
    }
    section.tables.append(table("Permutation importance", columns, shown))
    return section


def _lost(drop: float | None) -> Cell:
    return Cell("ruled out", 1e308) if drop is None else in_number(drop)


def _say_importance(columns: list[dict[str, Any]]) -> str:
    clear = [one for one in columns if one["drop"] is None or one["drop"] > 2 * (one["error"] or 0)]
    if not clear:
        return "No column loses more than twice its standard error when it is shuffled: none matters clearly."
    ruled_out = clear[0]["drop"] is None
    lost = "makes the model rule out some groups" if ruled_out else f"loses {number(clear[0]['drop'])} per group"
    others = len(columns) - len(clear)
    rest = f"; the other {others} lose no more than twice their standard error" if others else ""
    return (
        f"The most important column is {clear[0]['column']}: shuffled, it {lost}. "
        f"{count(len(clear), 'column matters', 'columns matter')} clearly{rest}. Lines are two standard errors long on "
        "either side."
    )


def unsure(summary: dict[str, Any]) -> Section:
    """Show how likely the most likely class of rows is, and for which values and groups it is least."""
    section = Section("unsure", "Where the model is unsure")
    section.text.append(
        "How likely the most likely class of each member is: from the row alone, and with what was observed of its "
        "group known (the posterior, as disaggregation returns it). All groups count, each as often as it has members."
    )
    for place, one in enumerate(summary["sets"]):
        _add_set(section, one, place)
    parts = summary.get("least_confident") or []  # a summary of an earlier version has none
    if parts:
        mean = sum(one["confidence"]["mean_before"] * one["memberships"] for one in summary["sets"])
        mean /= sum(one["memberships"] for one in summary["sets"])
        named = [{"name": f"{one['column']}: {_where(one)}", "value": one["confidence"]} for one in parts]
        section.pictures.insert(
            1,
            Picture(
                plots.yardsticks("unsure", named[:SUREST_SHOWN], "mean probability of the likeliest class", mean),
                "Bars: mean probability of the most likely class, for the values of columns where it is lowest",
                f"Least certain are rows with {named[0]['name']}: the most likely class has "
                f"{percent(named[0]['value'])} on average. The dotted line is the mean of all, {percent(mean)}.",
            ),
        )
        columns = {
            "column": lambda one: Cell(one["column"]),
            "value": lambda one: Cell(_where(one)),
            "members": lambda one: in_number(one["members"]),
            "mean probability of the likeliest class": lambda one: in_percent(one["confidence"]),
        }
        section.tables.insert(0, table("Values of columns with the lowest confidence", parts, columns))
    return section


def _where(one: dict[str, Any]) -> str:
    """Write a value or a range.

    Examples
    --------
    >>> _where({"value": "Ulm"}), _where({"from": 2019.0, "to": 2024.0}), _where({"from": -1.25, "to": 0.5})
    ('Ulm', '2019 to 2024', '\N{MINUS SIGN}1.25 to 0.500')
    """
    if "value" in one:
        return str(one["value"])
    low, high = (end if isinstance(end, str) else number(end).replace(",", "") for end in (one["from"], one["to"]))
    return f"{low} to {high}"


def _add_set(section: Section, one: dict[str, Any], place: int) -> None:
    confidence, kind = one["confidence"], Wording(**one["wording"])
    if confidence["without"]:
        section.text.append(
            f"{count(confidence['without'], 'member')} of {kind.groups} whose observation the model rules out have no "
            "posterior and are left out of the second outline."
        )
    before = confidence["before"]
    doubtful = sum(n for n, edge in zip(before, confidence["edges"], strict=False) if edge < DOUBTFUL - 1e-9)
    counts = {"from the row alone": before, "observation known": confidence["after"]}
    gain = (confidence["mean_after"] or 0) - confidence["mean_before"]
    section.pictures.append(
        Picture(
            plots.two_histograms(
                f"confidence-{place}", confidence["edges"], counts, "probability of the likeliest class"
            ),
            "Histograms: probability of the most likely class, before and after the observation is known",
            f"{percent(doubtful / sum(before))} of the members have a most likely class of less than "
            f"{percent(DOUBTFUL)} from the row alone. On average it has {percent(confidence['mean_before'])}, and "
            f"{percent(confidence['mean_after'])} with the observation known"
            + (": the observations add little." if abs(gain) < 0.01 else "."),
        )
    )
    if (groups := one.get("unsure")) and one["sizes"]["max"] > 1:
        columns = {
            kind.group: lambda two: Cell(two["group"]),
            "size": lambda two: in_number(two["size"]),
            "observed": lambda two: Cell(written(two["observed"])),
            "from the row alone": lambda two: in_percent(two["before"]),
            "observation known": lambda two: in_percent(two["after"]),
        }
        section.tables.append(
            table(f"The {len(groups)} {kind.groups} with the lowest mean confidence", groups, columns)
        )
