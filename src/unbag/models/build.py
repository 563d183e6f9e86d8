"""From what a caller calls a model to new models, as many as there are replicas."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from torch import nn

from unbag.checks import check_n_classes, describe
from unbag.models.densenet import DenseNet
from unbag.models.lenet import LeNet
from unbag.models.linear import Linear
from unbag.models.mlp import MLP
from unbag.models.one_logit import OneLogit, n_outputs
from unbag.models.rbf import RBF
from unbag.random_state import RandomState

MakeModel = Callable[[], nn.Module]
Model = str | nn.Module | MakeModel


def build(model: Model, input_shape: Sequence[int], n_classes: int) -> MakeModel:
    """Return a function that makes a new model for each replica, drawn from torch's random numbers.

    Parameters
    ----------
    model
        A name: ``"linear"``, ``"mlp"`` or ``"rbf"`` for rows of any shape, ``"logistic"``, linear with one output, for
        two classes, ``"lenet"`` or ``"densenet"`` for images of shape ``(height, width)`` or ``(channels, height,
        width)``.

        Or a module. It is left alone: every replica is a copy in which each part with a ``reset_parameters`` starts
        anew, so that restarts differ. What has none, such as a parameter of the module itself, and what is frozen
        starts from the values it has. To train on from given weights, hand in a function.

        Or a function without arguments that returns a new module at each call, for example
        ``lambda: copy.deepcopy(pretrained)``. It is called once more than there are replicas, for a trial.

        With two classes, a module or function may have one output, the log-odds of class 1; see :class:`OneLogit`.
    input_shape
        Shape of one row, ``X.shape[1:]``.
    n_classes
        How many classes there are.

    Examples
    --------
    >>> import torch
    >>> make = build("mlp", (4,), n_classes=3)
    >>> make()(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    >>> build(nn.Linear(4, 1), (4,), n_classes=2)()(torch.zeros(2, 4)).shape
    torch.Size([2, 2])
    """
    shape, n_classes = tuple(input_shape), check_n_classes(n_classes)
    if not shape or min(shape) < 1:
        raise ValueError(f"rows must have at least one feature, got rows of shape {shape}")
    if (isinstance(model, str) and model not in MODELS) or not (isinstance(model, str) or callable(model)):
        raise (ValueError if isinstance(model, str) else TypeError)(
            f"model must be one of {', '.join(MODELS)}, trees, a module, a function or a classifier of scikit-learn; "
            f"got {repr(model) if isinstance(model, str) else describe(model)}"
        )
    make = partial(_make, model, shape, n_classes)  # which can be handed to other processes
    # What is wrong shows here, and the trial leaves the random numbers of the caller as they were.
    with RandomState(0).in_place():
        make()
    return make


def _make(model: Model, shape: tuple[int, ...], n_classes: int) -> nn.Module:
    if isinstance(model, str):  # those with names have the outputs they should, and are not run
        return MODELS[model](shape, n_classes)
    net = _anew(model) if isinstance(model, nn.Module) else _call(model)
    return _fit_to_classes(net, n_outputs(net, shape), n_classes)


def _anew(model: nn.Module) -> nn.Module:
    model = copy.deepcopy(model)
    for part in model.modules():
        reset = getattr(part, "reset_parameters", None)
        if callable(reset) and any(weight.requires_grad for weight in part.parameters()):
            reset()
    return model


def _call(factory: MakeModel) -> nn.Module:
    try:
        model = factory()
    except TypeError as error:
        raise TypeError(f"the function that makes models must run without arguments: {error}") from error
    if not isinstance(model, nn.Module):
        raise TypeError(f"the function that makes models must return a torch.nn.Module, got {describe(model)}")
    return model


def _fit_to_classes(model: nn.Module, outputs: int, n_classes: int) -> nn.Module:
    if outputs == n_classes:
        return model
    if outputs == 1 and n_classes == 2:
        return OneLogit(model)
    allowed = "2 outputs, or 1 for the log-odds of class 1" if n_classes == 2 else f"{n_classes} outputs"
    raise ValueError(
        f"the model has {outputs} output{'s' if outputs != 1 else ''}, but there are {n_classes} classes; "
        f"give its last layer {allowed}"
    )


def _lenet(shape: tuple[int, ...], n_classes: int) -> nn.Module:
    channels, height, width = _image_shape("lenet", shape, least=12)
    if height != width:
        raise ValueError(f"model 'lenet' reads square images, got rows of shape {shape}; crop or pad them")
    return _with_channel(LeNet(n_classes, channels, height), shape)


def _densenet(shape: tuple[int, ...], n_classes: int) -> nn.Module:
    channels, _, _ = _image_shape("densenet", shape, least=4)
    return _with_channel(DenseNet(n_classes, channels=channels), shape)


def _image_shape(name: str, shape: tuple[int, ...], least: int) -> tuple[int, int, int]:
    if len(shape) not in (2, 3):
        raise ValueError(
            f"model {name!r} reads images: rows of shape (height, width) or (channels, height, width); "
            f"got rows of shape {shape}; reshape X, for example X.reshape(len(X), 1, 28, 28), or use 'mlp'"
        )
    channels, height, width = (1, *shape)[-3:]
    if min(height, width) < least:
        raise ValueError(
            f"model {name!r} reads images of at least {least} x {least} pixels, channels first; "
            f"got rows of shape {shape}; transpose X if its channels come last, or use 'mlp'"
        )
    return channels, height, width


def _with_channel(net: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    # (n, height, width) to (n, 1, height, width)
    return net if len(shape) == 3 else nn.Sequential(nn.Unflatten(1, (1, shape[0])), net)


MODELS: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {
    "linear": lambda shape, n_classes: Linear(prod(shape), n_classes),
    "logistic": lambda shape, n_classes: _fit_to_classes(Linear(prod(shape), 1), 1, n_classes),
    "mlp": lambda shape, n_classes: MLP(prod(shape), n_classes),
    "rbf": lambda shape, n_classes: RBF(prod(shape), n_classes),
    "lenet": _lenet,
    "densenet": _densenet,
}
