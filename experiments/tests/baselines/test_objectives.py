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
from unbag_experiments.baselines import METHODS
from unbag_experiments.baselines.attention import Attention, AttentionNet, bag_log_odds
from unbag_experiments.baselines.contrastive import Contrastive
from unbag_experiments.baselines.easy_llp import EasyLLP, debiased_weights
from unbag_experiments.baselines.llp_vat import LLPVAT, WithAdversary
from unbag_experiments.baselines.mean_proportion import MeanProportion
from unbag_experiments.baselines.mixbag import MixBag, mixed_proportions
from unbag_experiments.baselines.rot import ROT
from unbag_experiments.baselines.self_attention import SelfAttention
from unbag_experiments.baselines.siamese import Siamese
from unbag_experiments.baselines.triplet import Triplet
from unbag_experiments.baselines.tuple_2_1 import Tuple21

# A method and its loss written plainly.
CASES = {
    "siamese": (Siamese(margin=1.5), partial(plain.siamese, margin=1.5)),
    "contrastive": (Contrastive(margin=3.0), partial(plain.contrastive, margin=3.0)),
    "triplet": (Triplet(margin=0.7), partial(plain.triplet, margin=0.7)),
    "tuple_2_1": (Tuple21(regulariser=0.1), partial(plain.tuple_2_1, regulariser=0.1)),
    "mean_proportion": (MeanProportion(), plain.mean_proportion),
    "attention": (Attention(), plain.attention),
    "easy_llp": (EasyLLP(), plain.easy_llp),
    "llp_vat": (LLPVAT(), plain.mean_proportion),  # rows that were not moved
    "mixbag": (MixBag(), plain.mixbag),
    "self_attention": (SelfAttention(), plain.self_attention),
    "supervised": (METHODS["supervised"], plain.cross_entropy),
}
WITH_OBJECTIVE = [name for name, method in METHODS.items() if method.objective is not None]
# The size that groups must have; others take any.
SIZES = {"siamese": 2, "contrastive": 2, "triplet": 3, "tuple_2_1": 3, "supervised": 1, "minimax_feature": 1}
OUTPUTS = {"attention": 2, "self_attention": 3}  # that a method needs; others have one for each class
COUNTED = ("mean_proportion", "rot", "supervised", "minimax_feature", "easy_llp", "llp_vat", "mixbag")


def make_groups(name, sizes):
    return Groups.from_sizes([SIZES.get(name, size) for size in sizes])


def observe(name, groups, k, generator):
    """Draw observations as a step hands them to an objective."""
    if name not in COUNTED:
        return torch.rand(len(groups), generator=generator) < 0.5
    labels = torch.randint(k, (len(groups.members),), generator=generator)
    counts = unbag.LabelProportions().observe(labels, groups, k)
    if name != "mixbag":
        return counts
    shares = counts.double() / groups.sizes[:, None]
    return torch.cat([shares, 0.2 * torch.rand(shares.shape, generator=generator)], 1)


@pytest.mark.parametrize("name", CASES)
@given(seed=st.integers(0, 2**20), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6), width=st.integers(2, 5))
def test_agrees_with_one_group_at_a_time(name, seed, sizes, width):
    method, naive = CASES[name]
    generator = torch.Generator().manual_seed(seed)
    groups = make_groups(name, sizes)
    width = OUTPUTS.get(name, width)
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
    width = OUTPUTS.get(name, 3)
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


@pytest.mark.parametrize("name", ["mean_proportion", "rot", "attention", "self_attention", "easy_llp", "mixbag"])
def test_groups_of_one_size_cost_the_same_beside_groups_of_others(name):
    method, width = METHODS[name], OUTPUTS.get(name, 2)
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
    outputs = scale * (torch.randint(3, (len(groups.members), OUTPUTS.get(name, 2)), generator=generator).float() - 1)
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
    outputs = torch.empty(len(groups.members), OUTPUTS.get(name, 2), device="meta", requires_grad=True)
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


# ----------------------------------------------------------------------------------------- EasyLLP, MixBag, LLP-VAT


@given(seed=st.integers(0, 2**20), size=st.integers(1, 4), k=st.integers(2, 3))
def test_the_debiased_loss_is_on_average_that_of_labelled_rows(seed, size, k):
    """All rows and labels of a group are enumerated, by their probability."""
    rng = torch.Generator().manual_seed(seed)
    joint = torch.rand(2, k, dtype=torch.float64, generator=rng)  # of two rows and k labels
    joint /= joint.sum()
    logits = 2 * torch.randn(2, k, dtype=torch.float64, generator=rng)
    shares = joint.sum(0)
    losses = torch.tensor([[plain.easy_llp([row], one) for one in torch.eye(k).tolist()] for row in logits.tolist()])
    expected = float((joint * losses).sum())
    members = torch.cartesian_prod(*[torch.arange(2 * k)] * size).view(-1, size)
    rows, labels = members // k, members % k
    groups = Groups.from_sizes([size] * len(members))
    counts = torch.nn.functional.one_hot(labels, k).sum(1)
    weights = debiased_weights(counts, groups.sizes, shares)
    torch.testing.assert_close(weights.sum(1), torch.ones(len(members), dtype=torch.float64))
    found = EasyLLP().objective(logits[rows.flatten()], groups.segments, weights)
    assert float((joint.flatten()[members].prod(1) * found).sum()) == pytest.approx(expected)


@pytest.mark.parametrize("sizes", [[4, 4, 4], [1, 5, 3]])
def test_mixed_groups_are_parts_of_two_and_their_targets_those_parts_on_average(sizes):
    groups = Groups.from_offsets([0, *torch.tensor(sizes).cumsum(0)], torch.randperm(sum(sizes)))
    counts = unbag.LabelProportions().observe(torch.arange(sum(sizes)) % 3, groups, 3)
    seen = unbag.training.Observations(unbag.LabelProportions(), groups, counts, 3)
    everyone, targets = MixBag()._mix(seen)
    assert everyone.take(torch.arange(3)).members.equal(groups.members)
    assert len(everyone) == 2 * len(groups)
    of_row = dict(zip(groups.members.tolist(), groups.segment.tolist(), strict=True))
    shares = counts / groups.sizes[:, None]
    for number, target in enumerate(targets, start=3):
        homes = torch.tensor([of_row[row] for row in everyone.take(torch.tensor([number])).members.tolist()])
        assert len(homes.unique()) <= 2
        torch.testing.assert_close(target[:3], shares[homes].mean(0))


@given(n=st.tuples(st.integers(1, 3), st.integers(1, 3)), p=st.floats(0, 1), q=st.floats(0, 1))
def test_the_deviation_of_a_mixture_is_that_of_two_binomial_shares(n, p, q):
    numbers = torch.cartesian_prod(*[torch.arange(2)] * sum(n)).double()
    chances = torch.tensor([p] * n[0] + [q] * n[1], dtype=torch.float64)
    weight = torch.where(numbers == 1, chances, 1 - chances).prod(1)
    share = numbers.mean(1)
    mean = float((weight * share).sum())
    variance = float((weight * (share - mean) ** 2).sum())
    found = mixed_proportions(
        *(torch.tensor([[value]], dtype=torch.float64) for value in (p, q)), *(torch.tensor([one]) for one in n)
    )
    assert [float(one) for one in found] == pytest.approx([mean, max(0.0, variance) ** 0.5], abs=1e-7)


def test_rows_are_moved_to_where_the_prediction_changes_most():
    torch.manual_seed(0)
    net = torch.nn.Linear(5, 2).double()
    model = WithAdversary(net, (5,), radius=0.1).double()
    x = torch.randn(3, 5, dtype=torch.float64)
    outputs = model(x)
    torch.testing.assert_close(outputs[:, :2], net(x))
    # Of a linear model with two classes the prediction changes along one direction alone.
    direction = net.weight[0] - net.weight[1]
    change = (outputs[:, 2] - outputs[:, 3]) - (outputs[:, 0] - outputs[:, 1])
    torch.testing.assert_close(change.abs(), (0.1 * 5**0.5 * direction.norm()).expand(3))


def test_consistency_pulls_the_moved_rows_alone():
    outputs = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    groups, counts = Groups.from_sizes([2, 2]).segments, torch.tensor([[1, 1, 0], [2, 0, 0]])
    (found,) = torch.autograd.grad(LLPVAT(weight=0.5).objective(outputs, groups, counts).sum(), outputs)
    (plainly,) = torch.autograd.grad(MeanProportion().objective(outputs[:, :3], groups, counts).sum(), outputs)
    torch.testing.assert_close(found[:, :3], plainly[:, :3])
    torch.testing.assert_close(found[:, 3:], 0.25 * (outputs[:, 3:].softmax(1) - outputs[:, :3].softmax(1)).detach())
