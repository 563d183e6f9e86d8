"""Evidence by row against plain enumeration: every kind of observation, mixed sets, shared rows, weights."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import DEFINITIONS, enumerate_group, log_softmax
from problems_of_groups import tuples

import unbag
from unbag import Groups
from unbag.families.row_evidence import RowEvidence
from unbag.families.trees import gradient
from unbag.training import Observations, held_out_likelihood

N_ROWS = 6
SIZES = {"Pair": 2, "Rank": 2, "Trip": 3}
SETS = [*([name] for name in DEFINITIONS), ["PairwiseSimilarity()", "LabelProportions() of 3 classes", "Majority()"]]


def n_classes(names: list[str]) -> int:
    return 2 if names in (["LabelProportions() of 2 classes"], ["MultipleInstance()"]) else 3


def observe(name: str, labels: np.ndarray, k: int, draw: np.random.Generator, weight: float) -> Observations:
    aggregate = eval(f"unbag.{name.partition(' of ')[0]}", {"unbag": unbag})
    size = next((size for part, size in SIZES.items() if part in name), None)
    rows = [draw.choice(N_ROWS, size or draw.integers(2, 4), replace=False) for _ in range(4)]
    groups = Groups.from_offsets(np.cumsum([0, *map(len, rows)]), np.concatenate(rows))
    return Observations(aggregate, groups, aggregate.observe(torch.from_numpy(labels), groups, k), k, weight)


@pytest.mark.parametrize("names", SETS, ids=" and ".join)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), weighted=st.booleans())
def test_gradients_are_those_of_enumeration(names, seed, weighted):
    draw, k = np.random.default_rng(seed), n_classes(names)
    labels, logits = draw.integers(0, k, N_ROWS), torch.from_numpy(draw.normal(scale=2, size=(N_ROWS, k)))
    sets = [observe(name, labels, k, draw, weight=draw.uniform(0.5, 2)) for name in names]
    own = [draw.uniform(0.1, 3, len(one.groups)) if weighted else np.ones(len(one.groups)) for one in sets]
    for one, weights in zip(sets, own, strict=True):
        if weighted:
            object.__setattr__(one, "group_weights", torch.from_numpy(weights))
    evidence = RowEvidence(sets)
    loss, grad, hess = gradient(evidence, logits[evidence.rows])
    total, shares = sum(map(np.sum, own)), sum(one.weight for one in sets)
    expected, curved, likelihood = np.zeros((N_ROWS, k)), np.zeros((N_ROWS, k)), 0.0
    for name, one, weights in zip(names, sets, own, strict=True):
        for group, weight in enumerate(weights * one.weight / shares * total / weights.sum()):
            rows = one.groups.members[one.groups.segment == group]
            z = one.z[group].tolist()
            found, posterior = enumerate_group(
                DEFINITIONS[name], logits[rows].tolist(), tuple(z) if isinstance(z, list) else z
            )
            likelihood += weight * found
            for row, after in zip(rows.tolist(), posterior, strict=True):
                probs = np.exp(log_softmax(logits[row].tolist()))
                expected[row] += weight * (probs - after)
                curved[row] += weight * probs * (1 - probs)
    assert math.isclose(loss, -likelihood / total, rel_tol=1e-5, abs_tol=1e-5)
    np.testing.assert_allclose(grad, expected[evidence.rows], atol=2e-5)
    np.testing.assert_allclose(hess, curved[evidence.rows], atol=1e-9)


def test_sets_count_as_they_do_where_models_are_chosen():
    draw = np.random.default_rng(0)
    labels, logits = draw.integers(0, 3, N_ROWS), torch.from_numpy(draw.normal(size=(N_ROWS, 3)))
    names = ["PairwiseSimilarity()", "LabelProportions() of 3 classes"]
    sets = [observe(name, labels, 3, draw, weight) for name, weight in zip(names, (1.0, 3.0), strict=True)]
    sets[0] = sets[0].take(torch.tensor([1]))
    evidence = RowEvidence(sets)
    found, _ = evidence.infer(logits[evidence.rows])
    score = held_out_likelihood(logits, sets)(lambda rows: rows[None])
    assert found == pytest.approx(score.item(), rel=1e-5)


def test_a_weight_is_a_repetition():
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    pairs = tuples(6, 5, 2)
    aggregate = unbag.PairwiseSimilarity()
    once = Observations(aggregate, pairs, aggregate.observe(labels, pairs, 3), 3)
    twice = once.take(torch.tensor([0, 0, 0, 1, 2, 3, 3, 4]))
    once = replace(once, group_weights=[3, 1, 1, 2, 1])
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    (loss, *arrays), (same_loss, *same) = (
        gradient(evidence, logits[evidence.rows]) for evidence in (RowEvidence([once]), RowEvidence([twice]))
    )
    assert loss == pytest.approx(same_loss)
    np.testing.assert_allclose(arrays, same, atol=1e-6)


def test_what_is_ruled_out_is_an_error():
    groups = Groups.from_sizes([2])
    one = Observations(unbag.LabelProportions(), groups, [[1, 1]], 2)
    with pytest.raises(ArithmeticError, match="rules out what was observed"):
        RowEvidence([one]).infer(torch.tensor([[0.0, -math.inf]] * 2))
