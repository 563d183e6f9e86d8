"""Fits with fixed seeds give the numbers that they gave before; ``python tests/test_golden.py`` writes them anew."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import unbag
from unbag import AggregateClassifier, Groups
from unbag.fit_settings import LARGE

FILE = Path(__file__).with_name("golden.json")
EPOCHS = 12

# The aggregate, the number of classes, and the sizes that groups may have.
KINDS: dict[str, tuple[Any, int, tuple[int, ...]]] = {
    "label_proportions": (unbag.LabelProportions(), 4, (3, 9)),
    "label_proportions of two": (unbag.LabelProportions(), 2, (5, 40)),
    "label_proportions by count states": (unbag.LabelProportions(), 3, (11, 20)),
    "label_proportions by saddle point": (unbag.LabelProportions("saddle_point"), 3, (30, 60)),
    "pairwise_similarity": (unbag.PairwiseSimilarity(), 3, (2, 2)),
    "triplet_comparison": (unbag.TripletComparison(), 3, (3, 3)),
    "multiple_instance": (unbag.MultipleInstance(), 2, (1, 6)),
    "ordinal_rank": (unbag.OrdinalRank(), 4, (2, 2)),
    "ordinal_triplet": (unbag.OrdinalTriplet(), 3, (3, 3)),
    "count_of": (unbag.CountOf(1), 3, (2, 6)),
    "majority": (unbag.Majority(), 3, (3, 5)),
}
WAYS: dict[str, dict[str, Any]] = {
    "uum": {"scaling": "standard"},
    "likelihood": {"scaling": "standard", "method": "likelihood"},
    "gce, current weights": {"loss": "gce", "weights": "current"},
    "linear, restarts": {"model": "linear", "n_restarts": 2},
}
CASES = [(kind, way) for way in WAYS for kind in KINDS if WAYS[way].get("scaling") or kind == "label_proportions"]


def fit(kind: str, way: str) -> dict[str, float]:
    """Fit on digits that are drawn into groups, and say how well it went."""
    aggregate, k, (smallest, largest) = KINDS[kind]
    X, y = load_digits(n_class=k, return_X_y=True)
    rng = np.random.default_rng(0)
    sizes = rng.integers(smallest, largest + 1, 150)
    rows = rng.integers(len(X), size=sizes.sum())
    groups = Groups.from_offsets(np.append(0, sizes.cumsum()), rows)
    z = aggregate.observe(y, Groups(groups.members, groups.offsets, len(X)), k)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        # The file is older than current weights as the default for large groups.
        given = {"model": "mlp", **({"weights": "remembered"} if largest > LARGE else {}), **WAYS[way]}
        classifier = AggregateClassifier(aggregate, epochs=EPOCHS, random_state=0, n_classes=k, **given)
        classifier.fit(X, z, groups=groups)
        likelihood = classifier.score(X, z, groups=groups)
    finally:
        torch.set_num_threads(before)
    return {
        "accuracy": float((classifier.predict(X) == y).mean()),
        "log-likelihood": float(likelihood),
        "mean probability": float(classifier.predict_proba(X)[:, 0].mean()),
    }


@pytest.mark.filterwarnings("ignore:Ordinal.* tells the order of rows")
@pytest.mark.filterwarnings("ignore:the groups hold")
@pytest.mark.parametrize(("kind", "way"), CASES)
def test_fit_is_that_of_the_golden_file(kind: str, way: str) -> None:
    expected = json.loads(FILE.read_text())[f"{kind}: {way}"]
    assert fit(kind, way) == pytest.approx(expected, rel=2e-3, abs=2e-3)


if __name__ == "__main__":
    found = {f"{kind}: {way}": fit(kind, way) for kind, way in CASES}
    Path(sys.argv[1] if len(sys.argv) > 1 else FILE).write_text(json.dumps(found, indent=1) + "\n")
