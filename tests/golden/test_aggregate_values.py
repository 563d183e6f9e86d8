"""Compare the log-likelihood and the posterior of every aggregate, and every risk, with recorded values in float64.

The file is written by ``PYTHONPATH=src:tests/helpers python tests/golden/test_aggregate_values.py``.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from golden_files import write_json
from torch import Tensor

import unbag
from unbag import Groups, noise, published

FILE = Path(__file__).with_name("aggregate_values.json")
SHOWN = 8  # rows of the posterior that the file holds


def count_first_label(state: int, label: int) -> int:
    return state + (label == 0)


def is_even(state: int) -> int:
    return int(state % 2 == 0)


def sum_of_ends(labels: Any) -> Any:
    return labels[0] + labels[-1]


COUNTS = torch.tensor([[2, 1, 1], [0, 3, 2], [1, 0, 0]])
WHOLE = torch.tensor([[3.0, 0, 1], [1, 2, 2], [-1, 2, 0]])
STATEMENTS = {
    "exact": published.exact(COUNTS),
    "between": published.between(COUNTS - 1, COUNTS + 1),
    "rounded": published.rounded([[3, 0, 0], [0, 3, 3], [0, 0, 0]], 3),
    "rounded share": published.rounded_share([[0.5, 0.3, 0.3], [0.0, 0.6, 0.4], [1, 0, 0]], [[4], [5], [1]], 0.1),
    "suppressed": torch.stack([published.exact(COUNTS[:, 0]), *[published.between([1, 1, 0], 3)] * 2], 1),
    "unknown": torch.cat([published.exact(COUNTS[:, :1]), published.unknown(3, 2)], 1),
    "laplace": published.noisy(COUNTS + 0.3, noise.Laplace(2.5)),
    "gaussian": published.noisy(COUNTS - 0.4, noise.Gaussian(1.5)),
    "geometric": published.noisy(WHOLE, noise.Geometric(1.2)),
    "discrete gaussian": published.noisy(WHOLE, noise.DiscreteGaussian(1.7)),
    "missing members": published.with_missing(published.exact(COUNTS + 1), [3, 3, 3], [0.2, 0.3, 0.5]),
}
INTERVALS = published.between([[5, 20], [0, 1]], [[12, 40], [3, 3]])
NOISY = published.noisy([[9, 12.4, 10], [25, 15, 18]], noise.Gaussian(2))
CHANCES = [0.9, 0.8, 0.7, 0.6, 0.5, 0.9, 0.9, 0.9, 0.8, 0.7, 0.2, 0.5, 0.6]
POSSIBLE = unbag.PossibleMembers().with_chances(COUNTS, Groups.from_sizes([5, 6, 2]), CHANCES)

# The aggregate, the number of classes, sizes of groups, and observations where labels alone do not give them.
CASES: dict[str, tuple[unbag.Aggregate, int, list[int], Any]] = {
    "label_proportions, 2 classes": (unbag.LabelProportions(), 2, [1, 4, 9, 300], None),
    "label_proportions, 3 classes": (unbag.LabelProportions(), 3, [1, 4, 9, 20], None),
    "label_proportions, 10 classes": (unbag.LabelProportions(), 10, [4, 6, 8], None),
    "label_proportions, saddle point": (unbag.LabelProportions("saddle_point"), 4, [16, 40, 128], None),
    "label_proportions, automatic choice": (unbag.LabelProportions(), 10, [64, 5, 256], None),
    "multiple_instance": (unbag.MultipleInstance(), 2, [1, 3, 12, 200], None),
    "pairwise_similarity": (unbag.PairwiseSimilarity(), 5, [2] * 6, None),
    "triplet_comparison": (unbag.TripletComparison(), 4, [3] * 6, None),
    **{f"ordinal_rank {sign}": (unbag.OrdinalRank(sign), 4, [2] * 6, None) for sign in ("<", ">", "<=", ">=")},
    "ordinal_triplet": (unbag.OrdinalTriplet(), 5, [3] * 6, None),
    "at_least": (unbag.AtLeast(2, label=1), 3, [1, 3, 5, 30], [0, 1, 0, 1]),
    "count_of": (unbag.CountOf(1), 3, [1, 3, 5, 30], None),
    "majority": (unbag.Majority(), 3, [1, 3, 4, 7], None),
    "fold": (unbag.FromFold(0, count_first_label, is_even), 3, [1, 3, 4, 7], None),
    "function": (unbag.FromFunction(sum_of_ends), 3, [1, 3, 4], None),
    "noisy": (unbag.Noisy(unbag.PairwiseSimilarity(), rate=0.15), 4, [2] * 4, [0, 1, 0, 1]),
    "noisy, two rates": (unbag.Noisy(unbag.MultipleInstance(), rate=(0.1, 0.3)), 2, [1, 3, 6], [0, 1, 0]),
    "noisy, rate of each": (unbag.Noisy(unbag.OrdinalRank()), 4, [2, 2], [[0, 0.05], [1, 0.25]]),
    **{f"published, {name}": (unbag.PublishedCounts(), 3, [4, 5, 1], z) for name, z in STATEMENTS.items()},
    "published, 2 classes": (unbag.PublishedCounts(), 2, [40, 3], INTERVALS),
    "published, normal": (unbag.PublishedCounts("normal"), 3, [30, 60], NOISY),
    "possible members": (unbag.PossibleMembers(), 3, [5, 6, 2], POSSIBLE),
}
LOSSES = ("cross_entropy", "logistic", "mae", "mse", "gce", "focal", "symmetric_cross_entropy")


def make_logits(n: int, k: int) -> Tensor:
    return 2 * torch.sin(torch.arange(n * k, dtype=torch.float64) ** 1.5 + 1).view(n, k)


def round_all(values: Tensor) -> list[Any]:
    return json.loads(json.dumps(values.double().tolist()), parse_float=lambda number: float(f"{float(number):.12g}"))


def make_case(name: str) -> tuple[unbag.Aggregate, Tensor, Groups, Tensor]:
    """Return the aggregate, logits, groups and observations of a case."""
    aggregate, k, sizes, z = CASES[name]
    groups = Groups.from_sizes(sizes)
    rows = torch.arange(groups.n_rows)
    if z is None:
        z = aggregate.observe((rows * rows // 3 + rows // 2) % k, groups, k)
    return aggregate, make_logits(groups.n_rows, k), groups, torch.as_tensor(z)


def evaluate(name: str) -> dict[str, Any]:
    """Return what the file records of a case."""
    aggregate, logits, groups, z = make_case(name)
    posterior = aggregate.posterior(logits, groups, z)
    return {
        "z": round_all(z),
        "log_likelihood": round_all(aggregate.log_likelihood(logits, groups, z)),
        "posterior": round_all(posterior[:SHOWN]),
        "posterior summed over rows": round_all(posterior.sum(0)),
    }


def evaluate_risks() -> dict[str, Any]:
    """Return value and gradient of every risk, for counts in groups of several sizes."""
    aggregate, logits, groups, z = make_case("label_proportions, 3 classes")
    modules = {loss: unbag.UnbiasedRisk(aggregate, loss=loss) for loss in LOSSES}
    results = {}
    for name, module in {**modules, "likelihood": unbag.NegativeLogLikelihood(aggregate)}.items():
        leaf = logits.clone().requires_grad_()
        value = module(leaf, groups, z)
        value.backward()
        results[name] = {"value": round_all(value.detach()), "gradient": round_all(leaf.grad[:SHOWN])}
    return results


def compare(found: Any, expected: Any) -> None:
    torch.testing.assert_close(
        torch.tensor(found, dtype=torch.float64), torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-10
    )


@pytest.mark.parametrize("name", CASES)
def test_aggregate(name: str) -> None:
    expected, found = json.loads(FILE.read_text())["aggregates"][name], evaluate(name)
    assert expected.keys() == found.keys()
    for key in expected:
        compare(found[key], expected[key])


@pytest.mark.parametrize("name", [*LOSSES, "likelihood"])
def test_risk(name: str) -> None:
    expected, found = json.loads(FILE.read_text())["risks"][name], evaluate_risks()[name]
    compare(found["value"], expected["value"])
    compare(found["gradient"], expected["gradient"])


def test_every_aggregate_has_a_case() -> None:
    public = [getattr(unbag, name) for name in unbag.__all__]
    kinds = {kind for kind in public if isinstance(kind, type) and issubclass(kind, unbag.Aggregate)}
    assert kinds - {unbag.Aggregate} == {type(case[0]) for case in CASES.values()}


if __name__ == "__main__":
    results = {"aggregates": {name: evaluate(name) for name in CASES}, "risks": evaluate_risks()}
    write_json(FILE, results)
