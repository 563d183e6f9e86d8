"""The section of a report on one set of observations: what was observed of groups against what is predicted."""

from __future__ import annotations

from typing import Any

from unbag._utils.pages.tables import Cell, Table
from unbag.aggregates import Wording
from unbag.report import plots
from unbag.report.page_elements import Picture, Section, in_number, in_percent, number, percent, table, written


def outcome(one: dict[str, Any], place: int, n_sets: int) -> Section:
    """Return the section on one set; with several sets, its heading says which."""
    kind, name = Wording(**one["wording"]), f"outcome-{place}"
    which = "" if n_sets == 1 else f" (set {place + 1}: {kind.title.lower()})"
    section = Section(name, f"Observed against predicted{which}")
    draw = {"counts": _counts, "answers": _answers, "other": _other}[one["outcome"]["form"]]
    draw(one, name, section)
    columns = {
        kind.group: lambda two: Cell(two["group"]),
        "size": lambda two: in_number(two["size"]),
        "observed": lambda two: Cell(written(two["observed"])),
        "log-likelihood": lambda two: in_number(two["model"]),
        "trivial predictor": lambda two: in_number(two["trivial"]),
    }
    title = f"The {len(one['worst'])} {kind.groups} with the lowest likelihood"
    section.tables.append(table(title, one["worst"], columns))
    return section


def _counts(one: dict[str, Any], name: str, section: Section) -> None:
    outcome, kind = one["outcome"], Wording(**one["wording"])
    rows = outcome["classes"]
    error = sum(row["error"] for row in rows) / len(rows)
    trivial = sum(row["trivial_error"] for row in rows) / len(rows)
    drawn = outcome["groups_drawn"]
    section.pictures.append(
        Picture(
            plots.against(name, outcome["points"], "observed share", "expected share"),
            f"Points: share of each class in each {kind.group}, observed and expected by the model",
            f"Each point is a class in a {kind.group}; on the dotted line, prediction and observation agree. Counts "
            f"are off by {number(error)} on average, where the mean count every time would be off by {number(trivial)}."
            + ("" if drawn == one["judged"]["groups"] else f" Drawn are {number(drawn)} {kind.groups}, spread evenly."),
        )
    )
    if bins := outcome.get("bins"):  # a summary of an earlier version has none
        off = [abs(one["predicted"] - one["happened"]) > 2 * one["spread"] for one in bins]
        section.pictures.append(
            Picture(
                plots.reliability(f"{name}-reliability", bins, "expected share", "share observed"),
                f"Line: observed share of a class in a {kind.group}, by the share that the model expects",
                f"Bars are where 95 % of the shares would be if the model were right and members independent; "
                f"{sum(off)} of {len(bins)} are outside.",
            )
        )
    columns = {
        "class": lambda row: Cell(row["class"]),
        "observed": lambda row: in_number(row["observed"]),
        "expected": lambda row: in_number(row["expected"]),
        "mean error of a count": lambda row: in_number(row["error"]),
        "of the mean count": lambda row: in_number(row["trivial_error"]),
    }
    section.tables.append(table(f"Counts over {number(one['judged']['groups'])} {kind.groups}", rows, columns))


def _answers(one: dict[str, Any], name: str, section: Section) -> None:
    outcome, kind = one["outcome"], Wording(**one["wording"])
    sentence = (
        f"Called by the more likely answer, {percent(outcome['right'])} of the {kind.groups} are right; the most "
        f"common answer every time would be right for {percent(outcome['most_common'])}."
    )
    axis = f"predicted probability of “{kind.yes}”"
    counts = {f"observed: {kind.no}": outcome["no"], f"observed: {kind.yes}": outcome["yes"]}
    section.pictures += [
        Picture(
            plots.two_histograms(name, outcome["edges"], counts, axis),
            f"Histograms: predicted probability of “{kind.yes}” where “{kind.no}” and where “{kind.yes}” was observed",
            f"{sentence} The less the two histograms overlap, the better.",
        ),
        Picture(
            plots.reliability(f"{name}-reliability", outcome["bins"], axis, "share observed"),
            f"Line: how often “{kind.yes}” was observed, by its predicted probability",
            _say_reliability(outcome["bins"], f"“{kind.yes}” was observed"),
        ),
    ]
    rows = [
        (in_percent(bin_["predicted"]), in_percent(bin_["happened"]), in_number(bin_["n"])) for bin_ in outcome["bins"]
    ]
    columns = (axis, "share observed", kind.groups)
    section.tables.append(Table(f"{kind.groups.capitalize()} by predicted probability", columns, rows))


def _other(one: dict[str, Any], name: str, section: Section) -> None:
    outcome, kind = one["outcome"], Wording(**one["wording"])
    likely = sum(outcome["counts"][5:]) / max(sum(outcome["counts"]), 1)
    section.pictures.append(
        Picture(
            plots.bars(
                name, outcome["edges"], outcome["counts"], "predicted probability of what was observed", kind.groups
            ),
            f"Histogram: predicted probability of what was observed of each {kind.group}",
            f"What was observed of {percent(likely)} of the {kind.groups} had a probability of one half or more.",
        )
    )


def _say_reliability(bins: list[dict[str, Any]], what: str) -> str:
    off = max(bins, key=lambda one: one["n"] * abs(one["predicted"] - one["happened"]))
    if abs(off["predicted"] - off["happened"]) < 0.01:
        return "On the dotted line, probabilities are as good as their word; these are, within a percent."
    return (
        f"On the dotted line, probabilities are as good as their word. What matters most: where the prediction was "
        f"{percent(off['predicted'])} on average, {what} in {percent(off['happened'])} of {number(off['n'])} cases."
    )
