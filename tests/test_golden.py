"""Training by Algorithm 1 with fixed seeds gives the numbers of golden.json, which is older than the code."""

import copy
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import unbag
from unbag import Groups
from unbag._utils.random_state import first_seed
from unbag.learners.architectures import build
from unbag.training import Observations, Scaling, Settings, fit_scaling, held_out_likelihood, train

FILE = Path(__file__).with_name("golden.json")
EPOCHS = 12

# The aggregate, the number of classes, the sizes of groups, and whether training warms up.
KINDS: dict[str, tuple[Any, int, tuple[int, ...], bool]] = {
    "label_proportions": (unbag.LabelProportions(), 4, (3, 9), False),
    "label_proportions of two": (unbag.LabelProportions(), 2, (5, 40), False),
    "label_proportions by count states": (unbag.LabelProportions(), 3, (11, 20), False),
    "label_proportions by saddle point": (unbag.LabelProportions("saddle_point"), 3, (30, 60), False),
    "pairwise_similarity": (unbag.PairwiseSimilarity(), 3, (2, 2), True),
    "triplet_comparison": (unbag.TripletComparison(), 3, (3, 3), True),
    "multiple_instance": (unbag.MultipleInstance(), 2, (1, 6), False),
    "ordinal_rank": (unbag.OrdinalRank(), 4, (2, 2), True),
    "ordinal_triplet": (unbag.OrdinalTriplet(), 3, (3, 3), True),
    "count_of": (unbag.CountOf(1), 3, (2, 6), True),
    "majority": (unbag.Majority(), 3, (3, 5), False),
}
STANDARD, BOTH = ["standard"], ["standard", "table"]
WAYS: dict[str, dict[str, Any]] = {
    "uum": {"scalings": STANDARD},
    "likelihood": {"scalings": STANDARD, "warm_up": EPOCHS, "remember_from": None},
    "gce, current weights": {"scalings": BOTH, "loss": "gce", "remember_from": None},
    "linear, restarts": {"scalings": BOTH * 2, "model": "linear"},
}
CASES = [
    (kind, way) for way in WAYS for kind in KINDS if WAYS[way]["scalings"] == STANDARD or kind == "label_proportions"
]


def make_model(scaling: Scaling, make_net: Any) -> nn.Module:
    return nn.Sequential(copy.deepcopy(scaling), make_net())


def fit(kind: str, way: str) -> dict[str, float]:
    """Train on digits that are drawn into groups, and return how well it went."""
    aggregate, k, (smallest, largest), warms_up = KINDS[kind]
    images, y = load_digits(n_class=k, return_X_y=True)
    rng = np.random.default_rng(0)
    sizes = rng.integers(smallest, largest + 1, 150)
    rows = rng.integers(len(images), size=sizes.sum())
    groups = Groups.from_offsets(np.append(0, sizes.cumsum()), rows)
    z = aggregate.observe(y, Groups(groups.members, groups.offsets, len(images)), k)
    X, observed, seed = torch.from_numpy(images).float(), Observations(aggregate, groups, z, k), first_seed(0)
    kept, held_out = observed.split_indices(0.1, torch.Generator().manual_seed(seed))
    used, left = observed.take(kept).for_training(), observed.take(held_out).for_training()
    settings = {"warm_up": EPOCHS // 2 if warms_up else 0, "remember_from": 0, "patience": 30, **WAYS[way]}
    scalings, model = settings.pop("scalings"), settings.pop("model", "mlp")
    if aggregate.weights == "current":
        settings["remember_from"] = None
    trained_on = X[used.groups.members.unique()]
    make_net = build(model, X.shape[1:], k)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        trained = train(
            [partial(make_model, fit_scaling(trained_on, scaling), make_net) for scaling in scalings],
            X,
            [used],
            Settings(epochs=EPOCHS, **settings),
            seeds=[seed + place for place in range(len(scalings))],
            score=held_out_likelihood(X, [left]),
        )
        with torch.no_grad():
            logits: Tensor = trained.models[int(np.argmax(trained.best_score))](X)
        likelihood = observed.mean(observed.evidence(logits.double()).log_likelihood)
    finally:
        torch.set_num_threads(before)
    return {
        "accuracy": float((logits.argmax(1).numpy() == y).mean()),
        "log-likelihood": float(likelihood),
        "mean probability": float(logits.double().softmax(1)[:, 0].mean()),
    }


@pytest.mark.parametrize(("kind", "way"), CASES)
def test_fit_is_that_of_the_golden_file(kind: str, way: str) -> None:
    expected = json.loads(FILE.read_text())[f"{kind}: {way}"]
    assert fit(kind, way) == pytest.approx(expected, rel=2e-3, abs=2e-3)


if __name__ == "__main__":
    found = {f"{kind}: {way}": fit(kind, way) for kind, way in CASES}
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1) + "\n")
