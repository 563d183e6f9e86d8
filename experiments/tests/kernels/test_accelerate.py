"""Where kernels help, a faster copy of a model; elsewhere the model itself."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from unbag_experiments import kernels
from unbag_experiments.kernels import accelerate, probe
from unbag_experiments.kernels.fast_densenet import FastDenseNet
from unbag_experiments.networks import DenseNet, LeNet


@pytest.fixture(autouse=True)
def _forget():
    kernels.available.cache_clear()
    yield
    kernels.available.cache_clear()


@pytest.fixture
def as_if_on_a_gpu(monkeypatch):
    monkeypatch.setattr(nn.Parameter, "is_cuda", True, raising=False)


def dense_net():
    return DenseNet(3, depth=7, growth=4)


def test_kernels_work_in_the_interpreter():
    assert probe.add_one(torch.tensor([1.0, 2.0])).tolist() == [2.0, 3.0]
    assert kernels.available()


@pytest.mark.usefixtures("as_if_on_a_gpu")
@pytest.mark.parametrize(
    ("make", "how", "kind"),
    [
        (lambda: nn.Sequential(dense_net()), {"replicas": 1, "half": True}, FastDenseNet),
    ],
)
def test_a_copy_with_the_same_parameters_runs_by_kernels(make, how, kind):
    model = make()
    before = [type(part) for part in model.modules()]
    fast = accelerate(model, **how)
    assert kind in [type(part) for part in fast.modules()]
    assert [type(part) for part in model.modules()] == before
    assert list(fast.state_dict()) == list(model.state_dict())


@pytest.mark.usefixtures("as_if_on_a_gpu")
@pytest.mark.parametrize(
    ("make", "how"),
    [
        (lambda: LeNet(10), {"replicas": 1, "half": True}),
        (lambda: LeNet(10), {"replicas": 1, "half": False}),
        (dense_net, {"replicas": 1, "half": False}),
        (lambda: nn.Linear(2, 2), {"replicas": 2, "half": False}),
    ],
)
def test_where_no_kernel_helps_the_model_comes_back(make, how):
    model = make()
    assert accelerate(model, **how) is model


def test_without_a_gpu_the_model_comes_back():
    model = LeNet(10)
    assert accelerate(model, replicas=2, half=False) is model


@pytest.mark.usefixtures("as_if_on_a_gpu")
def test_without_triton_the_model_comes_back(monkeypatch):
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    model = LeNet(10)
    assert accelerate(model, replicas=2, half=False) is model


@pytest.mark.usefixtures("as_if_on_a_gpu")
def test_where_triton_fails_the_model_comes_back_and_a_warning_says_why_once(monkeypatch, caplog):
    def fail(x):
        raise RuntimeError("no compiler for C")

    monkeypatch.setattr(probe, "add_one", fail)
    for model, how in ((LeNet(10), {"replicas": 2, "half": False}), (dense_net(), {"replicas": 1, "half": True})):
        assert accelerate(model, **how) is model
    assert caplog.text.count("Triton fails here: no compiler for C") == 1
