"""The sections of a report, as data from a summary."""

from collections.abc import Iterator
from typing import Any

from unbag._utils.pages.tables import Cell, Table
from unbag._utils.problems import list_some
from unbag.report.elements import Plot, Section, count, interval, make_facts, make_table, number, percent, wording
from unbag.report.overview import describe_labels, find_most_frequent, make_limitations

MAX_LISTED, MAX_NAMED = 30, 5
UNCERTAIN = 0.6
"""Probability of the most likely class below which a row counts as uncertain; an edge of the histogram."""


def make_sections(summary: dict[str, Any]) -> list[Section]:
    """Return the sections of a page in their order, without those that have no content."""
    sets, about = summary["sets"], summary["training"]
    optional = [
        _show_quality(summary),
        _compare_labels(summary) if summary["labels"] is not None else None,
        Section(
            "comparison",
            "Comparison with other methods",
            tables=[make_table("Accuracy on new rows", summary["comparison"], "method", "accuracy%|", "seconds#")],
        )
        if summary.get("comparison")
        else None,
        *_show_outcomes(sets, summary["data"]["classes"]),
        Section(
            "balance",
            "Class shares",
            [
                "How many of the rows in groups belong to each class: by the predicted class of each row, by the mean "
                "of its predicted probability, by this mean after using the observations of the groups, and by the "
                "observations alone, where they show it."
            ],
            tables=[
                make_table(
                    "Shares of the classes",
                    summary["balance"],
                    *("class", "predicted class: called%|", "mean probability: predicted%|"),
                    "mean probability after using the observations: known%|",
                    *["observations alone: implied%|"] * (summary["balance"][0]["implied"] is not None),
                )
            ],
        ),
        _show_importance(summary) if summary["columns"] else None,
        Section(
            "uncertainty",
            "Uncertain predictions",
            [
                "How certain predictions are: the probability of the most likely class of each row, from its columns "
                "alone (as unbag predict computes it), and after using the observation of its group (as unbag "
                "disaggregate does)."
            ],
            plots=[_plot_confidence(s["confidence"]) for s in sets],
        ),
        make_limitations(summary),
        _show_data(summary),
        Section(
            "likelihood",
            "Log-likelihoods",
            [
                "The constant prediction gives every row the same class probabilities, those that fit the observations "
                "best. The class shares of a group are known only for rows of that group."
            ],
            tables=[
                make_table(
                    "Log-likelihood per group (higher is better)",
                    sets,
                    *("observations: wording.title", "groups: judged.groups#", "model: likelihood.model#"),
                    *("constant prediction: likelihood.trivial#", "better than constant: likelihood.better%"),
                    *("class shares of the group: own_share.log_likelihood#", "impossible: likelihood.impossible#"),
                )
            ],
            collapsed=True,
        ),
        Section(
            "training",
            "Models",
            [
                f"Each group was held out in one of {about['folds']} folds. The held-out log-likelihood determines "
                "where each model stops, its weight and its temperature."
            ]
            if about["folds"] > 1
            else [],
            tables=[
                make_table(
                    "Models",
                    about["candidates"],
                    *("model", "held-out log-likelihood per group: score#", "weight%|", "steps#", "seconds#"),
                )
            ],
            collapsed=True,
        ),
        Section(
            "settings",
            "Settings and versions",
            tables=[make_facts("Settings", summary["settings"]), make_facts("Versions", summary["versions"])],
            collapsed=True,
        ),
    ]
    return [section for section in optional if section is not None]


def _show_quality(summary: dict[str, Any]) -> Section:
    """Show the estimated figures of the model, and the accuracy of predictions that need no model."""
    section, labels, accuracies = Section("quality", "Quality"), summary["labels"], []
    if (estimate := summary["estimated_accuracy"]) is not None:
        accuracies.append(("this model, estimated", estimate))
    if labels is not None:
        accuracies.append((f"this model, {count(labels['rows'], 'labelled row')}", labels["accuracy"]))
    if accuracies:
        shares = [(wording(s).group, s["own_share"]) for s in summary["sets"] if s["own_share"] is not None]
        accuracies += [(f"most frequent class of the {group}", share["accuracy"]) for group, share in shares]
        if frequent := find_most_frequent(summary):
            accuracies.append(("most frequent class", frequent[1]))
        items = [{"prediction": name, "accuracy": accuracy} for name, accuracy in accuracies]
        section.tables.append(make_table("Accuracy", items, "prediction", "accuracy (95 % interval): accuracy%|"))
        section.text.append(
            "The estimate needs no labels of rows: it follows from groups that the models did not see."
            + " The most frequent class of each group is known only for rows in these groups, not for new rows."
            * bool(shares)
        )
    if (performance := summary["estimated_performance"]) is not None:
        table = make_table(
            "Estimated by class, with 95 % intervals",
            performance["classes"],
            *("class", "share of rows: share%", "predicted share: predicted%"),
            *("found (sensitivity): sensitivity%", "right (precision): precision%", "AUC: auc#"),
        )
        section.tables.append(table)
        section.text.append(
            "Sensitivity is the share of the rows of a class that are predicted as such, precision the share of the "
            "rows predicted as such that are of the class. AUC is the probability that a row of the class gets a "
            f"higher probability than another row. The log loss is {interval(performance['log_loss'], number)}. "
            "The intervals assume that the predicted probabilities are right."
        )
    return section


def _compare_labels(summary: dict[str, Any]) -> Section:
    """Compare predictions with labels of rows."""
    labels = summary["labels"]
    section = Section("labels", "Comparison with labels", [describe_labels(labels)])
    for known, s in zip(labels["known_observation"], summary["sets"], strict=True):
        if known is not None:
            section.text.append(
                f"Accuracy on {count(known['memberships'], 'labelled member')} of {wording(s).groups}: "
                f"{percent(known['before'])} from the columns alone, {percent(known['after'])} after using the "
                "observations."
            )
    if labels["renamed"]:
        section.text.append("The observations do not name the classes, which were matched with the labels.")
    predicted = sum(b["n"] * b["predicted"] for b in labels["calibration"]) / labels["rows"]
    plot = Plot(
        "reliability",
        "Line: share of correct predictions by predicted probability",
        f"The mean predicted probability is {percent(predicted)}, the accuracy {percent(labels['accuracy'])}, the mean "
        f"calibration error {percent(labels['calibration_error'])}.",
        {"bins": labels["calibration"], "x": "probability of the predicted class", "y": "share correct"},
    )
    section.plots.append(plot)
    columns = ("class", "rows#", "predicted: called#", "found (sensitivity): found%|", "right (precision): correct%|")
    section.tables.append(make_table("By class", labels["classes"], *columns))
    if (matrix := labels["confusion"]) is not None:
        names = [row["class"] for row in labels["classes"]]
        few = len(names) <= MAX_NAMED  # bars of many classes would make the table wider than the page
        rows = [
            [Cell(name), *(Cell(f"{n:,}", n, round(100 * n / max(sum(row), 1)) if few else None) for n in row)]
            for name, row in zip(names, matrix, strict=True)
        ]
        section.tables.append(Table("Rows by label and predicted class", ["label", *names], rows, names))
    return section


def _show_outcomes(sets: list[dict[str, Any]], classes: list[str]) -> Iterator[Section]:
    """Compare observed with predicted values of each set."""
    for n, s in enumerate(sets):
        found, words, form = s["outcome"], wording(s), s["outcome"]["form"]
        section = Section(f"outcome-{n}", "Observed and predicted values")
        if len(sets) > 1:
            section.title += f": {words.title.lower()}"
        if form == "counts":
            outside = sum(abs(b["predicted"] - b["happened"]) > 2 * b["spread"] for b in found["bins"])
            plot = Plot(
                "reliability",
                f"Line: observed share of a class in a {words.group}, by the predicted share",
                "Each dot is a tenth of the predicted shares. If the model is right and rows are independent, 95 % of "
                f"the dots lie within the vertical bars; {outside} of {len(found['bins'])} are outside.",
                {"bins": found["bins"], "x": "predicted share", "y": "observed share"},
            )
            table = make_table(
                f"Counts in {s['judged']['groups']:,} {words.groups}",
                found["classes"],
                *("class", "observed#", "predicted: expected#", "mean error: error#"),
                "mean error if always guessing the mean count: trivial_error#",
            )
            section.plots, section.tables = [plot], [table]
        elif form == "answers":
            axis = f"predicted probability of “{words.yes}”"
            counts = {f"observed: {words.no}": found["no"], f"observed: {words.yes}": found["yes"]}
            section.plots += [
                Plot(
                    "two_histograms",
                    f"Histograms: {axis} where “{words.no}” and where “{words.yes}” was observed",
                    f"The more probable answer is right for {percent(found['right'])} of the {words.groups}, the most "
                    f"frequent answer for {percent(found['most_common'])}.",
                    {"counts": counts, "edges": found["edges"], "x": axis},
                ),
                Plot(
                    "reliability",
                    f"Line: observed share of “{words.yes}” by its predicted probability",
                    "On the dotted line, predicted probabilities equal observed shares.",
                    {"bins": found["bins"], "x": axis, "y": "observed share"},
                ),
            ]
        named = f" ({', '.join(classes)})" if form == "counts" and len(classes) <= MAX_NAMED else ""
        compared = [f"expected{named}: expected", "difference in standard deviations: deviation#"]
        if form != "counts":
            compared = ["predicted probability of the observation: probability%"]
        size = [] if s["sizes"]["min"] == s["sizes"]["max"] else ["size#"]
        columns = (f"{words.group}: group", *size, f"observed{named}: observed", *compared)
        section.tables.append(make_table(f"{words.groups.capitalize()} that fit worst", s["worst"], *columns))
        yield section


def _show_importance(summary: dict[str, Any]) -> Section:
    """Show how much log-likelihood is lost without each column."""
    section, measured = Section("importance", "Column importance"), summary["importance"]
    if measured is None:
        section.text.append("Importance was not computed: groups are too large, or the time limit is too short.")
        return section
    section.text.append(
        f"The values of each column were exchanged {count(measured['permutations'], 'time')} at random among "
        f"{measured['rows']:,} rows of {measured['groups']:,} "
        f"{'held-out groups' if measured['held_out'] else 'groups of the fit'}. The more log-likelihood per group is "
        "lost, the more predictions depend on the column. Correlated columns share their importance, and an important "
        "column is not necessarily a cause."
    )
    if (total := summary["columns"]) > len(measured["columns"]):
        section.text.append(f"Of {total:,} columns, those most correlated with predicted probabilities were permuted.")
    columns = ("column", "loss of log-likelihood per group: drop#|", "standard error: error#")
    section.tables.append(make_table("Permutation importance", measured["columns"], *columns))
    return section


def _plot_confidence(confidence: dict[str, Any]) -> Plot:
    """Show the probability of the most likely class, before and after the observation is known."""
    before, edges = confidence["before"], confidence["edges"]
    uncertain = sum(n for n, edge in zip(before, edges, strict=False) if edge < UNCERTAIN - 1e-9) / sum(before)
    caption = f"From the columns alone, the probability is below {percent(UNCERTAIN)} for {percent(uncertain)} of the "
    caption += f"rows. The mean is {percent(confidence['mean_before'])}"
    if confidence["mean_after"] is not None:
        caption += f", and {percent(confidence['mean_after'])} after using the observations"
    if confidence["without"]:
        caption += f"; {count(confidence['without'], 'member')} of impossible observations have no posterior"
    axis = "probability of the most likely class"
    counts = {"from the columns alone": before, "after using the observations": confidence["after"]}
    description = f"Histograms: {axis}, {' and '.join(counts)}"
    return Plot("two_histograms", description, f"{caption}.", {"counts": counts, "edges": edges, "x": axis})


def _show_data(summary: dict[str, Any]) -> Section:
    """Describe rows, groups and where they come from."""
    about, shape = summary["data"], summary["data"]["input_shape"]
    sets = make_table(
        "Sets of observations",
        summary["sets"],
        *("observations: wording.title", "groups#", "rows#", "smallest group: sizes.min#"),
        *("median size: sizes.median#", "largest group: sizes.max#"),
    )
    described = {
        "rows": number(about["rows"]),
        "rows in groups": number(about["rows_in_groups"]),
        "features": number(about["features"]) if len(shape) == 1 else f"images of {' by '.join(map(str, shape))}",
        "names of features": list_some(about["feature_names"], MAX_LISTED, str),
        "classes": list_some(about["classes"], MAX_LISTED, str),
    }
    facts = make_facts("Rows, features and classes", described | summary["inputs"])
    return Section("data", "Training data", tables=[sets, facts])
