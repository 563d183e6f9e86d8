"""Every method on every problem it is for, from its own file to test accuracy; and one that is not in the package."""

from __future__ import annotations

import sys

import pytest
from baseline_runs import run, task

from unbag_experiments import baselines
from unbag_experiments.baselines import METHODS, find_methods

CASES = [(name, problem) for name, method in METHODS.items() for problem in method.problems]

NEW_METHOD = '''
"""Squared error of proportions."""

from unbag_experiments.baselines import Method


class SquaredProportion(Method):
    """Make the mean prediction of a group close to its proportions, by squared error."""

    name = "squared_proportion"
    title = "Squared error of proportions"
    source = "this test"
    in_paper = False
    problems = ("label_proportions",)

    def objective(self, outputs, groups, z):
        error = (groups.sum(outputs.softmax(-1)) - z) / groups.sizes[:, None]
        return error.square().sum(1)


METHOD = SquaredProportion()
'''


@pytest.mark.parametrize(("name", "problem"), CASES)
def test_learns_what_is_easy(name, problem):
    assert run(METHODS[name], task(problem))[0] > 0.9


@pytest.mark.parametrize(("name", "problem"), [("triplet", "triplet_comparison"), ("attention", "multiple_instance")])
def test_replicas_learn_side_by_side(name, problem):
    assert min(run(METHODS[name], task(problem), seeds=(1, 2))) > 0.9


def test_a_new_method_is_one_new_file(tmp_path, monkeypatch):
    (tmp_path / "squared_proportion.py").write_text(NEW_METHOD)
    monkeypatch.setattr(baselines, "__path__", [*baselines.__path__, str(tmp_path)])
    try:
        found = find_methods()
    finally:
        sys.modules.pop("unbag_experiments.baselines.squared_proportion", None)
    assert set(found) == {*METHODS, "squared_proportion"}
    assert run(found["squared_proportion"], task("label_proportions"))[0] > 0.9


def test_two_methods_of_one_name_are_refused(tmp_path, monkeypatch):
    (tmp_path / "again.py").write_text(NEW_METHOD.replace('"squared_proportion"', '"rot"'))
    monkeypatch.setattr(baselines, "__path__", [*baselines.__path__, str(tmp_path)])
    try:
        with pytest.raises(ValueError, match="two methods are called 'rot'"):
            find_methods()
    finally:
        sys.modules.pop("unbag_experiments.baselines.again", None)
