"""Accuracy of the default fit on small cells, against what was recorded of it and of version 0.2.0.

``python tests/helpers/accuracy_cells.py default`` records all twelve cells again; the six that are fitted here take a
third of that time.
"""

import json
import warnings

import numpy as np
import pytest
from accuracy_cells import CELLS, RECORD, SEEDS, fit_cell

from unbag._utils.findings import UnbagWarning

TOLERANCE = 3.0
"""Percentage points by which platforms may differ."""
MAX_LOSS = 0.5
"""Percentage points by which the mean over the cells may be below that of version 0.2.0."""
FITTED = ("counts of 3, 300 groups", "counts of 4, 100 groups", "counts of 256, 6 groups", "bags of 3, 130 groups")
FITTED += ("triplets, 300", "ranks, 400")
RECORDED: dict[str, dict[str, list[float]]] = json.loads(RECORD.read_text())


@pytest.mark.parametrize("name", FITTED)
def test_the_default_is_as_accurate_as_recorded(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnbagWarning)
        value, _ = fit_cell(name, seed=0)
    assert value >= RECORDED["default"][name][0] - TOLERANCE


def test_the_default_is_as_accurate_as_that_of_the_previous_version() -> None:
    means = {}
    for version, values in RECORDED.items():
        assert set(values) == set(CELLS)
        assert all(len(of_seeds) == len(SEEDS) for of_seeds in values.values())
        means[version] = float(np.mean(list(values.values())))
    assert means["default"] >= means["0.2.0"] - MAX_LOSS
