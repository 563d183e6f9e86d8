"""The sections of a report, as data from a summary."""

from __future__ import annotations

from typing import Any

from unbag.report.elements import Section, count, listed, number, percent, wording
from unbag.report.overview import describe_gain, describe_labels, describe_scored, find_most_frequent, make_limitations

MAX_CLASSES_DRAWN = 25
MAX_PARTS_DRAWN = 10
MAX_LISTED = 30
UNCERTAIN = 0.6
"""Probability of the likeliest class below which a row counts as uncertain; an edge of the histogram."""


def make_sections(summary: dict[str, Any]) -> list[Section]:
    """Return all sections that a summary has content for, in their order on the page."""
    sections = [
        quality(summary),
        labels(summary),
        comparison(summary),
        *(outcome(s, place, len(summary["sets"])) for place, s in enumerate(summary["sets"])),
        balance(summary),
        importance(summary),
        uncertainty(summary),
        make_limitations(summary),
        data(summary),
        training(summary),
        settings(summary),
    ]
    return [section for section in sections if section is not None]


def quality(summary: dict[str, Any]) -> Section:
    """Compare the model with predictions that need no model, by accuracy and by likelihood."""
    section = Section("quality", "Quality", [describe_scored(s) for s in summary["sets"]])
    section.text.append(
        "A constant prediction gives every row the class probabilities that fit the observations best. The class "
        "shares of a group, where they are observed, predict only rows of that group."
    )
    if accuracies := _find_accuracies(summary):
        description = "Bars: accuracy of the model and of predictions that need no model"
        caption = "Lines are 95 % intervals over groups." if "low" in accuracies[0] else "Accuracy on labelled rows."
        section.add_plot("yardsticks", description, caption, items=accuracies, x="accuracy")
        items = [{"low": None, "high": None, **item} for item in accuracies]
        columns = {"prediction": "name", "accuracy": "value%", "from": "low%", "to": "high%"}
        section.add_table("Accuracy and its 95 % interval", items, columns)
    for s in summary["sets"]:
        likelihood, words = s["likelihood"], wording(s)
        if likelihood["model"] is not None:
            description = f"Histogram: log-likelihood of each {words.group}, model minus constant prediction"
            bins = {"edges": likelihood["edges"], "counts": likelihood["counts"], "y": words.groups}
            x = "log-likelihood, model minus constant prediction"
            section.add_plot("bars", description, describe_gain(s), x=x, **bins)
    columns = {
        "observations": "wording.title",
        "groups": "judged.groups#",
        "model": "likelihood.model#",
        "constant prediction": "likelihood.trivial#",
        "class shares of the group": "own_share.log_likelihood#",
        "better than constant": "likelihood.better%",
        "impossible": "likelihood.impossible#",
    }
    section.add_table("Log-likelihood per group (higher is better)", summary["sets"], columns)
    return section


def _find_accuracies(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the accuracies of the model and of other predictions; none where that of the model is unknown."""
    labels, estimate = summary["labels"], summary["estimated_accuracy"]
    found: list[dict[str, Any]] = []
    if estimate is not None:
        found.append({"name": "this model, estimated", **estimate})
    if labels is not None:
        found.append({"name": f"this model, {count(labels['rows'], 'labelled row')}", "value": labels["accuracy"]})
    if not found:
        return []
    for s in summary["sets"]:
        if (shares := s["own_share"]) is not None:
            found.append({"name": f"most frequent class of its {wording(s).group}", "value": shares["accuracy"]})
    if frequent := find_most_frequent(summary):
        found.append({"name": "most frequent class", "value": frequent[1]})
    return found


def labels(summary: dict[str, Any]) -> Section | None:
    """Compare predictions with labels of rows."""
    given = summary["labels"]
    if given is None:
        return None
    section = Section("labels", "Comparison with labels", [describe_labels(given)])
    for known, s in zip(given["known_observation"], summary["sets"], strict=True):
        if known is not None:
            section.text.append(
                f"Accuracy on {count(known['memberships'], 'labelled member')} of {wording(s).groups}: "
                f"{percent(known['before'])} from the row alone, {percent(known['after'])} given the observation."
            )
    if given["renamed"]:
        section.text.append("The observations do not name the classes, which were matched with the labels.")
    bins, columns = given["calibration"], {"x": "probability of the predicted class", "y": "share correct"}
    caption = (
        f"The mean predicted probability is {percent(sum(b['n'] * b['predicted'] for b in bins) / given['rows'])}, the "
        f"accuracy {percent(given['accuracy'])}, the mean calibration error {percent(given['calibration_error'])}."
    )
    description = "Line: share of correct predictions by predicted probability"
    section.add_plot("reliability", description, caption, bins=bins, **columns)
    mistakes = given["mistakes"]
    if given["confusion"] is not None:
        names, caption = [row["class"] for row in given["classes"]], "There are no mistakes."
        if mistakes:
            caption = f"The most frequent mistake: {mistakes[0]['label']} predicted as {mistakes[0]['predicted']}."
        description = "Matrix: rows by label and predicted class"
        section.add_plot("confusion", description, caption, names=names, matrix=given["confusion"])
    columns = {"class": "class", "rows": "rows#", "predicted": "called#", "recall": "found%", "precision": "correct%"}
    section.add_table("By class", given["classes"], columns)
    if mistakes:
        columns = {"label": "label", "predicted": "predicted", "rows": "rows#"}
        section.add_table("Most frequent mistakes", mistakes, columns)
    return section


def comparison(summary: dict[str, Any]) -> Section | None:
    """Compare methods, where the summary has accuracies of several."""
    if not summary.get("comparison"):
        return None
    section = Section("comparison", "Comparison with other methods")
    columns = {"method": "method", "accuracy": "accuracy%", "seconds": "seconds#"}
    section.add_table("Accuracy on new rows", summary["comparison"], columns)
    return section


def outcome(s: dict[str, Any], place: int, n_sets: int) -> Section:
    """Compare observed with predicted values of one set."""
    words = wording(s)
    which = "" if n_sets == 1 else f" (set {place + 1}: {words.title.lower()})"
    section = Section(f"outcome-{place}", f"Observed and predicted values{which}")
    {"counts": _add_counts, "answers": _add_answers, "other": _add_other}[s["outcome"]["form"]](section, s)
    columns = {words.group: "group", "size": "size#", "observed": "observed", "log-likelihood": "model#"}
    columns["constant prediction"] = "trivial#"
    section.add_table(f"{words.groups.capitalize()} with the lowest likelihood", s["worst"], columns)
    return section


def _add_counts(section: Section, s: dict[str, Any]) -> None:
    found, words = s["outcome"], wording(s)
    rows, bins = found["classes"], found["bins"]
    error, constant = (sum(row[name] for row in rows) / len(rows) for name in ("error", "trivial_error"))
    drawn = "" if found["groups_drawn"] == s["judged"]["groups"] else f" of {found['groups_drawn']:,} {words.groups}"
    section.add_plot(
        "scatter",
        f"Points: observed and predicted share of each class in each {words.group}",
        f"Each point is a class in a {words.group}{drawn}. The mean error of a count is {number(error)}; predicting "
        f"the mean count gives {number(constant)}.",
        **{"points": found["points"], "x": "observed share", "y": "predicted share"},
    )
    outside = sum(abs(b["predicted"] - b["happened"]) > 2 * b["spread"] for b in bins)
    section.add_plot(
        "reliability",
        f"Line: observed share of a class in a {words.group}, by the predicted share",
        "Vertical bars show where 95 % of the shares lie if the model is right and members are independent; "
        f"{outside} of {len(bins)} are outside.",
        **{"bins": bins, "x": "predicted share", "y": "observed share"},
    )
    columns = {"class": "class", "observed": "observed#", "predicted": "expected#", "mean error": "error#"}
    columns["mean error of the mean count"] = "trivial_error#"
    section.add_table(f"Counts in {number(s['judged']['groups'])} {words.groups}", rows, columns)


def _add_answers(section: Section, s: dict[str, Any]) -> None:
    found, words = s["outcome"], wording(s)
    axis = f"predicted probability of “{words.yes}”"
    section.add_plot(
        "two_histograms",
        f"Histograms: {axis} where “{words.no}” and where “{words.yes}” was observed",
        f"The likelier value is right for {percent(found['right'])} of the {words.groups}, the most frequent value for "
        f"{percent(found['most_common'])}.",
        counts={f"observed: {words.no}": found["no"], f"observed: {words.yes}": found["yes"]},
        **{"edges": found["edges"], "x": axis},
    )
    section.add_plot(
        "reliability",
        f"Line: observed share of “{words.yes}” by its predicted probability",
        "On the dotted line, predicted probabilities equal observed shares.",
        **{"bins": found["bins"], "x": axis, "y": "observed share"},
    )
    columns = {axis: "predicted%", "observed share": "happened%", words.groups: "n#"}
    section.add_table("Calibration", found["bins"], columns)


def _add_other(section: Section, s: dict[str, Any]) -> None:
    found, words = s["outcome"], wording(s)
    likely = sum(found["counts"][5:]) / max(sum(found["counts"]), 1)
    section.add_plot(
        "bars",
        f"Histogram: predicted probability of the observation of each {words.group}",
        f"{percent(likely)} of the observations have a predicted probability of at least one half.",
        x="predicted probability of the observation",
        **{"edges": found["edges"], "counts": found["counts"], "y": words.groups},
    )


def balance(summary: dict[str, Any]) -> Section:
    """Compare the shares of the classes."""
    rows = summary["balance"]
    shares = {"predicted": "predicted", "given the observations": "known", "implied by the observations": "implied"}
    text = "Shares of the classes among members of groups: predicted from the rows alone, given the observations"
    if rows[0]["implied"] is None:
        del shares["implied by the observations"]
        text += ". These observations do not imply shares."
    else:
        text += ", and as the observations alone imply them."
    section = Section("balance", "Class shares", [text])
    columns = {"class": "class", "most likely class": "called%"} | {name: f"{key}%" for name, key in shares.items()}
    section.add_table("Shares of the classes", rows, columns)
    drawn = rows
    if len(rows) > MAX_CLASSES_DRAWN:
        drawn = sorted(rows, key=lambda row: -row["predicted"])[:MAX_CLASSES_DRAWN]
    section.add_plot(
        "grouped_bars",
        f"Bars: share of each class, {', '.join(shares)}",
        "All classes." if drawn is rows else f"The {len(drawn)} most frequent of {len(rows)} classes.",
        names=[row["class"] for row in drawn],
        series={name: [row[key] or 0 for row in drawn] for name, key in shares.items()},
        x="share of members",
    )
    return section


def importance(summary: dict[str, Any]) -> Section | None:
    """Show how much log-likelihood is lost without each column; None where there are no columns."""
    if not summary["columns"]:
        return None
    section, measured = Section("importance", "Column importance"), summary["importance"]
    if measured is None:
        section.text.append("Importance was not computed: groups are too large, or the time limit is too short.")
        return section
    columns, groups = measured["columns"], "held-out groups" if measured["held_out"] else "groups of the fit"
    section.text.append(
        f"Each column was permuted {count(measured['permutations'], 'time')} among {measured['rows']:,} rows of "
        f"{measured['groups']:,} {groups}. The loss of log-likelihood per group shows how much predictions depend on "
        "the column. Correlated columns share their importance, and importance does not imply a cause."
    )
    if (total := summary["columns"]) > len(columns):
        section.text.append(f"Of {total:,} columns, those most correlated with predicted probabilities were permuted.")
    clear, axis = (
        sum(c["drop"] is None or c["drop"] > 2 * c["error"] for c in columns),
        "loss of log-likelihood per group",
    )
    section.add_plot(
        "importance",
        "Bars: loss of log-likelihood per group when a column is permuted, with two standard errors",
        f"The loss exceeds two standard errors for {clear} of {count(len(columns), 'column')}.",
        **{"columns": columns, "x": axis},
    )
    section.add_table("Importance", columns, {"column": "column", axis: "drop#", "standard error": "error#"})
    return section


def uncertainty(summary: dict[str, Any]) -> Section:
    """Show the probability of the likeliest class, and for which values and groups it is lowest."""
    section = Section("uncertainty", "Uncertain predictions")
    section.text.append(
        "The probability of the most likely class of each member, from the row alone and given the observation of its "
        "group (the posterior, which disaggregate returns)."
    )
    axis, parts = "probability of the likeliest class", summary["least_confident"]
    if parts:
        sizes = [s["memberships"] for s in summary["sets"]]
        means = [s["confidence"]["mean_before"] * size for s, size in zip(summary["sets"], sizes, strict=True)]
        mean, named = sum(means) / sum(sizes), [{**p, "value": _describe_part(p)} for p in parts]
        items = [{"name": f"{p['column']}: {p['value']}", "value": p["confidence"]} for p in named[:MAX_PARTS_DRAWN]]
        description = f"Bars: mean {axis}, for the values of columns where it is lowest"
        caption = f"It is lowest for {items[0]['name']}. The dotted line is the mean of all members, {percent(mean)}."
        section.add_plot("yardsticks", description, caption, items=items, x=f"mean {axis}", typical=mean)
        columns = {"column": "column", "value": "value", "members": "members#", f"mean {axis}": "confidence%"}
        section.add_table("Values with the lowest confidence", named, columns)
    for s in summary["sets"]:
        confidence, words = s["confidence"], wording(s)
        before, edges = confidence["before"], confidence["edges"]
        uncertain = sum(n for n, edge in zip(before, edges, strict=False) if edge < UNCERTAIN - 1e-9)
        caption = (
            f"It is below {percent(UNCERTAIN)} for {percent(uncertain / sum(before))} of the members. Its mean is "
            f"{percent(confidence['mean_before'])} from the row alone, {percent(confidence['mean_after'])} given the "
            f"observation."
        )
        if confidence["without"]:
            caption += f" {count(confidence['without'], 'member')} of impossible observations have no posterior."
        counts = {"from the row alone": before, "given the observation": confidence["after"]}
        description = f"Histograms: {axis}, from the row alone and given the observation"
        section.add_plot("two_histograms", description, caption, edges=edges, counts=counts, x=axis)
        if s["sizes"]["max"] > 1:
            columns = {words.group: "group", "size": "size#", "observed": "observed", "from the row alone": "before%"}
            columns["given the observation"] = "after%"
            section.add_table(f"{words.groups.capitalize()} with the lowest mean {axis}", s["unsure"], columns)
    return section


def _describe_part(part: dict[str, Any]) -> str:
    """Format a value or a range of values.

    Examples
    --------
    >>> _describe_part({"value": "Ulm"}), _describe_part({"from": 2019.0, "to": 2024.0})
    ('Ulm', '2019 to 2024')
    """
    if "value" in part:
        return str(part["value"])
    ends = [part["from"], part["to"]]
    return " to ".join(end if isinstance(end, str) else number(end).replace(",", "") for end in ends)


def data(summary: dict[str, Any]) -> Section:
    """Describe rows, groups and where they come from."""
    about, shape = summary["data"], summary["data"]["input_shape"]
    section = Section("data", "Training data")
    columns = {
        **{"observations": "wording.title", "kind": "aggregate", "groups": "groups#", "rows": "rows#"},
        **{"smallest": "sizes.min#", "median size": "sizes.median#", "largest": "sizes.max#"},
    }
    section.add_table("Sets of observations", summary["sets"], columns)
    for s in summary["sets"]:
        if len(sizes := s["sizes"]["histogram"]) > 1:
            items = [{**size, "share": size["groups"] / s["groups"]} for size in sizes]
            columns = {"from": "from#", "to": "to#", "groups": "groups#", "share": "share%"}
            section.add_table(f"Sizes of {wording(s).groups}", items, columns)
    described = {
        "rows": number(about["rows"]),
        "rows in groups": number(about["rows_in_groups"]),
        "features": number(about["features"]) if len(shape) == 1 else f"images of {' by '.join(map(str, shape))}",
        "names of features": listed(about["feature_names"], MAX_LISTED),
        "classes": listed(about["classes"], MAX_LISTED),
    }
    section.add_facts("Rows, features and classes", described)
    if summary["inputs"]:
        section.add_facts("Sources", summary["inputs"])
    return section


def training(summary: dict[str, Any]) -> Section:
    """Show the candidates, and the steps of the one with the largest weight."""
    about, candidates = summary["training"], summary["training"]["candidates"]
    best = max(candidates, key=lambda c: c["weight"])["model"]
    section = Section("training", "Models and training")
    if about["folds"] > 1:
        section.text.append(
            f"Each group was held out in one of {about['folds']} folds. The held-out log-likelihood determines where "
            "each model stops, its weight and its temperature."
        )
    columns = {"model": "model", "held-out log-likelihood per group": "score#", "weight": "weight%"}
    section.add_table("Models", candidates, {**columns, "steps": "steps#", "seconds": "seconds#"})
    for name, title in (("score", "held-out log-likelihood"), ("loss", "training loss")):
        entries = [entry for entry in about["history"] if entry.get(name) is not None]
        if not entries:
            continue
        x = "epoch" if "epoch" in entries[0] else "step"
        points = [(entry[x] + 1, entry[name]) for entry in entries]
        at, marked = about["best_step"], None
        if at is not None and name == "score":
            marked = at + 1
        first, last = number(points[0][1]), number(points[-1][1])
        caption = (
            f"{title.capitalize()} of {best}, the model with the largest weight: {first} at the first {x}, {last} "
        )
        caption += f"at the last of {about['steps']:,}."
        section.add_plot("steps", f"Line: {title} by {x}", caption, points=points, best=marked, x=x, y=title)
    return section


def settings(summary: dict[str, Any]) -> Section:
    """List what is needed to repeat the fit."""
    section = Section("settings", "Settings and versions")
    section.add_facts("Settings", summary["settings"])
    section.add_facts("Versions", summary["versions"])
    return section
