"""Every loss against the same loss of one group at a time, its slopes, and what a captured step asks of it."""

from __future__ import annotations

from functools import partial

import plain_baselines as plain
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unbag
from unbag import Groups
from unbag.baselines import METHODS
from unbag.baselines.attention import Attention, AttentionNet, bag_log_odds
from unbag.baselines.contrastive import Contrastive
from unbag.baselines.mean_proportion import MeanProportion
from unbag.baselines.rot import ROT
from unbag.baselines.siamese import Siamese
from unbag.baselines.triplet import Triplet
from unbag.baselines.tuple_2_1 import Tuple21

# A method and its loss written plainly.
CASES = {
    "siamese": (Siamese(margin=1.5), partial(plain.siamese, margin=1.5)),
    "contrastive": (Contrastive(margin=3.0), partial(plain.contrastive, margin=3.0)),
    "triplet": (Triplet(margin=0.7), partial(plain.triplet, margin=0.7)),
    "tuple_2_1": (Tuple21(regulariser=0.1), partial(plain.tuple_2_1, regulariser=0.1)),
    "mean_proportion": (MeanProportion(), plain.mean_proportion),
    "attention": (Attention(), plain.attention),
    "supervised": (METHODS["supervised"], plain.cross_entropy),
}
WITH_OBJECTIVE = [name for name, method in METHODS.items() if method.objective is not None]
# The size that groups must have; others take any.
SIZES = {"siamese": 2, "contrastive": 2, "triplet": 3, "tuple_2_1": 3, "supervised": 1, "minimax_feature": 1}
COUNTED = ("mean_proportion", "rot", "supervised", "minimax_feature")


def make_groups(name, sizes):
    return Groups.from_sizes([SIZES.get(name, size) for size in sizes])


def observe(name, groups, k, generator):
    """Draw observations as a step hands them to an objective."""
    if name not in COUNTED:
        return torch.rand(len(groups), generator=generator) < 0.5
    labels = torch.randint(k, (len(groups.members),), generator=generator)
    return unbag.LabelProportions().observe(labels, groups, k)


@pytest.mark.parametrize("name", CASES)
@given(seed=st.integers(0, 2**20), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6), width=st.integers(2, 5))
def test_agrees_with_one_group_at_a_time(name, seed, sizes, width):
    method, naive = CASES[name]
    generator = torch.Generator().manual_seed(seed)
    groups = make_groups(name, sizes)
    width = 2 if name == "attention" else width
    outputs = 3 * torch.randn(len(groups.members), width, dtype=torch.float64, generator=generator)
    z = observe(name, groups, width, generator)
    expected = [
        naive(rows.tolist(), seen) for rows, seen in zip(outputs.split(groups.sizes.tolist()), z.tolist(), strict=True)
    ]
    assert method.objective(outputs, groups.segments, z).tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_slopes_are_those_of_the_values(name):
    method, _ = CASES[name]
    generator = torch.Generator().manual_seed(3)
    groups = make_groups(name, [1, 4, 2, 3])
    width = 2 if name == "attention" else 3
    outputs = torch.randn(len(groups.members), width, dtype=torch.float64, generator=generator)
    z = observe(name, groups, width, generator)
    assert torch.autograd.gradcheck(
        lambda outputs: method.objective(outputs, groups.segments, z), outputs.requires_grad_()
    )


@pytest.mark.parametrize("mix", [0.0, 0.3, 1.0])
def test_the_soft_labels_of_rot_carry_no_slope(mix):
    generator = torch.Generator().manual_seed(4)
    groups = Groups.from_sizes([1, 4, 2])
    counts = observe("rot", groups, 3, generator)
    outputs = torch.randn(7, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    method = ROT(entropy=0.7, strictness=3.0, mix=mix)
    losses = method.objective(outputs, groups.segments, counts)
    (slope,) = torch.autograd.grad(losses.sum(), outputs)

    of_labels, of_proportions = [], []
    for rows, own in zip(outputs.detach().split([1, 4, 2]), counts.tolist(), strict=True):
        labels = torch.from_numpy(plain.transport(rows.tolist(), own, 0.7, 3.0))
        loss = -(labels * rows.log_softmax(1)).sum() / len(rows)
        of_labels.append((loss, (rows.softmax(1) - labels) / len(rows)))
        rows = rows.clone().requires_grad_()  # noqa: PLW2901
        loss = METHODS["mean_proportion"].objective(rows, Groups.from_sizes([len(rows)]).segments, torch.tensor([own]))
        of_proportions.append((loss.detach()[0], torch.autograd.grad(loss.sum(), rows)[0]))
    expected = [(1 - mix) * float(a) + mix * float(b) for (a, _), (b, _) in zip(of_labels, of_proportions, strict=True)]
    assert losses.tolist() == pytest.approx(expected, abs=1e-6)
    expected = (1 - mix) * torch.cat([one for _, one in of_labels]) + mix * torch.cat(
        [one for _, one in of_proportions]
    )
    torch.testing.assert_close(slope, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["mean_proportion", "rot", "attention"])
def test_groups_of_one_size_cost_the_same_beside_groups_of_others(name):
    method, width = METHODS[name], 2
    generator = torch.Generator().manual_seed(5)
    equal, unequal = Groups.from_sizes([3] * 4), Groups.from_sizes([3] * 4 + [5])
    outputs = torch.randn(17, width, generator=generator)
    z = observe(name, unequal, width, generator)
    alone = method.objective(outputs[:12], equal.segments, z[:4])
    torch.testing.assert_close(method.objective(outputs, unequal.segments, z)[:4], alone)


@pytest.mark.parametrize("sizes", [[3, 3, 3, 3], [2, 4, 3, 3]], ids=["one size", "several"])
@pytest.mark.parametrize("scale", [0.0, 1e4])
@pytest.mark.parametrize("name", WITH_OBJECTIVE)
def test_values_and_slopes_stay_finite(name, scale, sizes):
    groups = make_groups(name, sizes)
    generator = torch.Generator().manual_seed(6)
    outputs = scale * (torch.randint(3, (len(groups.members), 2), generator=generator).float() - 1)
    values = METHODS[name].objective(outputs.requires_grad_(), groups.segments, observe(name, groups, 2, generator))
    (slope,) = torch.autograd.grad(values.sum(), outputs)
    assert values.shape == (4,)
    assert bool(values.isfinite().all())
    assert bool(slope.isfinite().all())


@pytest.mark.parametrize("name", WITH_OBJECTIVE)
def test_a_step_on_groups_of_one_size_never_waits_for_a_number(name):
    # Tensors without content: whoever asks them for a number, or makes a shape depend on one, fails.
    groups = make_groups(name, [4] * 5)
    blank = groups.to("meta")
    blank.segments.__dict__["uniform_size"] = groups.uniform_size  # known before a step is captured
    outputs = torch.empty(len(groups.members), 2, device="meta", requires_grad=True)
    z = observe(name, groups, 2, torch.Generator()).to("meta")
    values = METHODS[name].objective(outputs, blank.segments, z)
    assert values.shape == (5,)
    assert torch.autograd.grad(values.sum(), outputs)[0].shape == outputs.shape


@pytest.mark.parametrize("name", ["triplet", "tuple_2_1"])
def test_a_triplet_that_ranks_nothing_moves_nothing(name):
    outputs = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]).repeat(2, 1).requires_grad_()
    values = METHODS[name].objective(outputs, Groups.from_sizes([3, 3]).segments, torch.tensor([True, False]))
    (slope,) = torch.autograd.grad(values.sum(), outputs)
    assert bool(slope[:3].any())
    assert not bool(slope[3:].any())


@pytest.mark.parametrize("gated", [False, True])
def test_pooled_scores_are_the_classifier_of_the_pooled_embedding(gated):
    torch.manual_seed(0)
    net = AttentionNet(4, hidden=(6, 5), attention=3, gated=gated).double()
    x, bags = torch.randn(7, 4, dtype=torch.float64), Groups.from_sizes([3, 4])
    found = bag_log_odds(net(x), bags.segments)
    for place, rows in enumerate(x.split([3, 4])):
        h = net.embedding(rows)
        content = torch.tanh(h @ net.content.weight.T + net.content.bias)
        if gated:
            content = content * torch.sigmoid(h @ net.gate.weight.T + net.gate.bias)
        shares = (content @ net.attention.weight.T).softmax(0)  # (members, 1)
        torch.testing.assert_close(found[place : place + 1], net.score((shares * h).sum(0)))
