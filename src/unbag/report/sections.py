"""The sections of a report on the data, the training, the classes and the settings."""

from __future__ import annotations

import math
from typing import Any

from unbag._utils.pages.tables import Cell, Table
from unbag.aggregates import Wording
from unbag.report import plots
from unbag.report.page_elements import (
    Picture,
    Section,
    count,
    facts,
    in_number,
    in_percent,
    listed,
    number,
    percent,
    table,
)

MOST_CLASSES_DRAWN = 25


def comparison(summary: dict[str, Any]) -> Section | None:
    """Compare methods, where the summary has accuracies of several."""
    if not summary.get("comparison"):
        return None
    rows = [
        (Cell(one["method"]), in_percent(one["accuracy"]), in_number(one["seconds"])) for one in summary["comparison"]
    ]
    table = Table("Accuracy on rows that no method has seen", ("learned by", "accuracy", "seconds"), rows)
    section = Section("comparison", "Beside other methods", tables=[table])
    if summary["labels"] is not None:
        n, share = summary["labels"]["rows"], summary["labels"]["accuracy"]
        by_chance = 2 * math.sqrt(share * (1 - share) / n)
        section.text.append(
            f"On {count(n, 'row')}, an accuracy is known to within about {number(100 * by_chance)} points: smaller "
            "differences may be chance."
        )
    return section


def data(summary: dict[str, Any]) -> Section:
    """Say what was learned from what."""
    about = summary["data"]
    columns = {
        "observations": lambda one: Cell(Wording(**one["wording"]).title),
        "groups": lambda one: in_number(one["groups"]),
        "rows in them": lambda one: in_number(one["rows"]),
        "smallest": lambda one: in_number(one["sizes"]["min"]),
        "median size": lambda one: in_number(one["sizes"]["median"]),
        "largest": lambda one: in_number(one["sizes"]["max"]),
    }
    names = about["feature_names"]
    shape = about["input_shape"]
    given = {
        "rows": number(about["rows"]),
        "rows in groups": number(about["rows_in_groups"]),
        "features": number(about["features"]) if len(shape) == 1 else f"images of {' by '.join(map(str, shape))}",
        "classes": listed(about["classes"], 30),
    }
    if names:
        given["names of features"] = listed(names, 30)
    section = Section("data", "What was learned from what", tables=[table("Observed groups", summary["sets"], columns)])
    for place, one in enumerate(summary["sets"]):
        sizes = one["sizes"]["histogram"]
        if len(sizes) > 1:
            table_rows = [
                (
                    in_number(two["from"], _span(two)),
                    in_number(two["groups"]),
                    in_percent(two["groups"] / one["groups"]),
                )
                for two in sizes
            ]
            title = f"Sizes of groups: {Wording(**one['wording']).title.lower()}" + (f" {place + 1}" if place else "")
            section.tables.append(Table(title, ("size", "groups", "share"), table_rows))
    section.tables.append(facts("Rows, features and classes", given))
    if summary["inputs"]:
        section.tables.append(facts("Where the data come from", summary["inputs"]))
    return section


def _span(one: dict[str, int]) -> str:
    return number(one["from"]) if one["from"] == one["to"] else f"{number(one['from'])} to {number(one['to'])}"


def training(summary: dict[str, Any]) -> Section:
    """Show the candidates, and the steps of the one with the largest weight."""
    about, history = summary["training"], summary["training"]["history"]
    section = Section("training", "Training")
    section.text.append(
        f"{count(len(about['candidates']), 'model')} in {number(about['seconds'])} seconds. The model with the largest "
        f"weight is {about['best']}, at step {about['best_step'] + 1} of {about['steps']}."
    )
    if len(history) < about["steps"]:
        section.text.append(f"The curve shows {len(history)} of {number(about['steps'])} steps.")
    if about["folds"] > 1:
        section.text.append(
            f"Each group was held out once, in {about['folds']} folds. The log-likelihood of held-out groups determined "
            "the step of each model, its weight in the mean of the predictions, and its temperature."
        )
    if any(entry.get("score") is not None for entry in history):
        section.pictures.append(
            Picture(
                plots.curve("score", history, "score", "held-out log-likelihood", about["best_step"]),
                "Line: held-out log-likelihood per group after each step, and the step that was chosen",
                _say_score(history, about["best_step"]),
            )
        )
    chosen = [
        (
            Cell(one["model"]),
            in_number(one["score"]),
            in_percent(one["weight"]),
            in_number(one["steps"]),
            in_number(one["seconds"]),
        )
        for one in about["candidates"]
    ]
    headings = ("model", "held-out log-likelihood per group", "weight", "steps", "seconds")
    section.tables.append(Table("Models", headings, chosen))
    return section


def _say_score(history: list[dict[str, Any]], best: int) -> str:
    scores = {entry["step"]: entry["score"] for entry in history if entry["score"] is not None}
    if best not in scores:
        return "Held-out groups chose the step."
    first, last = number(scores[min(scores)]), number(scores[max(scores)])
    return (
        f"The held-out log-likelihood per group, higher is better, rose from {first} to {number(scores[best])} at step "
        f"{best + 1}, the best, and was {last} at the last step."
    )


def balance(summary: dict[str, Any]) -> Section:
    """Compare the shares of the classes."""
    given = summary["balance"]
    has_implied = given[0]["implied"] is not None
    section = Section("balance", "Class balance")
    section.text.append(
        "Shares among the members of all groups: as the model predicts them from the rows alone, with what was "
        "observed of their groups known"
        + (", and as the observations tell them." if has_implied else ".")
        + ("" if has_implied else " These observations do not tell how frequent each class is.")
    )
    if summary["data"]["symmetry"] != "none":
        section.text.append("Names of classes are arbitrary unless the classes were named by labelled rows.")
    columns = ["class", "mean probability", "called so", "observations known"] + ["told by observations"] * has_implied
    rows = [
        [Cell(one["class"]), in_percent(one["predicted"]), in_percent(one["called"]), in_percent(one["known"])]
        + [in_percent(one["implied"])] * has_implied
        for one in given
    ]
    section.tables.append(Table("Shares of the classes", columns, rows))
    many = len(given) > MOST_CLASSES_DRAWN
    drawn = sorted(given, key=lambda one: -one["predicted"])[:MOST_CLASSES_DRAWN] if many else given
    series = {"predicted": [one["predicted"] for one in drawn]}
    series["observations known"] = [one["known"] or 0 for one in drawn]
    if has_implied:
        series["told by observations"] = [one["implied"] for one in drawn]
    section.pictures.append(
        Picture(
            plots.balance("balance", [one["class"] for one in drawn], series),
            "Bars: share of each class, predicted, with observations known"
            + (", and told by the observations" if has_implied else ""),
            _say_balance(given, has_implied)
            + (f" Drawn are the {len(drawn)} most frequent of {len(given)} classes." if many else ""),
        )
    )
    return section


def _say_balance(given: list[dict[str, Any]], has_implied: bool) -> str:
    if has_implied:
        off = max(given, key=lambda one: abs(one["predicted"] - one["implied"]))
        if abs(off["predicted"] - off["implied"]) < 0.001:
            return "Prediction and observations agree within a tenth of a percent for every class."
        return (
            f"The largest difference between prediction and observations is for class {off['class']}: "
            f"{percent(off['predicted'])} predicted, {percent(off['implied'])} told."
        )
    most, least = max(given, key=lambda one: one["predicted"]), min(given, key=lambda one: one["predicted"])
    return (
        f"The most frequent class is {most['class']} with {percent(most['predicted'])}, the rarest "
        f"{least['class']} with {percent(least['predicted'])}."
    )


def settings(summary: dict[str, Any]) -> Section:
    """List what is needed to do it again."""
    section = Section("settings", "Settings and versions")
    section.tables = [facts("Settings", summary["settings"]), facts("Versions", summary["versions"])]
    return section
