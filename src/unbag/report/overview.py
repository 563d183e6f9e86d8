"""The top of a report, for readers who read no further, and all its limitations and warnings."""

from __future__ import annotations

import math
from typing import Any

from unbag.report.elements import Section, count, listed, number, percent, wording

LIMITATIONS = "Limitations and warnings"
MAX_ON_TOP = 3

DESCRIBED = ("unnamed_classes", "worse_than_constant")
"""Kinds of findings that the report describes in its own words."""
UNNAMED = {
    "any": "The observations do not name the classes; their names are arbitrary until name_classes assigns them.",
    "reversal": "The observations do not identify the direction of the order of classes; name_classes assigns it.",
}


def make_overview(summary: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return headings and the sentences below each."""
    failures, found, labels = describe_failures(summary), _find_limitations(summary), summary["labels"]
    if len(found) > MAX_ON_TOP + 1:
        more = count(len(found) - MAX_ON_TOP, "more point")
        found = [*found[:MAX_ON_TOP], f"{more} in the section “{LIMITATIONS}” below."]
    quality = [
        describe_estimate(summary) or "The accuracy on new rows was not estimated.",
        *([] if failures else map(describe_gain, summary["sets"])),
        describe_labels(labels) if labels else "No labels of rows were available to measure accuracy.",
    ]
    parts = [("Data", _describe_data(summary)), ("Quality", quality), (LIMITATIONS, found)]
    return [("Warning", failures), *parts] if failures else parts


def make_limitations(summary: dict[str, Any]) -> Section:
    """List all limitations and warnings, and what was noticed in the files."""
    section = Section("limitations", LIMITATIONS, _find_limitations(summary))
    if problems := _find_problems(summary):
        columns = {"severity": "severity", "file": "file", "row": "row#", "column": "column", "message": "message"}
        section.add_table("Warnings and notes on the files", problems, columns)
    return section


def _describe_data(summary: dict[str, Any]) -> list[str]:
    data = summary["data"]
    sentences = [
        f"A classifier of single rows with {count(len(data['classes']), 'class', 'classes')} "
        f"({listed(data['classes'], 6)}), fitted to {count(data['features'], 'feature')}."
    ]
    for s in summary["sets"]:
        words, low, high = wording(s), s["sizes"]["min"], s["sizes"]["max"]
        sizes = "" if high == 1 else f" of {high:,} rows" if low == high else f" of {low:,} to {high:,} rows"
        groups = count(s["groups"], words.group, words.groups)
        sentences.append(f"{groups}{sizes}. The observation of each {words.group} is {words.observed}.")
    return [*sentences, *describe_error_rates(summary)]


def _find_limitations(summary: dict[str, Any]) -> list[str]:
    """Return sentences, those that concern every reader first."""
    sentences = [describe_scored(s) for s in summary["sets"]]
    if (symmetry := summary["data"]["symmetry"]) in [*UNNAMED]:  # a list of interchangeable classes has a finding
        sentences.append(UNNAMED[symmetry])
    findings = [f["message"] for f in summary["diagnosis"] if f["kind"] not in DESCRIBED]
    sentences += [f"{message[:1].upper()}{message[1:]}." for message in findings]
    if n_warnings := sum(p["severity"] == "warning" for p in _find_problems(summary)):
        sentences.append(f"The files have {count(n_warnings, 'warning')}.")
    return sentences


def _find_problems(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what was noticed in the files, without findings that are listed as such; warnings come first."""
    findings = [finding["message"] for finding in summary["diagnosis"]]
    problems = [p for p in summary["problems"] if not any(message in p["message"] for message in findings)]
    return sorted(problems, key=lambda p: p["severity"] != "warning")


def describe_estimate(summary: dict[str, Any]) -> str | None:
    """Describe the estimated accuracy; None where there is no estimate."""
    estimate = summary["estimated_accuracy"]
    if estimate is None:
        return None
    value, low, high = (percent(estimate[name]) for name in ("value", "low", "high"))
    named = "" if summary["data"]["symmetry"] == "none" else ", once the classes are named"
    text = f"Estimated accuracy on rows of new groups: {value} (95 % interval {low} to {high}){named}."
    if frequent := find_most_frequent(summary):
        text += f" The most frequent class, {frequent[0]}, has {percent(frequent[1])}."
    return text


def find_most_frequent(summary: dict[str, Any]) -> tuple[str, float] | None:
    """Return the class that the observations imply to be the most frequent, and its share."""
    shares = {row["class"]: row["implied"] for row in summary["balance"]}
    return None if None in shares.values() else max(shares.items(), key=lambda item: float(item[1]))


def describe_error_rates(summary: dict[str, Any]) -> list[str]:
    """Describe fitted rates of wrong observations."""
    return [
        f"Estimated share of wrong observations of the {wording(s).groups}: {100 * s['error_rate']:.1f} %."
        for s in summary["sets"]
        if s["error_rate"] is not None
    ]


def describe_labels(labels: dict[str, Any]) -> str:
    """Describe the accuracy on labelled rows."""
    return (
        f"Accuracy on {count(labels['rows'], 'labelled row')}, of which {labels['rows_in_groups']:,} belong to groups "
        f"of the fit: {percent(labels['accuracy'])}. The most frequent label has {percent(labels['most_common'])}."
    )


def describe_scored(s: dict[str, Any]) -> str:
    """Describe on which groups quality was measured."""
    words, weights = wording(s), s["weights"]
    groups = count(s["judged"]["groups"], words.group, words.groups)
    if s["judged"]["held_out"]:
        text = f"Quality was measured on {groups}, predicted by models that did not learn from them."
        if share := s["judged"]["rows_also_trained_on"]:
            text += f" But these models saw {percent(share)} of their rows in other {words.groups}."
    else:
        text = f"Quality was measured on the {groups} of the fit, because none was held out; expect less on new ones."
    if weights is not None:
        text += f" Means are weighted, with weights from {number(weights[0])} to {number(weights[1])}."
    return text


def describe_gain(s: dict[str, Any]) -> str:
    """Compare the likelihood of a set with that of a constant prediction."""
    likelihood, words = s["likelihood"], wording(s)
    if likelihood["model"] is None:
        return f"The observations of all {words.groups} are impossible under the model."
    gain, impossible = likelihood["model"] - likelihood["trivial"], likelihood["impossible"]
    comparison = "worse than" if impossible or gain < 0 else "better than" if gain > 0 else "as well as"
    text = f"The model predicts the {words.groups} {comparison} a constant prediction: log-likelihood "
    text += f"{number(likelihood['model'])} per {words.group}, against {number(likelihood['trivial'])}"
    if impossible:
        text += f"; {count(impossible, 'observation is', 'observations are')} impossible under the model"
    elif 0 < gain < math.log(1e6):
        text += f", which makes an observation {number(math.exp(gain))} times as likely"
    return f"{text}. {percent(likelihood['better'])} of the {words.groups} are predicted better."


def describe_failures(summary: dict[str, Any]) -> list[str]:
    """Describe where the model is no better than a constant prediction, or than the class shares of each group."""
    sentences, estimate = [], summary["estimated_accuracy"]
    for s in summary["sets"]:
        likelihood, shares, words = s["likelihood"], s["own_share"], wording(s)
        model = likelihood["model"]
        if likelihood["impossible"] or model is None or not model >= likelihood["trivial"]:
            sentences.append(f"{describe_gain(s)} Do not rely on it, and check the scale of the features.")
        if shares is not None and estimate is not None and estimate["value"] <= shares["accuracy"]:
            sentences.append(
                f"The estimated accuracy of {percent(estimate['value'])} is not above that of the most frequent class "
                f"of each {words.group}, {percent(shares['accuracy'])}. For rows in these {words.groups}, disaggregate "
                "combines both."
            )
    return sentences
