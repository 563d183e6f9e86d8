"""The benchmarks run, and what they compare with is right."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from unbag import Groups, LabelProportions
from unbag.aggregates.count_methods import ERROR_TIMES_SIZE
from unbag_experiments.benchmarks import engine, references
from unbag_experiments.benchmarks import saddle_point as grid


def problem(n: int, size: int, k: int) -> tuple[torch.Tensor, Groups, torch.Tensor]:
    torch.manual_seed(0)
    groups = Groups.from_sizes([size] * n)
    logits = torch.randn(n * size, k, dtype=torch.float64)
    return logits, groups, LabelProportions().observe(torch.randint(k, (n * size,)), groups, k)


@pytest.mark.parametrize("enumerate_them", [references.enumerate_counts, references.enumerate_counts_in_batches])
def test_enumerations_agree_with_the_engine(enumerate_them) -> None:
    logits, groups, z = problem(6, 4, 3)
    found = LabelProportions().evidence(logits, groups, z)
    log_likelihood, posterior = enumerate_them(logits.view(6, 4, 3), z)
    torch.testing.assert_close(log_likelihood, found.log_likelihood)
    torch.testing.assert_close(posterior.view(24, 3), found.posterior)


def test_recursion_agrees_with_the_engine() -> None:
    logits, groups, z = problem(4, 20, 2)
    found = LabelProportions().evidence(logits, groups, z)
    odds = (logits[:, 1] - logits[:, 0]).view(4, 20)
    log_likelihood, posterior = references.recursion_with_autograd(odds, z[:, 1])
    torch.testing.assert_close(log_likelihood, found.log_likelihood)
    torch.testing.assert_close(posterior.view(-1), found.posterior[:, 1])


def once(ours, reference, seconds):
    """Time nothing, but run both, once."""
    ours(), reference()
    return 2.0, 3.0


def test_every_case_runs_and_says_what_it_found(monkeypatch) -> None:
    monkeypatch.setattr(engine, "alternate", once)
    # Of the references that take seconds, a part of their work.
    monkeypatch.setattr(engine, "enumerate_counts", lambda logits, z: references.enumerate_counts(logits[:1], z[:1]))
    monkeypatch.setattr(
        engine,
        "recursion_with_autograd",
        lambda odds, counts: references.recursion_with_autograd(odds[:, -9:], counts - counts + 4),
    )
    cases: list[str] = []
    threads = torch.get_num_threads()
    results = engine.run(quick=True, report=cases.append)
    assert torch.get_num_threads() == threads
    assert [result["case"] for result in results] == cases
    for result in results:
        assert (result["unbag_ms"], result["reference_ms"]) == (2.0, 3.0)
        assert isinstance(result["met"], bool)


def test_stated_error_is_that_of_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "CLASSES", (3, 5))
    monkeypatch.setattr(grid, "SIZES", (17, 32))
    monkeypatch.setattr(grid, "SCALES", (0.5, 1.0, 2.0, 4.0, 10.0, 30.0))
    cells = list(grid.run(n_groups=2))
    assert len(cells) == 2 * 2 * 6 * 3
    measured = np.mean([cell["mean"] * cell["members"] for cell in cells])
    assert ERROR_TIMES_SIZE / 2 < measured < 1.25 * ERROR_TIMES_SIZE


def test_the_page_has_the_tables_of_many_classes_as_they_were_measured():
    own = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "many_classes.py"))
    page = own["PAGE"].read_text(encoding="utf-8")
    assert page == own["render"](json.loads(own["RESULTS"].read_text(encoding="utf-8")), page)
