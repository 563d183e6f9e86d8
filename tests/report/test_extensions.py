"""Kinds, noise, learners and checks of other packages are in the report without code there."""

import numpy as np
import pytest
import torch
from report_runs import fit

import unbag
from unbag.aggregates import Wording
from unbag.diagnostics import register_check, unregister_check
from unbag.learners.base import LEARNERS, register_learner
from unbag.noise import KINDS, Laplace, register_noise
from unbag.report import render, summarise


class Crowds(unbag.PublishedCounts):
    """Published counts in other words."""

    wording = Wording("Crowds", "its published count", "crowd", "crowds")


class Wide(Laplace):
    code, name = 77, "wide"


class Borders:
    """A path of borders of the first column, which become sharper."""

    name = "borders"

    def prepare(self, problem, seed):
        return self

    def path(self, problem, start, seed):
        yield from map(Border, (1.0, 4.0))


class Border:
    def __init__(self, sharpness):
        self.sharpness = sharpness

    def outputs(self, X):
        return torch.cat([torch.zeros_like(X), self.sharpness * X], 1)


def find_crowds(context):
    yield unbag.Finding("crowds", f"there are {len(context.sets[0].groups)} crowds")


@pytest.fixture
def registered():
    yield register_learner(Borders), register_noise(Wide), register_check("fit")(find_crowds)
    unregister_check(find_crowds)
    del LEARNERS["borders"], KINDS["wide"]


@pytest.mark.usefixtures("registered")
def test_extensions_are_in_the_report():
    labels = np.random.default_rng(0).integers(0, 2, 120)
    X = labels[:, None] + np.random.default_rng(1).normal(size=(120, 1)) / 5
    groups, kind = unbag.Groups.from_sizes([4] * 30), Crowds(noise="wide:0.3", seed=1)
    clf = unbag.AggregateClassifier(kind, "borders", validation=unbag.CrossFitting(2), random_state=0, n_jobs=1)
    z = kind.observe(labels, groups, 2)
    page = render(summarise(fit(clf, X, z, groups), X, z, groups, title="Crowds", inputs={}))
    for part in ("30 crowds of 4 rows", "There are 30 crowds.", ">borders</td>", "with wide:0.3"):
        assert part in page, part
