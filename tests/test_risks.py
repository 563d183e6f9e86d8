"""The unbiased risk and the likelihood: identities, the theorem by simulation, the edges and the errors."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

import unbag
from unbag import Groups, ImpossibleObservation, LabelProportions, PairwiseSimilarity
from unbag.objectives.losses import LOSSES, gce
from unbag.objectives.risks import NegativeLogLikelihood, UnbiasedRisk

INF, NAN = float("inf"), float("nan")
PAIR = Groups.from_tuples([[0, 1]])

# name of the aggregate, sizes of the groups, number of classes
KINDS = [
    ("PairwiseSimilarity", [2] * 3, 4),
    ("TripletComparison", [3] * 3, 3),
    ("OrdinalRank", [2] * 3, 4),
    ("OrdinalTriplet", [3] * 3, 4),
    ("MultipleInstance", [1, 4, 2], 2),
    ("LabelProportions", [1, 4, 2], 3),
]
every_kind = pytest.mark.parametrize(("name", "sizes", "k"), KINDS, ids=[kind[0] for kind in KINDS])


def draw(name, sizes, k, *, seed=0, scale=2.0, dtype=torch.float64):
    """Return an aggregate, logits, groups of consecutive rows and a possible observation of them."""
    generator = torch.Generator().manual_seed(seed)
    aggregate, groups = getattr(unbag, name)(), Groups.from_sizes(sizes)
    labels = torch.randint(k, (sum(sizes),), generator=generator)
    logits = scale * torch.randn(sum(sizes), k, generator=generator, dtype=torch.float64)
    return aggregate, logits.to(dtype).requires_grad_(), groups, aggregate.observe(labels, groups, k)


def gradient_of(value, logits):
    return torch.autograd.grad(value, logits, retain_graph=True)[0]


# ---------------------------------------------------------------------------------------------------- by hand


def test_risk_by_hand():
    # Probabilities 0.9, 0.1 and 0.5, 0.5 in one pair of equal labels: both are of the first class with
    # 0.45 / (0.45 + 0.05) = 0.9. The losses 2 (1 - p) are 0.2, 1.8 and 1, 1.
    logits = torch.tensor([[0.9, 0.1], [0.5, 0.5]], dtype=torch.float64).log()
    risk = UnbiasedRisk(PairwiseSimilarity(), "mae")(logits, PAIR, [1])
    assert risk.item() == pytest.approx((0.9 * 0.2 + 0.1 * 1.8 + 1.0) / 2)


def test_likelihood_by_hand():
    logits = torch.tensor([[0.9, 0.1], [0.2, 0.8]], dtype=torch.float64).log()
    groups = Groups.from_tuples([[0, 1], [1, 0]])
    value = NegativeLogLikelihood(PairwiseSimilarity())(logits, groups, [1, 0])
    assert value.item() == pytest.approx(-(math.log(0.26) + math.log(0.74)) / 2)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_groups_of_one_with_plain_labels_are_supervised_learning(reduction):
    aggregate, logits, groups, _ = draw("LabelProportions", [1] * 7, 5)
    labels = torch.tensor([0, 4, 2, 2, 1, 3, 0])
    z = aggregate.observe(labels, groups, 5)
    plain = cross_entropy(logits, labels, reduction=reduction)
    for module in (UnbiasedRisk, NegativeLogLikelihood):
        value = module(aggregate, reduction=reduction)(logits, groups, z)
        torch.testing.assert_close(value, plain)
        torch.testing.assert_close(gradient_of(value.sum(), logits), gradient_of(plain.sum(), logits))


# ------------------------------------------------------------------------------------------- Fisher's identity


@every_kind
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([0.1, 1.0, 5.0, 30.0]))
@settings(deadline=None, max_examples=25)
def test_gradient_is_that_of_the_likelihood_over_the_size(name, sizes, k, seed, scale):
    aggregate, logits, groups, z = draw(name, sizes, k, seed=seed, scale=scale)
    risks = UnbiasedRisk(aggregate, reduction="none")(logits, groups, z)
    likelihoods = NegativeLogLikelihood(aggregate, reduction="none")(logits, groups, z)
    for group, size in enumerate(sizes):
        expected = gradient_of(likelihoods[group], logits) / size
        torch.testing.assert_close(gradient_of(risks[group], logits), expected, rtol=1e-8, atol=1e-10)


# --------------------------------------------------------------------------------------- Theorem 1, simulated

TRUTH = {  # p(y | x) of four kinds of instances, all as frequent
    2: [[0.95, 0.05], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]],
    3: [[0.8, 0.1, 0.1], [0.6, 0.3, 0.1], [0.5, 0.4, 0.1], [0.4, 0.2, 0.4]],
}
OTHER = {  # the logits of some classifier
    2: [[1.5, -0.5], [0.3, 0.1], [2.0, 0.0], [0.0, 0.4]],
    3: [[3.0, 0.0, -1.0], [0.0, 0.5, -0.5], [3.0, 0.5, 0.0], [2.5, -0.5, 0.0]],
}
SIMULATED = [("PairwiseSimilarity", 2, 3), ("TripletComparison", 3, 3), ("MultipleInstance", 3, 2)]
SIMULATED += [("LabelProportions", 4, 3)]


@pytest.fixture(scope="module", params=SIMULATED, ids=[kind[0] for kind in SIMULATED])
def world(request):
    """Many groups drawn from a known distribution, with what only a simulation knows."""
    name, size, k = request.param
    count = 20_000
    rng = np.random.default_rng(0)
    truth, other = (torch.tensor(table[k], dtype=torch.float64) for table in (TRUTH, OTHER))
    x = rng.integers(len(truth), size=count * size)
    labels = torch.from_numpy((rng.random((len(x), 1)) > truth.numpy().cumsum(1)[x, :-1]).sum(1))
    aggregate, groups = getattr(unbag, name)(), Groups.from_sizes([size] * count)
    squared = (other.softmax(1)[:, None] - torch.eye(k)).square().sum(2)  # (kinds of instances, k)
    return {
        "risk": UnbiasedRisk(aggregate, "mse", reduction="none"),
        "aggregate": aggregate,
        "groups": groups,
        "labels": labels,
        "z": aggregate.observe(labels, groups, k),
        "log_truth": truth.log()[x],
        "logits": other[x],
        "exact": (truth * squared).sum(1).mean().item(),
    }


def risks_with(world, weights):
    return world["risk"](world["logits"], world["groups"], world["z"], weights=weights)


def standard_errors_from(values, expected):
    """How many standard errors a mean is away from what it should be; none where all values are that."""
    return abs(values.mean().item() - expected) / (values.std().item() / math.sqrt(len(values)) + 1e-300)


def test_unbiased_with_the_true_posterior(world):
    posterior = world["aggregate"].posterior(world["log_truth"], world["groups"], world["z"])
    assert standard_errors_from(risks_with(world, posterior), world["exact"]) < 4


def test_biased_with_other_weights(world):
    uniform = torch.full_like(world["logits"], 1 / world["logits"].shape[1])
    of_the_classifier = world["aggregate"].posterior(world["logits"], world["groups"], world["z"])
    for wrong in (uniform, of_the_classifier):
        assert standard_errors_from(risks_with(world, wrong), world["exact"]) > 8


def test_unbiased_given_the_observation(world):
    """Among groups of one observation, the risk is that of their hidden labels; without z, it is not."""
    one_hot = torch.nn.functional.one_hot(world["labels"], world["logits"].shape[1]).double()
    hidden = risks_with(world, one_hot)
    posterior = world["aggregate"].posterior(world["log_truth"], world["groups"], world["z"])
    observed = world["z"][:, 0] >= 2 if world["z"].ndim == 2 else world["z"] == 1
    for part in (observed, ~observed):
        assert standard_errors_from((risks_with(world, posterior) - hidden)[part], 0) < 4
        assert standard_errors_from((risks_with(world, world["log_truth"].exp()) - hidden)[part], 0) > 4


# -------------------------------------------------------------------------------------------------- the weights


def test_weights_carry_no_gradient():
    aggregate, logits, groups, z = draw("PairwiseSimilarity", [2] * 3, 4)
    risk = UnbiasedRisk(aggregate, "gce")
    posterior = logits.softmax(1).view(3, 2, 4).flip(1).reshape(6, 4)  # some weights that depend on the logits
    value = risk(logits, groups, z, weights=posterior)
    apart = risk(logits, groups, z, weights=posterior.detach())
    torch.testing.assert_close(gradient_of(value, logits), gradient_of(apart, logits), rtol=0, atol=0)


@every_kind
@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
def test_default_weights_are_the_posterior(name, sizes, k, loss):
    aggregate, logits, groups, z = draw(name, sizes, k)
    risk = UnbiasedRisk(aggregate, loss)
    value = risk(logits, groups, z)
    remembered = risk(logits, groups, None, weights=aggregate.posterior(logits, groups, z))
    torch.testing.assert_close(remembered, value)
    torch.testing.assert_close(gradient_of(remembered, logits), gradient_of(value, logits))


def test_remembered_weights_follow_the_members():
    groups = Groups.from_tuples([[2, 0], [0, 1]])
    logits = torch.tensor([[0.5, 0.5], [0.75, 0.25], [0.9, 0.1]]).log()
    weights = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.0, 1.0]])
    risk = UnbiasedRisk(PairwiseSimilarity(), "mae", reduction="none")
    # 2 (1 - p): row 2 as class 0, row 0 as class 1; row 0 as either, row 1 as class 1
    expected = torch.tensor([(0.2 + 1.0) / 2, (1.0 + 1.5) / 2])
    torch.testing.assert_close(risk(logits, groups, None, weights=weights), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_weights_may_be_remembered_in_another_precision(dtype):
    weights = torch.tensor([[1.0, 0.0], [0.25, 0.75]], dtype=dtype)
    value = UnbiasedRisk(PairwiseSimilarity())(torch.zeros(2, 2), PAIR, None, weights=weights)
    torch.testing.assert_close(value, torch.tensor(math.log(2)))


# ------------------------------------------------------------------------------- losses, reductions, group weights


@pytest.mark.parametrize("loss", [partial(gce, q=0.5), torch.nn.LogSoftmax(1)])
def test_loss_may_be_any_callable(loss):
    aggregate, logits, groups, z = draw("MultipleInstance", [1, 4, 2], 2)
    posterior = aggregate.posterior(logits, groups, z)
    expected = (posterior * loss(logits)).sum(1).split([1, 4, 2])
    value = UnbiasedRisk(aggregate, loss, reduction="none")(logits, groups, z)
    torch.testing.assert_close(value, torch.stack([part.mean() for part in expected]))


@pytest.mark.parametrize("module", [UnbiasedRisk, NegativeLogLikelihood])
@pytest.mark.parametrize("kind", [KINDS[0], KINDS[4]], ids=["equal sizes", "unequal sizes"])
def test_reductions(module, kind):
    aggregate, logits, groups, z = draw(*kind)
    values = module(aggregate, reduction="none")(logits, groups, z)
    assert values.shape == (3,)
    torch.testing.assert_close(module(aggregate, reduction="sum")(logits, groups, z), values.sum())
    torch.testing.assert_close(module(aggregate)(logits, groups, z), values.mean())
    alone = [module(aggregate)(logits, groups.take(torch.tensor([group])), z[group : group + 1]) for group in range(3)]
    torch.testing.assert_close(torch.stack(alone), values)


@pytest.mark.parametrize("module", [UnbiasedRisk, NegativeLogLikelihood])
@pytest.mark.parametrize("kind", [KINDS[0], KINDS[4]], ids=["equal sizes", "unequal sizes"])
@pytest.mark.parametrize("group_weights", [[2, 0, 3], np.array([2.0, 0.0, 3.0]), torch.tensor([2.0, 0.0, 3.0])])
def test_group_weights(module, kind, group_weights):
    aggregate, logits, groups, z = draw(*kind, dtype=torch.float32)
    first, _, third = module(aggregate, reduction="none")(logits, groups, z)

    def weighted(reduction):
        return module(aggregate, reduction=reduction)(logits, groups, z, group_weights=group_weights)

    torch.testing.assert_close(weighted("none"), torch.stack([2 * first, torch.tensor(0.0), 3 * third]))
    torch.testing.assert_close(weighted("sum"), 2 * first + 3 * third)
    torch.testing.assert_close(weighted("mean"), (2 * first + 3 * third) / 5)


# ----------------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("size", [200.0, 1e4])
@pytest.mark.parametrize("name", ["PairwiseSimilarity", "MultipleInstance"])
def test_extreme_logits_stay_finite(loss, size, name):
    signs = torch.tensor([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [1.0, -1.0], [1.0, -1.0], [-1.0, -1.0]])
    logits = (size * signs).requires_grad_()
    groups = Groups.from_sizes([2] * 3)
    for z in ([0, 1, 1], [1, 0, 0], [1, 1, 1]):
        value = UnbiasedRisk(getattr(unbag, name)(), loss)(logits, groups, z)
        assert value.isfinite()
        assert gradient_of(value, logits).isfinite().all()


@pytest.mark.parametrize("loss", LOSSES)
def test_a_class_ruled_out_is_as_if_it_did_not_exist(loss):
    aggregate, logits, groups, z = draw("PairwiseSimilarity", [2] * 3, 3)
    wide = torch.cat([logits.detach(), torch.full((6, 1), -INF)], 1).requires_grad_()
    risk = UnbiasedRisk(aggregate, loss)
    narrow_value, wide_value = risk(logits, groups, z), risk(wide, groups, z)
    torch.testing.assert_close(wide_value, narrow_value)
    gradient = gradient_of(wide_value, wide)
    torch.testing.assert_close(gradient[:, :3], gradient_of(narrow_value, logits))
    assert (gradient[:, 3] == 0).all()


def test_remembered_weights_on_a_class_ruled_out_cost_infinity():
    logits = torch.tensor([[0.0, -INF], [0.0, 0.0]])
    value = UnbiasedRisk(PairwiseSimilarity())(logits, PAIR, None, weights=torch.full((2, 2), 0.5))
    assert value == INF


def test_impossible_observations():
    groups, z = Groups.from_tuples([[0, 1], [1, 2]]), [0, 0]
    logits = torch.tensor([[0.0, -INF], [0.0, -INF], [0.0, 0.0]])
    likelihood = NegativeLogLikelihood(PairwiseSimilarity(), reduction="none", impossible="-inf")(logits, groups, z)
    torch.testing.assert_close(likelihood, torch.tensor([INF, math.log(2)]))
    risk = UnbiasedRisk(PairwiseSimilarity(), reduction="none", impossible="-inf")(logits, groups, z)
    torch.testing.assert_close(risk, torch.tensor([NAN, math.log(2) / 2]), equal_nan=True)
    for module in (UnbiasedRisk, NegativeLogLikelihood):
        with pytest.raises(ImpossibleObservation, match=r"the logits rule out the observations of group 0: z\[0\] = "):
            module(PairwiseSimilarity())(logits, groups, z)


@pytest.mark.parametrize("module", [UnbiasedRisk, NegativeLogLikelihood])
@pytest.mark.parametrize("impossible", ["raise", "-inf"])
def test_an_impossible_observation_of_weight_zero_does_not_count(module, impossible):
    groups = Groups.from_tuples([[0, 1], [1, 2]])
    logits = torch.tensor([[0.0, -INF], [0.0, -INF], [0.0, 0.0]], requires_grad=True)
    risk = module(PairwiseSimilarity(), impossible=impossible)
    value = risk(logits, groups, [0, 0], group_weights=[0.0, 2.0])
    alone = risk(logits, groups.take(torch.tensor([1])), [0])
    torch.testing.assert_close(value, alone)
    torch.testing.assert_close(gradient_of(value, logits), gradient_of(alone, logits))


def test_group_weights_are_matched_by_id():
    groups = Groups.from_ids(["b", "b", "a", "a"])
    risk = UnbiasedRisk(PairwiseSimilarity(), reduction="none")
    logits = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    expected = risk(logits, groups, [1, 0], group_weights=[3, 2])
    torch.testing.assert_close(risk(logits, groups, {"b": 0, "a": 1}, group_weights={"b": 2, "a": 3}), expected)
    with pytest.raises(ValueError, match="group_weights must have exactly one entry for each id: 'a' missing"):
        risk(logits, groups, [1, 0], group_weights={"b": 2})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("make", [partial(UnbiasedRisk, loss="focal"), UnbiasedRisk, NegativeLogLikelihood])
def test_half_precision_is_computed_in_float32(dtype, make):
    aggregate, logits, groups, z = draw("TripletComparison", [3] * 3, 3, dtype=dtype)
    value = make(aggregate)(logits, groups, z)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, make(aggregate)(logits.float(), groups, z), rtol=0, atol=0)
    gradient = gradient_of(value, logits)
    assert gradient.dtype == dtype
    assert gradient.isfinite().all()


def test_autocast_changes_nothing():
    costs = torch.tensor([[0.0, 1.0], [5.1, 0.0]])

    def expected_cost(logits):
        return logits.softmax(1) @ costs  # a product, which autocast would do in half precision

    aggregate, logits, groups, z = draw("MultipleInstance", [1, 4, 2], 2, dtype=torch.float32)
    for module in (UnbiasedRisk(aggregate, expected_cost), UnbiasedRisk(aggregate), NegativeLogLikelihood(aggregate)):
        expected = module(logits, groups, z)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = module(logits, groups, z)
        torch.testing.assert_close(value, expected, rtol=0, atol=0)
        torch.testing.assert_close(gradient_of(value, logits), gradient_of(expected, logits), rtol=0, atol=0)


# ------------------------------------------------------------------------------------------------------ errors


PAIRS = PairwiseSimilarity()
NAMES = "cross_entropy, logistic, mae, mse, gce, focal, symmetric_cross_entropy"
COUNTED = "finite and not negative; this does not hold for group"


def with_loss(loss):
    return UnbiasedRisk(PAIRS, loss)(torch.zeros(2, 3), PAIR, [1])


def with_weights(weights):
    return UnbiasedRisk(PAIRS)(torch.zeros(2, 2), PAIR, [1], weights=weights)


def with_logits(logits, groups=PAIR, weights=None):
    return UnbiasedRisk(PAIRS)(torch.tensor(logits), groups, [1] * len(groups), weights=weights)


WRONG_VALUES = {
    rf"loss must be one of {NAMES}, or a function from logits to losses; got 'hinge'; for other": (
        lambda: with_loss("hinge")
    ),
    "or a function from logits to losses; got None": lambda: with_loss(None),
    r"one loss per row and class, shape \(2, 3\); got torch.float32 of shape \(2,\); entry \[i, j\] is the loss": (
        lambda: with_loss(lambda logits: logits.sum(1))
    ),
    r"loss must return one loss per row and class, shape \(2, 3\); got float": lambda: with_loss(lambda logits: 1.0),
    r"one row per membership and one column per class, shape \(2, 2\); got shape": lambda: with_weights(
        torch.ones(3, 2)
    ),
    r"weights must have .* got shape \(2,\); for weights per row of the logits, pass": lambda: with_weights(
        torch.ones(2)
    ),
    "weights must be finite, but there is NaN or infinity for group 0; look": lambda: with_weights(
        [[0.5, 0.5], [NAN, 1.0]]
    ),
    "weights must be finite, but there is NaN or infinity": lambda: with_weights([[INF, 0.5], [1.0, -INF]]),
    "weights is on meta, but the groups are on cpu": lambda: with_weights(torch.ones(2, 2, device="meta")),
    **{
        message: lambda logits=logits, more=more: [
            with_logits(logits, *more, weights=w) for w in (None, [[0.5] * 2] * 2)
        ]
        for message, logits, more in (
            ("logits .* at least 2 classes", [[0.0]] * 2, ()),
            ("row number 1 is out of range for logits of 1 rows", [[0.0, 0.0]], ()),
            ("logits .* NaN in row 1", [[0.0, 0.0], [NAN, 0.0]], ()),
            ("logits .* -inf for every class in row 0", [[-INF, -INF], [0.0, 0.0]], ()),
            ("PairwiseSimilarity needs groups of 2 members", [[0.0, 0.0]] * 2, (Groups.from_sizes([1, 1]),)),
        )
    },
}
WRONG_TYPES = {
    "weights must be floating-point numbers, got torch.int64": lambda: with_weights(torch.ones(2, 2).long()),
    "weights must be floating-point numbers, got torch.bool; convert them with": lambda: with_weights(
        [[True, False]] * 2
    ),
    "weights cannot be made into a tensor": lambda: with_weights([["a", "b"]] * 2),
    "logits must be a floating-point tensor of shape": lambda: with_logits([[0, 0]] * 2),
}
OF_BOTH = {
    "reduction must be one of 'mean', 'sum', 'none', got 'avg'": lambda module: module(PAIRS, reduction="avg"),
    "impossible must be one of '-inf', 'raise', got 'ignore'": lambda module: module(PAIRS, impossible="ignore"),
    "must be an Aggregate, got the class PairwiseSimilarity; pass an instance": lambda module: module(type(PAIRS)),
    "aggregate must be an Aggregate, got 'pairs'": lambda module: module("pairs"),
    **{
        message: lambda module, w=w: module(PAIRS)(
            torch.zeros(2, 2), Groups.from_tuples([[0, 1], [1, 0]]), [1, 0], group_weights=w
        )
        for message, w in (
            (r"group_weights must have one entry per group, shape \(2,\); got shape \(1,\)", [1.0]),
            (r"group_weights must have one entry per group, shape \(2,\); got shape \(\)", 2.0),
            (rf"{COUNTED} 1: group_weights\[1\] is -0.5", [1.0, -0.5]),
            (rf"{COUNTED} 0: group_weights\[0\] is nan", [NAN, 1.0]),
            (rf"{COUNTED} 0: group_weights\[0\] is inf", [INF, 1.0]),
            ("group_weights must be real numbers, got torch.complex64", [1j, 1.0]),
            ("group_weights must not all be zero for reduction='mean', which divides by their sum", [0, 0]),
            ("group_weights is on meta, but the groups are on cpu", torch.ones(2, device="meta")),
        )
    },
}


@pytest.mark.parametrize("message", WRONG_VALUES)
def test_wrong_values(message):
    with pytest.raises(ValueError, match=message):
        WRONG_VALUES[message]()


@pytest.mark.parametrize("message", WRONG_TYPES)
def test_wrong_types(message):
    with pytest.raises(TypeError, match=message):
        WRONG_TYPES[message]()


@pytest.mark.parametrize("module", [UnbiasedRisk, NegativeLogLikelihood])
@pytest.mark.parametrize("message", OF_BOTH)
def test_what_both_refuse(module, message):
    with pytest.raises((ValueError, TypeError), match=message):
        OF_BOTH[message](module)


def test_large_weights_and_weights_of_zero_are_no_error():
    weights = torch.full((2, 2), 3e38)
    assert UnbiasedRisk(PAIRS, "mae")(torch.zeros(2, 2), PAIR, [1], weights=weights) == INF
    assert UnbiasedRisk(PAIRS, reduction="sum")(torch.zeros(2, 2), PAIR, [1], group_weights=[0]) == 0


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # of the compiler
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("loss", [UnbiasedRisk(LabelProportions()), NegativeLogLikelihood(LabelProportions())])
def test_compiled_steps_have_equal_gradients(loss, backend):
    groups = Groups.from_sizes([3, 5, 40])
    X, model = torch.randn(48, 2), torch.nn.Linear(2, 3)
    z = loss.aggregate.observe(torch.arange(48) % 3, groups, 3)

    def step(X):
        return loss(model(X), groups, z)

    values, gradients = [], []
    for function in (step, torch.compile(step, backend=backend)):
        model.zero_grad()
        values.append(function(X))
        values[-1].backward()
        gradients.append(model.weight.grad.clone())
    torch.testing.assert_close(values[0], values[1])
    torch.testing.assert_close(gradients[0], gradients[1])
