"""The top of a report, a few sentences for people who read no further, and all there is to be careful about."""

from __future__ import annotations

from typing import Any

from unbag._utils.pages.tables import NONE, Cell
from unbag.aggregates import Wording
from unbag.report.label_section import say_accuracy
from unbag.report.page_elements import Section, count, in_number, listed, number, table
from unbag.report.quality import most_frequent, say_failures, say_gain, say_judged

# Findings that the overview repeats with its own words elsewhere.
TOLD_ELSEWHERE = ("unnamed_classes",)

CAREFUL = "What to be careful about"
MOST_ON_TOP = 3


def overview(summary: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return headings and the sentences below each."""
    failures, warnings = say_failures(summary), _careful(summary)
    more = [f"{count(len(warnings) - MOST_ON_TOP, 'more point')} under “{CAREFUL}” below."]
    return [
        *([("Warning", failures)] if failures else []),
        ("What was learned", _learned(summary)),
        ("How good is it", _good(summary)),
        (CAREFUL, warnings if len(warnings) <= MOST_ON_TOP + 1 else warnings[:MOST_ON_TOP] + more),
    ]


def careful(summary: dict[str, Any]) -> Section:
    """List everything to be careful about, and what was noticed of the files."""
    section = Section("careful", CAREFUL, _careful(summary))
    if not summary["diagnosis"]:
        section.text.append("Nothing was found that would keep the classes from being told apart.")
    columns = {
        "": lambda one: Cell(one["severity"]),
        "file": lambda one: Cell(one["file"] or NONE),
        "row": lambda one: in_number(one["row"]) if one["row"] else Cell(NONE),
        "column": lambda one: Cell(one["column"] or NONE),
        "what was noticed": lambda one: Cell(one["message"]),
    }
    if noticed := _problems(summary):
        section.tables.append(table("Warnings and notes on the files, as unbag check gives them", noticed, columns))
    return section


def _problems(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what was noticed of the files, but for findings that are told as such; warnings come first."""
    findings = [one["message"] for one in summary["diagnosis"]]
    problems = [one for one in summary.get("problems", []) if not any(own in one["message"] for own in findings)]
    return sorted(problems, key=lambda one: one["severity"] != "warning")


def say_estimate(summary: dict[str, Any]) -> str | None:
    """Say how often predictions for new rows should be right, as far as groups that were left out tell.

    None where none were, or where something else than their number is in the way.
    """
    estimate = summary.get("estimated_accuracy")
    if estimate is None:
        left_out = sum(one["judged"]["groups"] for one in summary["sets"] if one["judged"]["held_out"])
        if not 0 < left_out <= TOO_FEW_TO_JUDGE:
            return None
        return (
            f"{count(left_out, 'left-out group')} cannot tell how often predictions for new rows are right: that takes "
            f"more than {TOO_FEW_TO_JUDGE}."
        )
    digits = 0 if estimate["high"] - estimate["low"] >= 0.02 else 1
    value, low, high = (f"{100 * estimate[name]:.{digits}f}" for name in ("value", "low", "high"))
    constant = most_frequent(summary)
    beside = "" if constant is None else f" Calling all rows {constant[0]} would have {100 * constant[1]:.{digits}f} %."
    names = "" if summary["data"]["symmetry"] == "none" else " once classes have their names,"
    return (
        f"Estimated accuracy on new rows: {value} % ({low} to {high} %),{names} from what was observed of groups that "
        f"were left out of training.{beside}"
    )


def _learned(summary: dict[str, Any]) -> list[str]:
    data = summary["data"]
    sentences = [
        f"A classifier of single rows into {count(len(data['classes']), 'class', 'classes')} "
        f"({listed(data['classes'], 6)}), from {count(data['features'], 'feature')}."
    ]
    for one in summary["sets"]:
        kind, least, most = Wording(**one["wording"]), one["sizes"]["min"], one["sizes"]["max"]
        size = number(least) if least == most else f"{number(least)} to {number(most)}"
        of = "" if most == 1 else f" of {size} rows"
        sentences.append(
            f"It learned from {count(one['groups'], kind.group, kind.groups)}{of}; all that was known of each was "
            f"{kind.observed}."
        )
    return [*sentences, *say_error_rates(summary)]


TOO_FEW_TO_JUDGE = 10


def say_error_rates(summary: dict[str, Any]) -> list[str]:
    """Say how many answers are wrong, where that was fitted."""
    return [
        f"{100 * rate:.{0 if rate >= 0.1 else 1}f} % of the {one['groups']:,} answers are wrong, as far as those that "
        "were left out tell."
        for one in summary["sets"]
        if (rate := one.get("error_rate")) is not None
    ]


def _good(summary: dict[str, Any]) -> list[str]:
    estimate = say_estimate(summary)
    sentences = [] if estimate is None else [estimate]
    sentences += [] if say_failures(summary) else [say_gain(one) for one in summary["sets"]]
    if summary["labels"] is not None:
        sentences.append(say_accuracy(summary["labels"]))
    elif estimate is not None:
        sentences.append("There are no labels of single rows to compare with.")
    else:
        sentences.append("There are no labels of single rows to compare with, so that no accuracy can be told.")
    return sentences


def _careful(summary: dict[str, Any]) -> list[str]:
    """Return sentences, those that concern every reader first."""
    sentences = [say_judged(one) for one in summary["sets"]]
    unnamed = {
        "any": "The observations do not name the classes: which is which is arbitrary until a few labelled rows tell.",
        "reversal": "The observations do not tell the order of the classes from its reverse: a few labelled rows do.",
    }
    if (symmetry := summary["data"]["symmetry"]) != "none":
        sentences.append(unnamed[symmetry])
    sentences += [
        f"{one['message'][:1].upper()}{one['message'][1:]}."
        for one in summary["diagnosis"]
        if one["kind"] not in TOLD_ELSEWHERE
    ]
    if any(one["likelihood"]["impossible"] for one in summary["sets"]):
        sentences.append("The model rules out some of the observations altogether; see below.")
    sentences += say_unfinished(summary)
    if warned := [one for one in _problems(summary) if one["severity"] == "warning"]:
        sentences.append(f"The files gave {count(len(warned), 'warning')}.")
    return sentences


def say_unfinished(summary: dict[str, Any]) -> list[str]:
    """Say if the model was still improving when the time limit ended the fit."""
    training = summary["training"]
    if summary["settings"].get("time_limit") is None or training["best_step"] + 1 < training["steps"]:
        return []
    return ["The last step was the best: a longer time limit may help."]
