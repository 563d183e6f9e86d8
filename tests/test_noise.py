"""Noise and statements of published counts: densities, samples, what is refused."""

import math

import pytest
import torch
from scipy import stats

from unbag import noise, published
from unbag.published import HIGH, LOW, MISSING

WHOLE = torch.arange(-9000, 9001, dtype=torch.float64)


@pytest.mark.parametrize("scale", [1e-3, 0.3, 0.41, 1.0, 7.5, 200.0])
@pytest.mark.parametrize("kind", [noise.Geometric, noise.DiscreteGaussian])
def test_whole_noise_is_a_distribution(kind, scale):
    probs = kind(scale).log_prob(WHOLE).exp()
    assert math.isclose(float(probs.sum()), 1, rel_tol=1e-12)
    spread = float((probs * WHOLE**2).sum())
    expected = float(kind.variance(torch.tensor(scale, dtype=torch.float64)))
    wide = kind is noise.Geometric or scale > 1
    assert not wide or math.isclose(spread, expected, rel_tol=1e-9, abs_tol=1e-12)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (noise.Laplace(2.5), stats.laplace(scale=2.5)),
        (noise.Gaussian(0.3), stats.norm(scale=0.3)),
        (noise.Geometric(1.5), stats.dlaplace(1 / 1.5)),
    ],
)
def test_densities_are_those_of_scipy(made, expected):
    x = torch.arange(-9.0, 10.0)
    log_density = expected.logpmf(x.numpy()) if made.is_integral else expected.logpdf(x.numpy())
    torch.testing.assert_close(made.log_prob(x), torch.from_numpy(log_density))


@pytest.mark.parametrize("kind", list(noise.KINDS.values()))
def test_samples_follow_the_density_and_the_seed(kind):
    made = kind(3.0)
    drawn = made.sample((20_000,), torch.Generator().manual_seed(1))
    assert torch.equal(drawn, made.sample((20_000,), torch.Generator().manual_seed(1)))
    assert math.isclose(float(drawn.var()), float(kind.variance(made.scale)), rel_tol=0.06)
    assert abs(float(drawn.mean())) < 0.12
    if made.is_integral:
        assert torch.equal(drawn, drawn.round())
        share = float((drawn == 0).double().mean())
        assert math.isclose(share, float(made.log_prob(0.0).exp()), rel_tol=0.1)


def test_each_value_may_have_its_own_scale():
    made = noise.Laplace([[1.0, 2.0]])
    torch.testing.assert_close(
        made.log_prob([[1.0, 1.0]]), torch.tensor([[-1.0, -0.5]]).double() - (2 * made.scale).log()
    )
    assert noise.DiscreteGaussian([1.0, 50.0]).sample((2,)).shape == (2,)


def test_privacy_makes_a_scale():
    assert noise.Laplace.from_epsilon(0.5, 1).scale == 2
    assert noise.Geometric.from_epsilon(2, sensitivity=2).scale == 1
    assert noise.Gaussian.from_rho(0.5, 3).scale == 3
    expected = math.sqrt(2 * math.log(1.25 / 1e-6)) / 0.5
    assert math.isclose(float(noise.DiscreteGaussian.from_epsilon(0.5, 1, delta=1e-6).scale), expected)


def test_noise_is_read_as_it_is_written():
    for kind in noise.KINDS.values():
        made = kind(0.1 + 0.2)
        again = noise.read_noise(str(made))
        assert type(again) is kind
        assert again.scale == made.scale


def test_statements_bound_counts():
    assert published.rounded([0, 20], to=10)[:, : HIGH + 1].tolist() == [[-5, 5], [15, 25]]
    assert published.rounded_share([0.123], [1000], to=0.001)[0, : HIGH + 1].tolist() == [123, 123]
    assert published.rounded_share([[0.5]], [[200]], to=0.01)[0, 0, : HIGH + 1].tolist() == [99, 101]
    assert published.between(10)[HIGH] == math.inf
    assert published.unknown(2, 3).shape == (2, 3, 6)
    assert published.exact([[2, 1]])[0, :, LOW].tolist() == [2, 1]


def test_missing_members_are_expected_by_shares():
    z = published.with_missing(published.exact([[5, 5], [2, 2]]), [3, 0], [0.25, 0.75])
    assert z[..., MISSING].tolist() == [[0.75, 2.25], [0, 0]]


REFUSED = {
    "the scale of noise must be a positive number": lambda: noise.Laplace([1.0, 0.0]),
    "noise must be a positive number": lambda: noise.Laplace(math.nan),
    r"sensitivity, the change .* must be a positive number, got None": lambda: noise.Laplace.from_epsilon(1.0),
    "epsilon must be a positive number, got 0": lambda: noise.Laplace.from_epsilon(0, 1),
    "needs a delta between 0 and 1": lambda: noise.Gaussian.from_epsilon(1.0, 1),
    "an epsilon of at most 1": lambda: noise.Gaussian.from_epsilon(2.0, 1, delta=1e-5),
    "noise must be one of laplace, gaussian": lambda: noise.read_noise("laplace:0"),
    "noise must be one of laplace": lambda: noise.read_noise("normal:2"),
    "must be one of laplace, gaussian": lambda: noise.read_noise("laplace"),
    "the lower bound must not exceed the upper bound; got 3.0, 2.0": lambda: published.between(3, 2),
    "bounds must be numbers": lambda: published.between([0.0, math.nan], 2),
    "rounded values must be multiples of 5; got 7.0": lambda: published.rounded([7], to=5),
    "to must be a positive number": lambda: published.rounded([5], to=0),
    "shares must be from 0 to 1; divide percentages by 100": lambda: published.rounded_share([12.5], 80, to=0.1),
    "must be whole numbers; got 1.5": lambda: published.noisy([1.5], noise.Geometric(1)),
    "published values must be finite": lambda: published.noisy([math.nan], noise.Laplace(1)),
    "members must be whole numbers": lambda: published.with_missing(published.unknown(1, 2), [-1], [0.5, 0.5]),
    "shares must be probabilities": lambda: published.with_missing(published.unknown(1, 2), [1], [0.5, 0.6]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_wrong_noise_and_statements_are_refused(message):
    with pytest.raises(ValueError, match=message):
        REFUSED[message]()
