"""Suggested next steps, with commands, chosen by what a summary shows."""

from __future__ import annotations

import shlex
from typing import Any, NamedTuple

MAX_STEPS = 3
LABEL = "Label about a hundred rows at random, and measure the accuracy by them."


class Step(NamedTuple):
    """What to do, and how: on the command line, or in Python where the data did not come from files."""

    sentence: str
    command: str


class Rule(NamedTuple):
    """A step and the findings for which it is suggested; one without any is suggested to everybody."""

    kinds: tuple[str, ...]
    sentence: str
    options: str
    """Of ``unbag fit``, or a whole command."""
    python: str


REFIT = "fit(X, z, groups=groups)"
PREDICT = "unbag predict RUN NEW_ROWS.csv --out predictions.csv"
RULES = [
    Rule(*rule)
    for rule in (
        (
            ("answer_column", "share_column", "group_column"),
            "Fit again without the columns that contain labels, counts or groups.",
            *("--exclude COLUMN", 'clf.fit(X.drop(columns=["COLUMN"]), z, groups=groups)'),
        ),
        (
            ("copies", "near_duplicates"),
            "Name the column of the person or object that rows belong to, so that its rows are held out together.",
            *("--subject COLUMN", "clf.fit(X, z, groups=groups, subjects=subjects)"),
        ),
        (
            ("suspicious_groups",),
            "Check the groups whose counts the model rules out, and how files were matched.",
            *("unbag check {files}", "[f.message for f in clf.diagnosis_ if f.kind == 'suspicious_groups']"),
        ),
        (
            ("unlikely_answers", "unexpected_answers"),
            "State at which rates groups with each observation were selected.",
            *("--sampling 0=RATE,1=RATE", f"clf.set_params(sampling={{0: rate_of_0, 1: rate_of_1}}).{REFIT}"),
        ),
        (
            ("unnamed_classes", "interchangeable_classes"),
            "Name the classes by a few rows with known classes.",
            *("--names COLUMN", "clf.name_classes(X_few, y_few)"),
        ),
        (
            ("unknown_borders", "unused_classes"),
            "Pass the shares of the classes, if they are known.",
            *("--class-shares CLASS=SHARE,CLASS=SHARE", f"clf.set_params(class_shares=shares).{REFIT}"),
        ),
        (("short_time",), "Allow more time.", "--time-limit 3600", f"clf.set_params(time_limit=None).{REFIT}"),
        (
            ("worse_than_constant", "few_groups"),
            "Fit a simple model to fewer columns, those that can matter for the classes.",
            "--features COLUMN,COLUMN --model linear",
            'unbag.AggregateClassifier(model="linear").fit(X[["COLUMN"]], z, groups=groups)',
        ),
        (
            ("never_predicted",),
            "Choose a threshold for the probabilities of classes that are never predicted; predictions contain them.",
            *(PREDICT, "clf.predict_proba(X_new)"),
        ),
        ((), LABEL, "--label COLUMN", "clf.score(X_labelled, y_labelled)"),
        ((), "Predict the classes of new rows.", PREDICT, "clf.predict(X_new)"),
        (
            (),
            "Predict the classes of the rows in the groups of the fit, given the observations.",
            *("unbag disaggregate RUN {files} --out rows.csv", "clf.disaggregate(X, z, groups=groups)"),
        ),
        (
            (),
            "Fit again with another seed, to see how much the results depend on chance.",
            *("--seed 1", f"clf.set_params(random_state=1).{REFIT}"),
        ),
    )
]


def suggest_steps(summary: dict[str, Any]) -> list[Step]:
    """Return the first three steps that apply, in the order of their importance."""
    found, inputs, steps = {finding["kind"] for finding in summary["diagnosis"]}, summary["inputs"], []
    for rule in RULES:
        if rule.kinds and not found.intersection(rule.kinds):
            continue
        if "instances" not in inputs:
            steps.append(Step(rule.sentence, rule.python))
            continue
        sources = [source.split(": ")[0] for source in inputs.get("observations", ["GROUPS.csv"])]
        files, command = shlex.join([str(inputs["instances"]), *sources[:1]]), rule.options
        if not command.startswith("unbag"):
            command = f"unbag fit {{files}} {command} --out NEW_RUN"
        steps.append(Step(rule.sentence, command.replace("{files}", files)))
    by_command: dict[str, Step] = {}
    for step in steps:
        if step.sentence != LABEL or summary["labels"] is None:
            by_command.setdefault(step.command, step)
    return list(by_command.values())[:MAX_STEPS]
