"""Whether kernels work is found out by trying one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from unbag import gpu
from unbag.gpu import probe
from unbag.models import DenseNet
from unbag.training.convolutions import join_pooling, run_dense_blocks_fast


@pytest.fixture(autouse=True)
def _forget():
    gpu.available.cache_clear()
    yield
    gpu.available.cache_clear()


def test_kernels_work_in_the_interpreter():
    assert probe.add_one(torch.tensor([1.0, 2.0])).tolist() == [2.0, 3.0]
    assert gpu.available()


def test_without_triton_there_are_none(monkeypatch):
    monkeypatch.setattr(gpu, "find_spec", lambda name: None)
    assert not gpu.available()


def test_a_triton_that_fails_is_told_and_models_run_as_they_are(monkeypatch, caplog):
    def fail(x):
        raise RuntimeError("no compiler for C")

    monkeypatch.setattr(probe, "add_one", fail)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2))
    join_pooling(model)
    assert type(model[0]) is nn.Conv2d
    assert not run_dense_blocks_fast(DenseNet(3, depth=7, growth=4))
    assert caplog.text.count("Triton fails here: no compiler for C") == 1
