"""Learners whose paths are known, and a small problem for them; processes import them from here."""

import os
import signal
import time
from dataclasses import dataclass, replace

import torch

from unbag import Groups, LabelProportions
from unbag.data.labels import Categorical
from unbag.learners import Problem
from unbag.training import Observations


@dataclass(frozen=True)
class Scaled:
    """A model whose logits are the columns times a factor."""

    factor: float

    def outputs(self, X):
        return X * self.factor


@dataclass(frozen=True)
class Path:
    """A learner whose path has given factors; it records the steps that were asked for and the starts."""

    name: str
    factors: tuple[float, ...]
    log: tuple = ()

    def prepare(self, problem, seed):
        return replace(self, log=[])

    def path(self, problem, start, seed):
        for factor in self.factors:
            self.log.append(factor)
            yield Scaled(factor)


def make_problem(n_groups=24, size=4, sharpness=3.0, seed=0):
    """Counts of two classes whose true logits are ``sharpness`` times the columns."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n_groups * size, 2, generator=generator)
    labels = torch.multinomial((sharpness * X).softmax(1), 1, generator=generator)[:, 0]
    groups = Groups.from_sizes([size] * n_groups)
    z = LabelProportions().observe(labels, groups, 2)
    return Problem.create(X, [Observations(LabelProportions(), groups, z, 2)], Categorical(2)), labels


@dataclass(frozen=True)
class Located(Scaled):
    """A model that knows which process fitted it."""

    process: int = 0


@dataclass(frozen=True)
class Acting:
    """A learner of a single step of some duration, which may first do something."""

    name: str
    factor: float = 3.0
    action: object = None

    def prepare(self, problem, seed):
        return self

    def path(self, problem, start, seed):
        if self.action is not None:
            self.action()
        time.sleep(0.1)
        yield Located(self.factor, os.getpid())


def kill_unless_child(parent, marker=None):
    """End this process if it is a child, once if there is a file as a marker."""
    if os.getpid() != parent and (marker is None or not marker.exists()):
        if marker is not None:
            marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def raise_memory_error():
    raise MemoryError
