"""The section of a report on how good the model is, beside honest yardsticks."""

from __future__ import annotations

import math
from typing import Any

from unbag._utils.pages.tables import NONE, Cell, Table
from unbag.aggregates import Wording
from unbag.report import plots
from unbag.report.label_section import say_accuracy
from unbag.report.page_elements import Picture, Section, count, in_number, in_percent, number, percent, table

ADVICE = "Do not rely on it: train for longer or with a lower learning rate, and look at the scale of the features."


def quality(summary: dict[str, Any]) -> Section:
    """Compare the model with what needs no model, by accuracy where it is known, and by likelihood."""
    section = Section("quality", "How good is it", [*map(say_judged, summary["sets"]), *_say_yardsticks(summary)])
    if (accuracies := _accuracies(summary)) and "model" in accuracies[0]["name"]:
        section.pictures.append(
            Picture(
                plots.yardsticks("accuracy", accuracies),
                "Bars: accuracy of the model, and of predictions that need no model",
                _say_accuracies(summary, accuracies),
            )
        )
        columns = {
            "predicted by": lambda one: Cell(one["name"]),
            "rows right": lambda one: in_percent(one["value"]),
            "95 % interval": lambda one: Cell(
                f"{percent(one['low'])} to {percent(one['high'])}" if "low" in one else ""
            ),
        }
        section.tables.append(table("Accuracy", accuracies, columns))
    for place, one in enumerate(summary["sets"]):
        likelihood, kind = one["likelihood"], Wording(**one["wording"])
        if likelihood["model"] is not None:
            axis = "log-likelihood, model less trivial predictor"
            section.pictures.append(
                Picture(
                    plots.bars(f"likelihood-{place}", likelihood["edges"], likelihood["counts"], axis, kind.groups),
                    f"Histogram: log-likelihood of each {kind.group} by the model, less that by a constant prediction",
                    say_gain(one),
                )
            )
    section.tables.append(_likelihoods(summary))
    return section


def _accuracies(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Return accuracies that are known or estimated, those of the model first."""
    accuracies: list[dict[str, Any]] = []
    labels, estimated = summary["labels"], summary.get("estimated_accuracy")
    if estimated is not None:
        accuracies.append({"name": "this model, estimated", **estimated})
    if labels is not None:
        accuracies.append({"name": f"this model, {count(labels['rows'], 'labelled row')}", "value": labels["accuracy"]})
    for one in summary["sets"]:
        if (own := one.get("own_share")) is not None:
            group = Wording(**one["wording"]).group
            accuracies.append({"name": f"most frequent class of its {group}", "value": own["accuracy"]})
    frequent = most_frequent(summary)
    most_common = frequent[1] if frequent else None if labels is None else labels["most_common"]
    if most_common is not None:
        accuracies.append({"name": "most frequent class of all", "value": most_common})
    return accuracies


def most_frequent(summary: dict[str, Any]) -> tuple[str, float] | None:
    """Return the class that observations tell to be the most frequent, and its share; None where they tell none."""
    shares = {one["class"]: one["implied"] for one in summary["balance"]}
    return None if None in shares.values() else max(shares.items(), key=lambda one: float(one[1]))


def _say_accuracies(summary: dict[str, Any], accuracies: list[dict[str, Any]]) -> str:
    interval = "The line is the 95 % interval over groups."
    caption = interval if "low" in accuracies[0] else say_accuracy(summary["labels"])
    if any(one.get("own_share") is not None for one in summary["sets"]):
        caption += " The most frequent class of a row's own group is known only to who has the counts of that group."
    return caption


def _say_yardsticks(summary: dict[str, Any]) -> list[str]:
    sentences = [
        "The trivial predictor gives every row the same class probabilities: those that explain all groups best, the "
        "held-out ones included, which puts it at an advantage."
    ]
    for one in summary["sets"]:
        likelihood, kind = one["likelihood"], Wording(**one["wording"])
        if (own := one.get("own_share")) is not None:
            sentences.append(
                f"Who knows the counts can give every row the shares of its own {kind.group}: that has a "
                f"log-likelihood of {number(own['log_likelihood'])} per {kind.group}, and as many rows right as are of "
                f"the most frequent class of their {kind.group}, {percent(own['accuracy'])}."
            )
        if likelihood["impossible"]:
            sentences.append(
                f"The model rules out what was observed of {count(likelihood['impossible'], kind.group, kind.groups)}; "
                "they are in no mean and in no bar."
            )
    return sentences


def _likelihoods(summary: dict[str, Any]) -> Table:
    columns = {
        "observations": lambda one: Cell(Wording(**one["wording"]).title),
        "judged on": lambda one: in_number(one["judged"]["groups"]),
        "this model": lambda one: in_number(one["likelihood"]["model"]),
        "trivial predictor": lambda one: in_number(one["likelihood"]["trivial"]),
    }
    if any(one.get("own_share") for one in summary["sets"]):
        columns["own share"] = lambda one: (
            in_number(one["own_share"]["log_likelihood"]) if one.get("own_share") else Cell(NONE)
        )
    columns["explained better"] = lambda one: in_percent(one["likelihood"]["better"])
    return table("Log-likelihood per group, higher is better", summary["sets"], columns)


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
    text = f"Judged on {count(judged['groups'], kind.group, kind.groups)}, each by models that did not see it."
    return text + weighted


def say_gain(one: dict[str, Any]) -> str:
    """Say how much better than the trivial predictor the model explains the groups."""
    likelihood, kind = one["likelihood"], Wording(**one["wording"])
    if likelihood["model"] is None:
        return f"The model rules out what was observed of every {kind.group} it is judged on."
    gain = likelihood["model"] - likelihood["trivial"]
    ruled_out = likelihood["impossible"]
    verb = "worse" if ruled_out or gain < 0 else "better" if gain > 0 else "no better"
    sentence = (
        f"The model explains what was observed {verb} than a constant prediction: log-likelihood "
        f"{number(likelihood['model'])} per {kind.group} against {number(likelihood['trivial'])}"
    )
    if ruled_out:
        sentence += (
            f", and it rules out what was observed of {count(ruled_out, 'more ' + kind.group, 'more ' + kind.groups)}"
        )
    elif 0 < gain < math.log(1e6):
        sentence += f", which makes the observations {number(math.exp(gain))} times as likely"
    return f"{sentence}. {percent(likelihood['better'])} of the {kind.groups} are explained better."


def say_failures(summary: dict[str, Any]) -> list[str]:
    """Say where the model is no better than what it is compared with.

    That is a constant prediction, or the match of mean proportions, by what they explain; or by its accuracy the most
    frequent class of each row's own group.
    """
    sentences = [f"{say_gain(one)} {ADVICE}" for one in summary["sets"] if _is_worse(one["likelihood"])]
    estimated = summary.get("estimated_accuracy")
    for one in summary["sets"]:
        own, kind = one.get("own_share"), Wording(**one["wording"])
        if own is not None and estimated is not None and estimated["value"] <= own["accuracy"]:
            sentences.append(
                f"The model is no better than each {kind.group}'s own share: its accuracy on new rows is estimated at "
                f"{percent(estimated['value'])}, and whoever knows the counts has {percent(own['accuracy'])} by "
                f"calling every row by the most frequent class of its {kind.group}. For rows in these {kind.groups}, "
                "disaggregate uses both."
            )
    return sentences


def _is_worse(likelihood: dict[str, Any]) -> bool:
    model, trivial = likelihood["model"], likelihood["trivial"]
    return bool(likelihood["impossible"]) or model is None or not model >= trivial
