"""The top of a report, in plain words, for readers who read no further, and all its limitations and warnings."""

import shlex
from typing import Any, NamedTuple

from unbag._utils.problems import list_some
from unbag.ensemble.performance import DOMINANT
from unbag.report.elements import Section, count, interval, make_table, number, percent, wording

LIMITATIONS = "Limitations and warnings"
MAX_ON_TOP, MAX_NAMED, MAX_STEPS = 3, 5, 3
MIN_DEVIATION = 3.0
"""Standard deviations by which a count differs from the expected one in a group that fits poorly."""

DESCRIBED = ("unnamed_classes", "worse_than_constant", "never_predicted")
"""Kinds of findings that the report describes in its own words, or in another place."""
UNNAMED = {
    "any": "Which class is which: their names are arbitrary until a few labelled rows assign them (--names COLUMN).",
    "reversal": "Which end of the order of the classes is which: a few labelled rows show it (--names COLUMN).",
}
WITHIN = (
    "The counts do not show whether a relation between features and classes that holds between groups also holds "
    "within them; only labels of rows do."
)
CONTEXT = (
    "The labels of bags do not show whether the model recognises positive instances, or instances that merely occur "
    "beside them; only labels of instances do."
)
NEW_ROWS = "The estimates hold for rows like those in the groups; unbag predict reports columns whose means differ."


class Rule(NamedTuple):
    """A step and the kinds of findings for which it is suggested; one without any is suggested to everybody."""

    sentence: str
    options: str
    """Of ``unbag fit``, or a whole command."""
    kinds: tuple[str, ...] = ()


class Step(NamedTuple):
    """What to do, and the command for it."""

    sentence: str
    command: str


LABEL = Rule("Label about a hundred rows at random, and measure the accuracy by them.", "--label COLUMN")
PREDICT = "unbag predict RUN NEW_ROWS.csv --out predictions.csv"
RULES = (
    Rule(
        "Fit again without the columns that contain labels, counts or groups.",
        "--exclude COLUMN",
        ("answer_column", "share_column", "group_column"),
    ),
    Rule(
        "Name the column of the person or object that rows belong to, so that its rows are held out together.",
        "--subject COLUMN",
        ("copies", "near_duplicates"),
    ),
    Rule(
        "Check the groups whose counts the model rules out, and how files were matched.",
        "unbag check {files}",
        ("suspicious_groups",),
    ),
    Rule(
        "State at which rates groups with each observation were selected.",
        "--sampling 0=RATE,1=RATE",
        ("unlikely_answers", "unexpected_answers"),
    ),
    Rule(
        "Name the classes by a few rows with known classes.",
        "--names COLUMN",
        ("unnamed_classes", "interchangeable_classes"),
    ),
    Rule(
        "Pass the shares of the classes, if they are known.",
        "--class-shares CLASS=SHARE,CLASS=SHARE",
        ("unknown_borders", "unused_classes"),
    ),
    Rule("Allow more time.", "--time-limit 3600", ("short_time",)),
    Rule(
        "Fit a simple model to fewer columns, those that can matter for the classes.",
        "--features COLUMN,COLUMN --model linear",
        ("worse_than_constant", "few_groups"),
    ),
    Rule(
        "Choose a threshold for the probabilities of classes that are never predicted; predictions contain them.",
        PREDICT,
        ("never_predicted",),
    ),
    LABEL,
    Rule("Predict the classes of new rows.", PREDICT),
    Rule(
        "Predict the classes of the rows in the groups of the fit, given the observations.",
        "unbag disaggregate RUN {files} --out rows.csv",
    ),
    Rule("Fit again with another seed, to see how much the results depend on chance.", "--seed 1"),
)


class Box(NamedTuple):
    """A heading, and what is below it."""

    heading: str
    sentences: list[str]
    steps: list[Step] = []  # noqa: RUF012 (never changed)


def make_overview(summary: dict[str, Any]) -> list[Box]:
    """Return the boxes at the top of a page."""
    failures, warnings = describe_failures(summary), _find_warnings(summary)
    if len(warnings) > MAX_ON_TOP + 1:
        more = count(len(warnings) - MAX_ON_TOP, "more point")
        warnings = [*warnings[:MAX_ON_TOP], f"{more} in the section “{LIMITATIONS}” below."]
    boxes = [
        Box("Warning", failures),
        Box("Data", _describe_data(summary)),
        Box("How good the model is", _describe_quality(summary, failed=bool(failures))),
        Box("What the data cannot show", _describe_unknown(summary)),
        Box("Warnings", warnings),
        Box("Suggested next steps", [], suggest_steps(summary)),
    ]
    return [box for box in boxes if box.sentences or box.steps]


def make_limitations(summary: dict[str, Any]) -> Section:
    """List all limitations and warnings, and what was noticed in the files."""
    columns, problems = ("severity", "file", "row#", "column", "message"), _find_problems(summary)
    tables = [make_table("Warnings and notes on the files", problems, *columns)] if problems else []
    return Section("limitations", LIMITATIONS, [*_describe_unknown(summary), *_find_warnings(summary)], tables=tables)


def _describe_data(summary: dict[str, Any]) -> list[str]:
    classes = summary["data"]["classes"]
    columns = count(summary["columns"], "column") if summary["columns"] else "images"
    sentences = [
        f"A classifier of single rows with {count(len(classes), 'class', 'classes')} ({list_some(classes, 6, str)}), "
        f"fitted to {columns}."
    ]
    for s in summary["sets"]:
        words, low, high = wording(s), s["sizes"]["min"], s["sizes"]["max"]
        sizes = f" of {high:,} rows" if low == high else f" of {low:,} to {high:,} rows"
        sizes = "" if high == 1 or words.group in ("pair", "triplet") else sizes
        groups = count(s["groups"], words.group, words.groups)
        sentences.append(f"{groups}{sizes}. The observation of each {words.group} is {words.observed}.")
    return [*sentences, *describe_error_rates(summary)]


def _describe_quality(summary: dict[str, Any], *, failed: bool) -> list[str]:
    labels = summary["labels"]
    sentences = [*describe_estimate(summary), *map(_describe_scored, summary["sets"])]
    sentences += [_as_sentence(f["message"]) for f in summary["diagnosis"] if f["kind"] == "never_predicted"]
    for s in summary["sets"]:
        words, judged = wording(s), "held-out " if s["judged"]["held_out"] else ""
        if not failed:
            better = percent(s["likelihood"]["better"])
            sentences.append(f"{better} of the {judged}{words.groups} are predicted better than by class shares alone.")
        if poor := [g["group"] for g in s["worst"] if (g["deviation"] or 0) > MIN_DEVIATION]:
            sentences.append(
                f"{words.groups.capitalize()} that fit poorly, with counts more than {MIN_DEVIATION:g} standard "
                f"deviations from the expected ones: {list_some(poor, MAX_NAMED, str)}."
            )
    return [*sentences, describe_labels(labels) if labels else "No labels of rows were available to measure accuracy."]


def _describe_unknown(summary: dict[str, Any]) -> list[str]:
    """Describe what neither rows nor observations show."""
    symmetry, sentences = summary["data"]["symmetry"], []
    if isinstance(symmetry, str) and symmetry in UNNAMED:  # a list of interchangeable classes has a finding
        sentences.append(UNNAMED[symmetry])
    grouped = [s for s in summary["sets"] if s["sizes"]["max"] > 1]
    sentences += [WITHIN] * any(s["outcome"]["form"] == "counts" for s in grouped)
    sentences += [CONTEXT] * any(s["kind"] == "multiple_instance" for s in grouped)
    return [*sentences, NEW_ROWS]


def _as_sentence(message: str) -> str:
    return f"{message[:1].upper()}{message[1:]}."


def _find_warnings(summary: dict[str, Any]) -> list[str]:
    sentences = [_as_sentence(f["message"]) for f in summary["diagnosis"] if f["kind"] not in DESCRIBED]
    if n_warnings := sum(p["severity"] == "warning" for p in _find_problems(summary)):
        sentences.append(f"The files have {count(n_warnings, 'warning')}.")
    return sentences


def _find_problems(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what was noticed in the files, without findings that are listed as such; warnings come first."""
    findings = [finding["message"] for finding in summary["diagnosis"]]
    problems = [p for p in summary["problems"] if not any(message in p["message"] for message in findings)]
    return sorted(problems, key=lambda p: p["severity"] != "warning")


def describe_estimate(summary: dict[str, Any]) -> list[str]:
    """Describe the estimated accuracy, or figures by class where one class has nearly all rows."""
    estimate, performance = summary["estimated_accuracy"], summary["estimated_performance"]
    if estimate is None:
        return ["The accuracy on new rows was not estimated."]
    named = "" if summary["data"]["symmetry"] == "none" else ", once the classes are named"
    if (dominant := find_dominant(summary)) is not None:
        others = sorted(performance["classes"], key=lambda c: -c["share"])[1 : MAX_ON_TOP + 1]
        return [
            f"Accuracy is not informative: {percent(dominant['share'])} of the rows are of class {dominant['class']}.",
            *map(_describe_class, others),
            f"Estimated log loss: {interval(performance['log_loss'], number)}{named}.",
        ]
    text = f"Estimated accuracy on rows of new groups: {percent(estimate['value'])} (95 % interval "
    text += f"{percent(estimate['low'])} to {percent(estimate['high'])}){named}."
    if frequent := find_most_frequent(summary):
        text += f" The most frequent class, {frequent[0]}, has {percent(frequent[1])}."
    return [text]


def find_dominant(summary: dict[str, Any]) -> dict[str, Any] | None:
    """Return the estimates of a class that has nearly all rows; None if there is none."""
    performance = summary["estimated_performance"]
    largest = max(performance["classes"], key=lambda c: c["share"]) if performance else None
    return largest if largest and largest["share"] >= DOMINANT else None


def _describe_class(c: dict[str, Any]) -> str:
    """Describe the estimates for one class."""
    text = f"Class {c['class']}, {percent(c['share'])} of the rows:"
    text += "" if c["auc"] is None else f" estimated AUC {interval(c['auc'], number)};"
    if c["precision"] is None:
        return f"{text} it is never predicted."
    found = "" if c["sensitivity"] is None else f" {interval(c['sensitivity'], percent)} of its rows are found;"
    return f"{text}{found} {interval(c['precision'], percent)} of the rows predicted as such are of this class."


def find_most_frequent(summary: dict[str, Any]) -> tuple[str, float] | None:
    """Return the class that the observations imply to be the most frequent, and its share."""
    shares = {row["class"]: row["implied"] for row in summary["balance"]}
    return None if None in shares.values() else max(shares.items(), key=lambda item: float(item[1]))


def describe_error_rates(summary: dict[str, Any]) -> list[str]:
    """Describe fitted rates of wrong observations."""
    rates = [(wording(s).groups, s["error_rate"]) for s in summary["sets"] if s["error_rate"] is not None]
    return [f"Estimated share of wrong observations of the {groups}: {percent(rate)}." for groups, rate in rates]


def describe_labels(labels: dict[str, Any]) -> str:
    """Describe the accuracy on labelled rows."""
    return (
        f"Accuracy on {count(labels['rows'], 'labelled row')} ({labels['rows_in_groups'] or 'none'} in groups of the "
        f"fit): {percent(labels['accuracy'])}. The most frequent label has {percent(labels['most_common'])}."
    )


def _describe_scored(s: dict[str, Any]) -> str:
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


def describe_failures(summary: dict[str, Any]) -> list[str]:
    """Describe where the model is no better than a constant prediction, or than the class shares of each group."""
    sentences, estimate = [], summary["estimated_accuracy"]
    for s in summary["sets"]:
        likelihood, shares, words = s["likelihood"], s["own_share"], wording(s)
        model = likelihood["model"]
        if likelihood["impossible"] or model is None:
            n_impossible = count(likelihood["impossible"], words.group, words.groups)
            sentences.append(f"The observations of {n_impossible} are impossible under the model. Do not rely on it.")
        elif model < likelihood["trivial"]:
            sentences.append(
                f"The model predicts the {words.groups} no better than class shares that are the same for every row. "
                "Do not rely on it: the columns may say nothing about the classes, or the groups are too few."
            )
        comparable = shares is not None and estimate is not None and find_dominant(summary) is None
        if comparable and estimate["value"] <= shares["accuracy"]:
            sentences.append(
                f"For rows in these {words.groups}, the most frequent class of each {words.group} is right more often "
                f"({percent(shares['accuracy'])}) than the model is for new rows (estimated "
                f"{percent(estimate['value'])}). For rows in these {words.groups}, unbag disaggregate uses both."
            )
    return sentences


def suggest_steps(summary: dict[str, Any]) -> list[Step]:
    """Return the first three steps that apply, in the order of their importance."""
    found, inputs = {finding["kind"] for finding in summary["diagnosis"]}, summary["inputs"]
    found |= {"worse_than_constant"} if describe_failures(summary) else set()
    sources = [source.split(": ")[0] for source in inputs.get("observations", ["GROUPS.csv"])]
    files = shlex.join([str(inputs.get("instances", "ROWS.csv")), sources[0]])
    steps: dict[str, Step] = {}
    for rule in RULES:
        if found.intersection(rule.kinds) if rule.kinds else rule is not LABEL or summary["labels"] is None:
            is_whole = rule.options.startswith("unbag")
            command = rule.options if is_whole else f"unbag fit {{files}} {rule.options} --out NEW_RUN"
            steps.setdefault(command, Step(rule.sentence, command.replace("{files}", files)))
    return [*steps.values()][:MAX_STEPS]
