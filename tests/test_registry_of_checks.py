"""A check that another package registers works wherever those of the library do."""

import json
from collections.abc import Iterator
from importlib.metadata import EntryPoint

import numpy as np
import pytest
from findings import warned
from table_files import PEOPLE, WARDS, call, write

import unbag
from unbag import AggregateClassifier, Finding, Groups, diagnose
from unbag._utils import plugins
from unbag.diagnostics import register_check, unregister_check
from unbag.report import render, summarise


def find_small_groups(context):
    """Report groups of three."""
    if any(s.groups.max_size == 3 for s in context.sets):
        yield Finding("small_groups", f"groups of 3 rows of {len(context.classes)} classes")


def find_wide_tables(context):
    """Report the number of columns."""
    yield Finding("wide_table", f"a table of {context.X.shape[1]} columns")


def find_confident_models(context):
    """Report how certain a model is."""
    share = (context.log_probs[0].exp().max(1).values > 0.5).double().mean()
    yield Finding("confident_model", f"{share:.0%} of the held-out rows have a class with more than 50 %")


KINDS = ["small_groups", "wide_table", "confident_model"]


@pytest.fixture
def outside() -> Iterator[None]:
    """Register three checks."""
    checks = {"observations": find_small_groups, "rows": find_wide_tables, "fit": find_confident_models}
    for stage, check in checks.items():
        register_check(stage)(check)
    yield
    for check in checks.values():
        unregister_check(check)


def kinds(findings):
    return [finding.kind for finding in findings if finding.kind in KINDS]


def test_in_python_in_saved_models_and_in_the_report(outside, tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 60)
    X, groups = rng.normal(size=(60, 2)) + 3 * y[:, None], Groups.from_sizes([3] * 20)
    z = unbag.LabelProportions().observe(y, groups, 2)
    assert kinds(diagnose("label_proportions", groups, z, 2, X)) == KINDS[:2]
    clf = AggregateClassifier(model="linear", random_state=0)
    assert "groups of 3 rows of 2 classes" in warned(clf, X, z, groups=groups)
    assert kinds(clf.diagnosis_) == KINDS
    clf.save(tmp_path / "model")
    assert unbag.load(tmp_path / "model").diagnosis_ == clf.diagnosis_
    summary = summarise(clf, X, z, groups, title="Checks", inputs={})
    assert "a table of 2 columns" in json.dumps(summary)
    assert "A table of 2 columns." in render(summary)


def test_on_the_command_line(outside, tmp_path):
    people, wards = write(tmp_path / "people.csv", PEOPLE), write(tmp_path / "wards.csv", WARDS)
    messages = [problem["message"] for problem in json.loads(call("check", people, wards, "--json").stdout)["problems"]]
    assert any(message.startswith("groups of 3 rows of 2 classes") for message in messages)
    assert any(message.startswith("a table of") for message in messages)
    done = call("fit", people, wards, "--model", "linear", "--out", tmp_path / "run", "--json")
    assert done.exit_code == 0
    assert kinds(unbag.load(tmp_path / "run" / "model").diagnosis_) == KINDS
    shown = " ".join(done.stdout.split())
    assert "held-out rows have a class with more than 50 %" in shown


def test_packages_are_found_by_their_entry_points(monkeypatch):
    entry = EntryPoint("small", f"{__name__}:find_small_groups", plugins.CHECKS)
    monkeypatch.setattr(plugins, "entry_points", lambda group, name=None: [entry] if group == plugins.CHECKS else [])
    plugins.names.cache_clear()
    loaded = []
    monkeypatch.setattr(plugins, "load", lambda group, name: loaded.append((group, name)))
    assert diagnose("label_proportions", Groups.from_sizes([2, 2]), [[1, 1], [2, 0]], 2) is not None
    assert loaded == [(plugins.CHECKS, "small")]
    plugins.names.cache_clear()


def test_stages_are_checked():
    with pytest.raises(ValueError, match="stage must be one of 'observations', 'rows', 'fit', got 'later'"):
        register_check("later")
