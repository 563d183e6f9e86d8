"""Bins and samples keep everything that goes in, or say how much they keep."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unbag.data.histograms import evenly, histogram_of_sizes, plain


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=60))
def test_every_size_is_in_one_bin(sizes):
    bins = histogram_of_sizes(np.array(sizes))
    assert len(bins) <= 12
    assert sum(entry["groups"] for entry in bins) == len(sizes)
    for entry in bins:
        assert entry["groups"] == sum(entry["from"] <= size <= entry["to"] for size in sizes)


@given(st.integers(1, 500), st.integers(2, 40))
def test_a_sample_keeps_both_ends_and_the_order(n, max_numbers):
    sample = evenly(n, max_numbers)
    assert len(sample) == min(n, max_numbers) == len(set(sample.tolist()))
    assert (sample[0], sample[-1]) == (0, n - 1)
    assert sorted(sample) == sample.tolist()


def test_plain_keeps_what_json_has():
    values = {1: (True, 2, "x", None), "inf": np.array([np.inf, 0.5]), "path": object}
    assert plain(values) == {"1": [True, 2, "x", None], "inf": [None, 0.5], "path": "<class 'object'>"}
