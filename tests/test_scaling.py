"""Scaling against NumPy, at the edges, and stored with a model."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from unbag.data.scaling import Scaling, check_finite, fit_scaling

NAN, INF = float("nan"), float("inf")


def table(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(rng.normal(0, 5, shape[1]), rng.uniform(0.1, 9, shape[1]), shape)


def close(actual, expected, atol=2e-6):
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-5, atol=atol)


CHANNELS = np.moveaxis(table(300, 3).reshape(3, 5, 20, 3), -1, 1)  # (n, channels, height, width)
BYTES = np.random.default_rng(0).integers(0, 256, (40, 1, 6, 6), dtype=np.uint8)


@pytest.mark.parametrize(
    ("X", "how", "axes", "shape"),
    [
        (table(3000, 6), "standard", 0, (6,)),  # more rows than are read at once
        (table(50, 6), "table", None, (6,)),
        (CHANNELS, "standard", (0, 2, 3), (3, 1, 1)),
        (CHANNELS, "table", None, (3, 1, 1)),
        (table(30, 16).reshape(30, 4, 4), "standard", None, (1, 1)),  # images of one channel
        (table(30, 16).reshape(30, 4, 4), "table", None, (1, 1)),
        (BYTES, "standard", None, (1, 1, 1)),
    ],
)
def test_agrees_with_numpy(X, how, axes, shape):
    train = X[: len(X) * 3 // 4]
    scaling = fit_scaling(torch.tensor(train), how)
    assert scaling.shift.shape == scaling.factor.shape == shape
    found, mean = scaling(torch.tensor(X)), train.mean(axes, keepdims=True, dtype=float)
    assert found.dtype == torch.float32
    close(found, (X - mean) / train.std(axes, keepdims=True, dtype=float))


@pytest.mark.parametrize("shape", [(20, 6), (5, 3, 4, 4), (5, 4, 4)])
def test_none_changes_nothing(shape):
    X = torch.randn(shape)
    assert torch.equal(fit_scaling(X, "none")(X), X)


@pytest.mark.parametrize("value", [0.0, 0.1, -3.3, 1e30, 1e-40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_constant_columns_become_zero(value, dtype):
    X = torch.stack([torch.full((3001,), value, dtype=dtype), torch.arange(3001, dtype=dtype)], 1)
    scaling = fit_scaling(X)
    assert scaling.factor[0] == 0
    assert (scaling(X.float())[:, 0] == 0).all()
    close(scaling(X)[:, 1].std(correction=0), 1.0)


def test_rounding_errors_are_not_scaled_up():
    X = torch.tensor([[1.0, 1e-45, 2.0], [1 + 1e-16, 0.0, 3.0]], dtype=torch.float64)
    assert fit_scaling(X).factor.tolist() == [0, 0, 2]
    outlier = torch.full((10_000, 1), 1e-45, dtype=torch.float64)
    outlier[0] = 1e-37  # float32 holds it, but not what it adds to the deviation
    assert fit_scaling(outlier).factor.tolist() == [0]


@pytest.mark.parametrize("offset", [1.7e12, -1e12])
def test_columns_far_from_zero_keep_their_differences(offset):
    near = torch.tensor(table(200, 3), dtype=torch.float64)  # deviations of 0.1 and more; numbers 2e-4 apart
    close(fit_scaling(near + offset)(near + offset), fit_scaling(near)(near).numpy(), 5e-3)


@pytest.mark.parametrize("how", ["standard", "table"])
def test_one_row_or_one_value(how):
    assert (fit_scaling(torch.full((1, 3), 4.0), how)(torch.full((1, 3), 4.0)) == 0).all()
    assert (fit_scaling(torch.full((5, 3), 0.1), how).factor == 0).all()


@pytest.mark.parametrize("offset", [1e6, -1e6])
def test_far_from_zero(offset):
    noise = np.random.default_rng(0).normal(size=(2000, 2))
    X = torch.tensor(offset + noise).float()  # in steps of 1/16
    scaled = fit_scaling(X)(X)
    expected = X.double().numpy()
    expected = (expected - expected.mean(0)) / expected.std(0)
    # The mean is kept in float32 too: at most half a step off, the same for all rows.
    close(scaled, expected, atol=1 / 32)
    close(scaled - scaled.mean(0), expected, atol=1e-5)


def test_rows_in_double_precision_keep_what_they_differ_by():
    noise = np.random.default_rng(0).normal(size=(2000, 2))
    X = torch.tensor(1e6 + 1e-3 * noise)  # in float32 all the same
    scaled = Scaling(torch.full((2,), 1e6), torch.full((2,), 1e3))(X)
    assert scaled.dtype == torch.float32
    close(scaled, noise, atol=1e-5)


def test_very_large_values():
    X = torch.tensor([[1e38], [-1e38], [3e37]])
    assert fit_scaling(X)(X).isfinite().all()


def test_stored_with_the_model():
    X = torch.tensor(table(30, 4)).float()
    model = nn.Sequential(fit_scaling(X), nn.Linear(4, 3))
    state = model.state_dict()
    assert {"0.shift", "0.factor"} < set(state)
    assert len(list(model.parameters())) == 2
    other = nn.Sequential(Scaling(torch.zeros(4), torch.ones(4)), nn.Linear(4, 3))
    other.load_state_dict(state)
    assert torch.equal(other(X), model(X))


def test_replicas_may_be_scaled_differently():
    X = torch.tensor(table(30, 4)).float()
    models = [nn.Sequential(fit_scaling(X, how), nn.Linear(4, 3)) for how in ("none", "table", "standard")]
    parameters, buffers = stack_module_state(models)
    logits = vmap(lambda p, b: functional_call(models[0], (p, b), (X,)))(parameters, buffers)
    torch.testing.assert_close(logits, torch.stack([model(X) for model in models]))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        *((bad, "NaN or infinity in columns 1, 4; leave out or fill in missing values") for bad in (INF, -INF)),
        (1e39, "values too large for float32 in columns 1, 4; use a larger unit"),
    ],
)
def test_values_that_cannot_be_read_are_named(value, message):
    X = torch.zeros(4, 6, dtype=torch.float64)
    X[2, 1] = X[3, 4] = value
    with pytest.raises(ValueError, match=message):
        fit_scaling(X)
    with pytest.raises(ValueError, match=r"columns 1 \(b\), 4 \(e\); "):
        check_finite(X, names="abcdef")
    with pytest.raises(ValueError, match="in images 2, 3; "):
        fit_scaling(X.reshape(4, 1, 2, 3), "none")


def test_missing_values_of_a_table_are_ignored():
    X = torch.tensor([[1.0, NAN], [NAN, NAN], [3.0, NAN]])
    assert torch.equal(fit_scaling(X).shift, torch.tensor([2.0, 0.0]))
    assert fit_scaling(X).factor.tolist() == [1, 0]
    with pytest.raises(ValueError, match="NaN or infinity in image 1"):
        fit_scaling(torch.tensor([[1.0], [NAN]]).reshape(2, 1, 1, 1))


def test_refused():
    with pytest.raises(ValueError, match="scaling must be one of none, standard, table; got 'minmax'"):
        fit_scaling(torch.zeros(2, 2), "minmax")
    for X in (torch.zeros(3), torch.zeros(0, 3), torch.zeros(3, 0)):
        with pytest.raises(TypeError, match=r"at least one row and one column, got torch.float32 of shape"):
            fit_scaling(X)
    with pytest.raises(TypeError, match="must be a tensor of at least one row and one column, got ndarray"):
        fit_scaling(np.zeros((3, 3)))
