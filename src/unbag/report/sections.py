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
    """Show how the training went."""
    about, history = summary["training"], summary["training"]["history"]
    section = Section("training", "Training")
    stopped = about["scored"] and about["epochs"] < about["most_epochs"]
    timed = summary["settings"].get("time_limit") is not None
    why = "when time was up, or nothing improved any more" if timed else "because nothing improved any more"
    section.text.append(
        f"{count(about['epochs'], 'epoch')} in {number(about['seconds'])} seconds"
        + (f", stopped before {number(about['most_epochs'])} {why}" if stopped else "")
        + f"; the weights of epoch {about['best_epoch'] + 1} were kept. "
        + (f"The model has {count(about['parameters'], 'parameter')}; features" if about["parameters"] else "Features")
        + f" were scaled by “{about['scaling']}”."
    )
    if len(history) < about["epochs"]:
        section.text.append(f"The curves show {len(history)} of {number(about['epochs'])} epochs, spread evenly.")
    section.pictures.append(
        Picture(plots.curve("loss", history, "loss", "loss"), "Line: training loss by epoch", _say_loss(history))
    )
    if about["scored"]:
        section.pictures.append(
            Picture(
                plots.curve("score", history, "score", "held-out log-likelihood", about["best_epoch"]),
                "Line: log-likelihood per held-out group by epoch, with the epoch that was kept",
                _say_score(history, about["best_epoch"]),
            )
        )
    else:
        section.text.append("No groups were held out, so that the last epoch was kept and no score tells how it went.")
    if candidates := about.get("candidates"):
        section.text.append(
            f"Every group was left out of training once, in {about['folds']} folds. Log-likelihoods of groups by "
            "models that have not seen them chose the weights of the models in the mean of their probabilities, and "
            f"temperatures by which logits are divided, {number(about['temperature'])} for those of the mean."
        )
        chosen = [(Cell(one["model"]), in_number(one["score"]), in_percent(one["weight"])) for one in candidates]
        headings = ("model", "log-likelihood per left-out group", "weight")
        section.tables.append(Table("Models to choose from", headings, chosen))
    if len(about["replicas"]) > 1:
        rows = [
            (
                in_number(place + 1),
                Cell(one["scaling"]),
                in_number(one["best_epoch"] + 1),
                in_number(one["score"]),
                Cell("yes" if place == about["best_replica"] else ""),
            )
            for place, one in enumerate(about["replicas"])
        ]
        columns = ("number", "scaling", "best epoch", "log-likelihood per group", "best")
        section.tables.append(Table("Models trained side by side", columns, rows))
    return section


def _say_loss(history: list[dict[str, Any]]) -> str:
    losses = [entry["loss"] for entry in history if entry["loss"] is not None]
    if not losses:
        return "The loss was no number in any epoch."
    sentence = f"The loss went from {number(losses[0])} to {number(losses[-1])}."
    if len({entry["phase"] for entry in history}) > 1:
        sentence += " The dotted line marks where another loss took over: values before and after it do not compare."
    return sentence


def _say_score(history: list[dict[str, Any]], best: int) -> str:
    scores = {entry["epoch"]: entry["score"] for entry in history if entry["score"] is not None}
    if best not in scores:
        return "Held-out groups chose the epoch."
    first, last = number(scores[min(scores)]), number(scores[max(scores)])
    return (
        f"The log-likelihood of a held-out group, higher is better, went from {first} to "
        f"{number(scores[best])} in epoch {best + 1}, the best, and was {last} at the end."
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
