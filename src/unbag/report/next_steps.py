"""Suggested next steps, with commands, chosen by what a summary shows."""

from __future__ import annotations

import shlex
from typing import Any, NamedTuple

MAX_STEPS = 3


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


def suggest_steps(summary: dict[str, Any]) -> list[Step]:
    """Return the first three steps that apply, in the order of their importance."""
    found, inputs = {finding["kind"] for finding in summary["diagnosis"]}, summary["inputs"]
    sources = [source.split(": ")[0] for source in inputs.get("observations", ["GROUPS.csv"])]
    files = shlex.join([str(inputs.get("instances", "ROWS.csv")), sources[0]])
    steps: dict[str, Step] = {}
    for rule in RULES:
        if found.intersection(rule.kinds) if rule.kinds else rule is not LABEL or summary["labels"] is None:
            is_whole = rule.options.startswith("unbag")
            command = rule.options if is_whole else f"unbag fit {{files}} {rule.options} --out NEW_RUN"
            steps.setdefault(command, Step(rule.sentence, command.replace("{files}", files)))
    return [*steps.values()][:MAX_STEPS]
