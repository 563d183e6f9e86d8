"""The sections of a report, as data from a summary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from unbag._utils.pages.tables import Cell, Table
from unbag._utils.problems import list_some
from unbag.report.elements import Section, count, interval, number, percent, wording
from unbag.report.overview import describe_gain, describe_labels, find_most_frequent, make_limitations

MAX_LISTED = 30
UNCERTAIN = 0.6
"""Probability of the most likely class below which a row counts as uncertain; an edge of the histogram."""


def make_sections(summary: dict[str, Any]) -> list[Section]:
    """Return the sections of a page in their order, without those that have no content."""
    first = (describe_quality, compare_labels, compare_methods)
    last = (describe_balance, describe_importance, describe_uncertainty, make_limitations, describe_data)
    collapsed = (describe_likelihood, describe_models, describe_settings)
    sections = [*(function(summary) for function in first), *_describe_outcomes(summary["sets"])]
    sections += [function(summary) for function in (*last, *collapsed)]
    return [section for section in sections if section is not None]


def describe_quality(summary: dict[str, Any]) -> Section:
    """Show the estimated figures of the model, and the accuracy of predictions that need no model."""
    section = Section("quality", "Quality")
    if accuracies := _find_accuracies(summary):
        section.add_table("Accuracy", accuracies, "prediction: name", "accuracy (95 % interval): accuracy%|")
        section.text.append(
            "The class shares of a group, where they are observed, predict only rows of that group. An estimate "
            "follows from held-out groups, without labels of rows."
        )
    if (performance := summary["estimated_performance"]) is not None:
        section.add_table(
            "Estimated by class, with 95 % intervals",
            performance["classes"],
            *("class", "share of rows: share%", "predicted: predicted%", "found (sensitivity): sensitivity%"),
            *("right (precision): precision%", "AUC: auc#"),
        )
        section.text.append(
            "Sensitivity is the share of the rows of a class that are predicted as such, precision the share of the "
            "rows predicted as such that are of the class. AUC is the probability that a row of the class gets a "
            f"higher probability than another row. The log loss is {interval(performance['log_loss'], number)}. "
            "The intervals assume that the predicted probabilities are right."
        )
    return section


def _find_accuracies(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the accuracies of the model and of other predictions; none where that of the model is unknown."""
    labels, estimate, found = summary["labels"], summary["estimated_accuracy"], []
    if estimate is not None:
        found.append(("this model, estimated", estimate))
    if labels is not None:
        found.append((f"this model, {count(labels['rows'], 'labelled row')}", labels["accuracy"]))
    if not found:
        return []
    for s in summary["sets"]:
        if (shares := s["own_share"]) is not None:
            found.append((f"most frequent class of the {wording(s).group}", shares["accuracy"]))
    if frequent := find_most_frequent(summary):
        found.append(("most frequent class", frequent[1]))
    return [{"name": name, "accuracy": accuracy} for name, accuracy in found]


def compare_labels(summary: dict[str, Any]) -> Section | None:
    """Compare predictions with labels of rows."""
    labels = summary["labels"]
    if labels is None:
        return None
    section = Section("labels", "Comparison with labels", [describe_labels(labels)])
    for known, s in zip(labels["known_observation"], summary["sets"], strict=True):
        if known is not None:
            section.text.append(
                f"Accuracy on {count(known['memberships'], 'labelled member')} of {wording(s).groups}: "
                f"{percent(known['before'])} from the row alone, {percent(known['after'])} given the observation."
            )
    if labels["renamed"]:
        section.text.append("The observations do not name the classes, which were matched with the labels.")
    predicted = sum(b["n"] * b["predicted"] for b in labels["calibration"]) / labels["rows"]
    section.add_plot(
        "reliability",
        "Line: share of correct predictions by predicted probability",
        f"The mean predicted probability is {percent(predicted)}, the accuracy {percent(labels['accuracy'])}, the mean "
        f"calibration error {percent(labels['calibration_error'])}.",
        bins=labels["calibration"],
        x="probability of the predicted class",
        y="share correct",
    )
    columns = ("class", "rows#", "predicted: called#", "recall: found%|", "precision: correct%|")
    section.add_table("By class", labels["classes"], *columns)
    if (matrix := labels["confusion"]) is not None:
        names = [row["class"] for row in labels["classes"]]
        shares = [[Cell(f"{n:,}", n, round(100 * n / max(sum(row), 1))) for n in row] for row in matrix]
        rows = [[Cell(name), *cells] for name, cells in zip(names, shares, strict=True)]
        section.tables.append(Table("Rows by label and predicted class", ["label", *names], rows, names))
    if labels["mistakes"]:
        section.add_table("Most frequent mistakes", labels["mistakes"], "label", "predicted", "rows#")
    return section


def compare_methods(summary: dict[str, Any]) -> Section | None:
    """Compare methods, where the summary has accuracies of several."""
    if not summary.get("comparison"):
        return None
    section = Section("comparison", "Comparison with other methods")
    section.add_table("Accuracy on new rows", summary["comparison"], "method", "accuracy%|", "seconds#")
    return section


def _describe_outcomes(sets: list[dict[str, Any]]) -> Iterator[Section]:
    """Compare observed with predicted values of each set."""
    for n, s in enumerate(sets):
        words, which = wording(s), f": {wording(s).title.lower()}" if len(sets) > 1 else ""
        section = Section(f"outcome-{n}", f"Observed and predicted values{which}")
        {"counts": _add_counts, "answers": _add_answers, "other": _add_other}[s["outcome"]["form"]](section, s)
        columns = [f"{words.group}: group", "size#", "observed"]
        if s["outcome"]["form"] == "counts":
            columns += ["expected", "difference in standard deviations: deviation#"]
        else:
            columns.append("predicted probability of the observation: probability%")
        section.add_table(f"{words.groups.capitalize()} that fit worst", s["worst"], *columns)
        yield section


def _add_counts(section: Section, s: dict[str, Any]) -> None:
    found, words = s["outcome"], wording(s)
    outside = sum(abs(b["predicted"] - b["happened"]) > 2 * b["spread"] for b in found["bins"])
    section.add_plot(
        "reliability",
        f"Line: observed share of a class in a {words.group}, by the predicted share",
        "Vertical bars show where 95 % of the shares lie if the model is right and members are independent; "
        f"{outside} of {len(found['bins'])} are outside.",
        bins=found["bins"],
        x="predicted share",
        y="observed share",
    )
    columns = ("class", "observed#", "predicted: expected#", "mean error: error#")
    title = f"Counts in {s['judged']['groups']:,} {words.groups}"
    section.add_table(title, found["classes"], *columns, "mean error of a constant count: trivial_error#")


def _add_answers(section: Section, s: dict[str, Any]) -> None:
    found, words = s["outcome"], wording(s)
    axis = f"predicted probability of “{words.yes}”"
    section.add_plot(
        "two_histograms",
        f"Histograms: {axis} where “{words.no}” and where “{words.yes}” was observed",
        f"The likelier value is right for {percent(found['right'])} of the {words.groups}, the most frequent value for "
        f"{percent(found['most_common'])}.",
        counts={f"observed: {words.no}": found["no"], f"observed: {words.yes}": found["yes"]},
        edges=found["edges"],
        x=axis,
    )
    section.add_plot(
        "reliability",
        f"Line: observed share of “{words.yes}” by its predicted probability",
        "On the dotted line, predicted probabilities equal observed shares.",
        bins=found["bins"],
        x=axis,
        y="observed share",
    )
    columns = (f"{axis}: predicted%", "observed share: happened%", f"{words.groups}: n#")
    section.add_table("Calibration", found["bins"], *columns)


def _add_other(section: Section, s: dict[str, Any]) -> None:
    found, words, x = s["outcome"], wording(s), "predicted probability of the observation"
    likely = percent(sum(found["counts"][5:]) / max(sum(found["counts"]), 1))
    histogram = {"edges": found["edges"], "counts": found["counts"], "x": x, "y": words.groups}
    section.add_plot("bars", f"Histogram: {x}", f"It is at least one half for {likely} of them.", **histogram)


def describe_balance(summary: dict[str, Any]) -> Section:
    """Compare the shares of the classes."""
    section = Section("balance", "Class shares")
    section.text.append(
        "Shares of the classes among members of groups: predicted from the rows alone, given the observations, and "
        "implied by the observations alone, where they imply shares."
    )
    columns = ("class", "most likely class: called%", "predicted: predicted%|", "given the observations: known%|")
    section.add_table("Shares of the classes", summary["balance"], *columns, "implied by the observations: implied%|")
    return section


def describe_importance(summary: dict[str, Any]) -> Section | None:
    """Show how much log-likelihood is lost without each column; None where there are no columns."""
    if not summary["columns"]:
        return None
    section, measured = Section("importance", "Column importance"), summary["importance"]
    if measured is None:
        section.text.append("Importance was not computed: groups are too large, or the time limit is too short.")
        return section
    section.text.append(
        f"Each column was permuted {count(measured['permutations'], 'time')} among {measured['rows']:,} rows of "
        f"{measured['groups']:,} {'held-out groups' if measured['held_out'] else 'groups of the fit'}. The loss of "
        "log-likelihood per group shows how much predictions depend on the column. Correlated columns share their "
        "importance, and importance does not imply a cause."
    )
    if (total := summary["columns"]) > len(measured["columns"]):
        section.text.append(f"Of {total:,} columns, those most correlated with predicted probabilities were permuted.")
    columns = ("column", "loss of log-likelihood per group: drop#|", "standard error: error#")
    section.add_table("Permutation importance", measured["columns"], *columns)
    return section


def describe_uncertainty(summary: dict[str, Any]) -> Section:
    """Show the probability of the most likely class."""
    section, axis = Section("uncertainty", "Uncertain predictions"), "probability of the most likely class"
    section.text.append(
        "The probability of the most likely class of each member, from the row alone and given the observation of its "
        "group (the posterior, which disaggregate returns)."
    )
    for confidence in (s["confidence"] for s in summary["sets"]):
        before, edges = confidence["before"], confidence["edges"]
        uncertain = sum(n for n, edge in zip(before, edges, strict=False) if edge < UNCERTAIN - 1e-9)
        caption = (
            f"It is below {percent(UNCERTAIN)} for {percent(uncertain / sum(before))} of the members. Its mean is "
            f"{percent(confidence['mean_before'])} from the row alone"
        )
        if confidence["mean_after"] is not None:
            caption += f", {percent(confidence['mean_after'])} given the observation"
        if confidence["without"]:
            caption += f"; {count(confidence['without'], 'member')} of impossible observations have no posterior"
        section.add_plot(
            "two_histograms",
            f"Histograms: {axis}, from the row alone and given the observation",
            f"{caption}.",
            counts={"from the row alone": before, "given the observation": confidence["after"]},
            edges=edges,
            x=axis,
        )
    return section


def describe_data(summary: dict[str, Any]) -> Section:
    """Describe rows, groups and where they come from."""
    about, shape, section = summary["data"], summary["data"]["input_shape"], Section("data", "Training data")
    columns = ("observations: wording.title", "kind: aggregate", "groups#", "rows#", "smallest: sizes.min#")
    section.add_table(
        "Sets of observations", summary["sets"], *columns, "median size: sizes.median#", "largest: sizes.max#"
    )
    for s in summary["sets"]:
        if len(sizes := s["sizes"]["histogram"]) > 1:
            section.add_table(f"Sizes of {wording(s).groups}", sizes, "size from: from#", "to#", "groups#|")
    described = {
        "rows": number(about["rows"]),
        "rows in groups": number(about["rows_in_groups"]),
        "features": number(about["features"]) if len(shape) == 1 else f"images of {' by '.join(map(str, shape))}",
        "names of features": list_some(about["feature_names"], MAX_LISTED, str),
        "classes": list_some(about["classes"], MAX_LISTED, str),
    }
    section.add_facts("Rows, features and classes", described | summary["inputs"])
    return section


def describe_likelihood(summary: dict[str, Any]) -> Section:
    """Compare the log-likelihood of held-out groups with that of predictions that need no model."""
    section = Section("likelihood", "Log-likelihoods", collapsed=True)
    section.text += [
        "A constant prediction gives every row the class probabilities that fit the observations best; the class "
        "shares of a group predict only rows of that group.",
        *map(describe_gain, summary["sets"]),
    ]
    columns = ("observations: wording.title", "groups: judged.groups#", "model: likelihood.model#")
    columns += ("constant prediction: likelihood.trivial#", "class shares of the group: own_share.log_likelihood#")
    columns += ("better than constant: likelihood.better%", "impossible: likelihood.impossible#")
    section.add_table("Log-likelihood per group (higher is better)", summary["sets"], *columns)
    return section


def describe_models(summary: dict[str, Any]) -> Section:
    """Show the candidates of the mixture."""
    about, section = summary["training"], Section("training", "Models", collapsed=True)
    if about["folds"] > 1:
        section.text.append(
            f"Each group was held out in one of {about['folds']} folds. The held-out log-likelihood determines where "
            "each model stops, its weight and its temperature."
        )
    columns = ("model", "held-out log-likelihood per group: score#", "weight%|", "steps#", "seconds#")
    section.add_table("Models", about["candidates"], *columns)
    return section


def describe_settings(summary: dict[str, Any]) -> Section:
    """List what is needed to repeat the fit."""
    section = Section("settings", "Settings and versions", collapsed=True)
    section.add_facts("Settings", summary["settings"])
    section.add_facts("Versions", summary["versions"])
    return section
