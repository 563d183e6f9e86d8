"""The sections of a report on one set of observations: how well it is explained, and what it adds."""

from __future__ import annotations

import json
import math
from typing import Any

from unbag.aggregates import Wording
from unbag.pages.tables import Cell, Table
from unbag.report import plots
from unbag.report.page_elements import Picture, Section, count, in_number, in_percent, number, percent, table

# Means over fewer groups than this say little about the next ones.
FEW = 30

# Likelihoods of the same models differ by less.
ROUNDING = 1e-9

ADVICE = "Do not rely on it: train for longer or with a lower learning rate, and look at the scale of the features."


def set_sections(one: dict[str, Any], place: int, n_sets: int) -> list[Section]:
    """Return all sections on one set; with several sets, headings say which."""
    which = "" if n_sets == 1 else f" (set {place + 1}: {Wording(**one['wording']).title.lower()})"
    return [
        _likelihood(one, f"likelihood-{place}", which),
        _outcome(one, f"outcome-{place}", which),
        _confidence(one, f"confidence-{place}", which),
    ]


def say_judged(one: dict[str, Any]) -> str:
    """Say which groups figures of quality are about."""
    judged, kind = one["judged"], Wording(**one["wording"])
    weighted = ""
    if (weights := one.get("weights")) is not None:  # a summary of an earlier version has none
        low, high = map(number, weights)
        weighted = f" Means over {kind.groups} are by their weights, from {low} to {high}."
    if not judged["held_out"]:
        return (
            f"Judged on all {count(judged['groups'], kind.group, kind.groups)}, those that were trained on included: "
            f"none was held out. New ones will be explained less well.{weighted}"
        )
    if judged.get("folds"):
        said = f"Judged on {count(judged['groups'], kind.group, kind.groups)}, each by models that have not seen it"
    else:
        said = f"Judged on {count(judged['groups'], kind.group, kind.groups)} that were held out from training"
    said += "; so few make the figures rough." if judged["groups"] < FEW else "."
    if judged["rows_also_trained_on"]:
        share = percent(judged["rows_also_trained_on"])
        said += f" But {share} of their rows are also in {kind.groups} that were trained on: for new rows, expect less."
    return said + weighted


def say_gain(one: dict[str, Any]) -> str:
    """Say how much better than the trivial predictor the model explains the groups."""
    likelihood, kind = one["likelihood"], Wording(**one["wording"])
    if likelihood["model"] is None:
        return f"The model rules out what was observed of every {kind.group} it is judged on."
    gain = likelihood["model"] - likelihood["trivial"]
    ruled_out = likelihood["impossible"]
    verb = "worse" if ruled_out or gain < 0 else "better" if gain > 0 else "no better"
    said = (
        f"The model explains what was observed {verb} than a constant prediction: log-likelihood "
        f"{number(likelihood['model'])} per {kind.group} against {number(likelihood['trivial'])}"
    )
    if ruled_out:
        said += (
            f", and it rules out what was observed of {count(ruled_out, 'more ' + kind.group, 'more ' + kind.groups)}"
        )
    elif 0 < gain < math.log(1e6):
        said += f", which makes the observations {number(math.exp(gain))} times as likely"
    return f"{said}. {percent(likelihood['better'])} of the {kind.groups} are explained better."


def say_failures(summary: dict[str, Any]) -> list[str]:
    """Say where the model is no better than what it is compared with.

    That is a constant prediction, or the match of mean proportions, by what they explain; or by its accuracy the most
    frequent class of each row's own group.
    """
    said = [f"{say_gain(one)} {ADVICE}" for one in summary["sets"] if _is_worse(one["likelihood"])]
    estimated = summary.get("estimated_accuracy")
    for one in summary["sets"]:
        own, kind = one.get("own_share"), Wording(**one["wording"])
        if own is not None and estimated is not None and estimated["value"] <= own["accuracy"]:
            said.append(
                f"The model is no better than each {kind.group}'s own share: its accuracy on new rows is estimated at "
                f"{percent(estimated['value'])}, and whoever knows the counts has {percent(own['accuracy'])} by "
                f"calling every row by the most frequent class of its {kind.group}. For rows in these {kind.groups}, "
                "disaggregate uses both."
            )
        match, model = one.get("match"), one["likelihood"]["model"]
        if match is not None and model is not None and model <= match + ROUNDING:
            said.append(
                "The model is no better than the match of mean predictions to proportions, which explains left-out "
                f"{kind.groups} as well: log-likelihood {number(match)} per {kind.group}."
            )
    return said


def _is_worse(likelihood: dict[str, Any]) -> bool:
    model, trivial = likelihood["model"], likelihood["trivial"]
    return bool(likelihood["impossible"]) or model is None or not model >= trivial


def _likelihood(one: dict[str, Any], name: str, which: str) -> Section:
    likelihood, kind = one["likelihood"], Wording(**one["wording"])
    section = Section(name, f"Against the trivial predictor{which}")
    section.text = [
        say_judged(one),
        "The trivial predictor gives every row the same class probabilities: those that explain all "
        f"{kind.groups} best, the held-out ones included, as only a look at the answers could tell.",
    ]
    if (own := one.get("own_share")) is not None:
        section.text.append(
            f"Who knows the counts can give every row the shares of its own {kind.group}: that has a log-likelihood of "
            f"{number(own['log_likelihood'])} per {kind.group}, and as many rows right as are of the most frequent "
            f"class of their {kind.group}, {percent(own['accuracy'])}."
        )
    if (match := one.get("match")) is not None:
        section.text.append(
            f"A network that matches the mean prediction of each {kind.group} with its proportions has {number(match)}."
        )
    if likelihood["impossible"]:
        section.text.append(
            f"The model rules out what was observed of {count(likelihood['impossible'], kind.group, kind.groups)}; "
            "they are in no mean and in no bar."
        )
    if likelihood["model"] is not None:
        axis = "log-likelihood, model less trivial predictor"
        section.pictures.append(
            Picture(
                plots.bars(name, likelihood["edges"], likelihood["counts"], axis, kind.groups),
                f"Histogram: log-likelihood of each {kind.group} by the model, less that by a constant prediction",
                say_gain(one),
            )
        )
    columns = {
        kind.group: lambda two: Cell(two["group"]),
        "size": lambda two: in_number(two["size"]),
        "observed": lambda two: Cell(json.dumps(two["observed"])),
        "log-likelihood": lambda two: in_number(two["model"]),
        "trivial predictor": lambda two: in_number(two["trivial"]),
    }
    title = f"The {len(one['worst'])} {kind.groups} with the lowest likelihood"
    section.tables.append(table(title, one["worst"], columns))
    return section


def _outcome(one: dict[str, Any], name: str, which: str) -> Section:
    section = Section(name, f"Observed against predicted{which}")
    draw = {"counts": _counts, "answers": _answers, "other": _other}[one["outcome"]["form"]]
    draw(one, name, section)
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
    said = (
        f"Called by the more likely answer, {percent(outcome['right'])} of the {kind.groups} are right; the most "
        f"common answer every time would be right for {percent(outcome['most_common'])}."
    )
    axis = f"predicted probability of “{kind.yes}”"
    counts = {f"observed: {kind.no}": outcome["no"], f"observed: {kind.yes}": outcome["yes"]}
    section.pictures += [
        Picture(
            plots.two_histograms(name, outcome["edges"], counts, axis),
            f"Histograms: predicted probability of “{kind.yes}” where “{kind.no}” and where “{kind.yes}” was observed",
            f"{said} The less the two histograms overlap, the better.",
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


def _confidence(one: dict[str, Any], name: str, which: str) -> Section:
    confidence, kind = one["confidence"], Wording(**one["wording"])
    section = Section(name, f"Confidence{which}")
    section.text.append(
        "How likely the most likely class of each member is: from the row alone, and with what was observed of its "
        f"{kind.group} known (the posterior, as disaggregation returns it). All {kind.groups} count, each as often as "
        "it has members."
    )
    if confidence["without"]:
        section.text.append(
            f"{count(confidence['without'], 'member')} of {kind.groups} whose observation the model rules out have no "
            "posterior and are left out of the second outline."
        )
    counts = {"from the row alone": confidence["before"], "observation known": confidence["after"]}
    gain = (confidence["mean_after"] or 0) - confidence["mean_before"]
    section.pictures.append(
        Picture(
            plots.two_histograms(name, confidence["edges"], counts, "probability of the likeliest class"),
            "Histograms: probability of the most likely class, before and after the observation is known",
            f"On average the most likely class has {percent(confidence['mean_before'])} from the row alone and "
            f"{percent(confidence['mean_after'])} with the observation known"
            + (": the observations add little." if abs(gain) < 0.01 else "."),
        )
    )
    return section
