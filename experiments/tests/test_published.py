"""Published counts: how they are published and repaired, what is learned from them, and the page of results."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unbag import Groups, PublishedCounts, published
from unbag.noise import Laplace
from unbag_experiments.fits.sets import Data
from unbag_experiments.published import cells, page
from unbag_experiments.published.plan import METHODS, PLACES, PUBLISHED, SETS, Cell, select
from unbag_experiments.published.runner import fill, read

ROOT = Path(__file__).parents[2]


def compositions(total, k):
    """Return all vectors of k whole numbers that add up to a total."""
    return [own for own in product(range(total + 1), repeat=k) if sum(own) == total]


@given(st.integers(1, 6), st.integers(2, 3), st.integers(0, 10**6))
def test_repaired_counts_are_the_nearest_that_are_possible(size, k, seed):
    values = 4 * np.random.default_rng(seed).standard_normal((1, k)) + size / k
    z = PublishedCounts().check(published.noisy(values, Laplace(1.0)), Groups.from_sizes([size]), k)
    found = cells.repair(z, torch.tensor([size]))[0].numpy()
    best = min(((np.array(own) - values[0]) ** 2).sum() for own in compositions(size, k))
    assert found.sum() == size
    assert ((found - values[0]) ** 2).sum() == pytest.approx(best)


@given(st.integers(2, 4), st.integers(0, 10**6))
def test_nearest_shares_are_nearer_than_any_others(k, seed):
    rng = np.random.default_rng(seed)
    values = 8 * rng.standard_normal((1, k)) + 5
    shares = cells.nearest_shares(published.noisy(values, Laplace(1.0)), torch.tensor([10]))[0].numpy()
    assert shares.sum() == pytest.approx(1)
    assert shares.min() >= 0
    others = rng.dirichlet(np.full(k, 0.5), 500)
    assert ((shares - values / 10) ** 2).sum() <= ((others - values / 10) ** 2).sum(1).min() + 1e-12


@pytest.mark.parametrize("how", PUBLISHED)
def test_what_is_published_allows_the_true_counts(how):
    counts = torch.tensor([[3, 9, 4], [2, 0, 14], [5, 5, 6], [1, 7, 8]])
    z = PublishedCounts().check(cells.publish(counts, how, seed=1), Groups.from_sizes([16] * 4), 3)
    assert bool(published.log_weight(z, counts).isfinite().all())
    assert how != "suppressed below 5" or not bool((z[3, :, 0] == z[3, :, 1])[[0, 1]].any())  # a second one is hidden


@pytest.mark.parametrize("method", METHODS)
def test_each_method_learns(method, monkeypatch):
    monkeypatch.setattr(cells, "PENALTIES", (10.0, 1.0))
    rng = np.random.default_rng(0)
    y = np.arange(192) % 2
    data = Data((3.0 * y[:, None] + rng.standard_normal((192, 2))).astype(np.float32), y)
    found = cells.run(Cell("usps", method, 16, "similar", "epsilon 2"), data)
    assert found["accuracy"] > 0.9
    assert found["groups"] == 9


def line(cell, accuracy):
    known = {"hardware": "one CPU", "versions": {"torch": "2.11"}, "commit": "0123abc", "date": "2026-01-31T12:00:00"}
    return {"table": "published", **vars(cell), "accuracy": accuracy, "auc": accuracy, "seconds": 2.0, **known}


def test_the_page_says_where_the_likelihood_is_behind():
    worth = {"likelihood": 0.80, "repair": 0.75, "match": 0.78}
    lines = {cell: line(cell, worth[cell.method]) for cell in select(["usps"], [16], draws=2)}
    behind = Cell("usps", "match", 16, "similar", "epsilon 1", 0)
    lines[behind] = line(behind, 0.88)
    pages = page.render(lines)
    text = pages["published.md"]
    assert "7 of 105 cells have been run, with 2 draws each." in text
    assert "| all sets, accuracy | epsilon 1 (-3.0 to the match) |" in text
    assert "| usps | 16 similar | epsilon 1 |     -3.0 | -3.0 |" in text
    ET.fromstring(pages[page.PICTURE])


def test_results_are_saved_under_their_own_name(tmp_path):
    wanted = select(["usps"], [16], ["match"], draws=1)[:2]
    rng = np.random.default_rng(0)
    data = Data(rng.standard_normal((160, 2)).astype(np.float32), np.arange(160) % 2)
    assert fill(wanted, tmp_path, load=lambda name: data, tell=lambda text: None) == {"done": 2}
    assert list(read(tmp_path)) == wanted
    assert (tmp_path / "published.jsonl").exists()


def test_the_plan():
    assert len(select(final=True)) == len(PLACES) * len(PUBLISHED) * len(METHODS) * 5
    assert {cell.set for cell in select()} == {"pendigits"} == {name for name, seen in SETS.items() if seen}
    assert len({cell.key for cell in select(final=True)}) == len(select(final=True))
    with pytest.raises(ValueError, match="must be one of"):
        select(sizes=[5])


def test_the_page_is_that_of_the_results():
    pages = page.render(read(ROOT / "experiments" / "results"))
    for name, text in pages.items():
        assert (ROOT / "docs" / name).read_text("utf-8") == text, "unbag bench published --render"
