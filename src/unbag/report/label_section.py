"""The section of a report on labels of rows, where there are some."""

from __future__ import annotations

from typing import Any

from unbag._utils.pages.tables import Cell, Table
from unbag.aggregates import Wording
from unbag.report import plots
from unbag.report.page_elements import Picture, Section, count, in_number, in_percent, number, percent, table


def labels(summary: dict[str, Any]) -> Section | None:
    """Compare predictions with labels; None where there are none."""
    given = summary["labels"]
    if given is None:
        return None
    section = Section("labels", "Against labels of rows", [say_accuracy(given), *_say_known(summary)])
    if given["renamed"]:
        section.text.append(
            "The observations leave the names of classes open: predictions were matched with labels so that they agree "
            "best."
        )
    section.pictures.append(
        Picture(
            plots.reliability("calibration", given["calibration"], "probability of the predicted class", "share right"),
            "Line: share of right predictions by the probability that the model gives them",
            _say_calibration(given),
        )
    )
    names = [one["class"] for one in given["classes"]]
    if given["confusion"] is not None:
        section.pictures.append(
            Picture(
                plots.confusion("confusion", names, given["confusion"]),
                "Matrix: how many rows of each class were called which class",
                _say_confusion(given),
            )
        )
    else:
        section.text.append(f"{_say_confusion(given)} The matrix of {len(names)} classes is too large to draw.")
    columns = {
        "class": lambda one: Cell(one["class"]),
        "rows": lambda one: in_number(one["rows"]),
        "called so": lambda one: in_number(one["called"]),
        "found of it (recall)": lambda one: in_percent(one["found"]),
        "right when called so (precision)": lambda one: in_percent(one["correct"]),
    }
    section.tables.append(table("By class", given["classes"], columns))
    if given["mistakes"]:
        mistakes = [(Cell(one["label"]), Cell(one["predicted"]), in_number(one["rows"])) for one in given["mistakes"]]
        section.tables.append(Table("The most frequent mistakes", ("label", "predicted", "rows"), mistakes))
    return section


def say_accuracy(given: dict[str, Any]) -> str:
    """Say how many labelled rows are right."""
    sentence = (
        f"Of {count(given['rows'], 'labelled row')}, {percent(given['accuracy'])} are classified right; the most "
        f"common label every time would be right for {percent(given['most_common'])}."
    )
    if given["rows_in_groups"] == 0:
        return f"{sentence} None of these rows is in a group that was learned from."
    return f"{sentence} {number(given['rows_in_groups'])} of these rows are in groups that were learned from."


def _say_known(summary: dict[str, Any]) -> list[str]:
    pairs = zip(summary["labels"]["known_observation"], summary["sets"], strict=True)
    return [
        f"Inside the {Wording(**one['wording']).groups} ({count(known['memberships'], 'labelled member')}): "
        f"{percent(known['before'])} are right from the row alone, {percent(known['after'])} with the observation "
        "known."
        for known, one in pairs
        if known is not None
    ]


def _say_calibration(given: dict[str, Any]) -> str:
    confidence = sum(one["n"] * one["predicted"] for one in given["calibration"]) / given["rows"]
    off = confidence - given["accuracy"]
    tendency = "about right" if abs(off) < 0.02 else "too high" if off > 0 else "too low"
    return (
        f"The confidence of the model is {tendency}: it expects {percent(confidence)} of its predictions to be right, "
        f"and {percent(given['accuracy'])} are. On average its probabilities are off by "
        f"{percent(given['calibration_error'])}."
    )


def _say_confusion(given: dict[str, Any]) -> str:
    if not given["mistakes"]:
        return "There are no mistakes."
    most = given["mistakes"][0]
    return f"The most frequent mistake: {most['label']} called {most['predicted']}, in {count(most['rows'], 'row')}."
