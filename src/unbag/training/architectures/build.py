"""From what a caller calls a model to new models, as many as there are replicas."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from torch import nn

from unbag._utils import plugins
from unbag._utils.checks import check_n_classes, describe
from unbag._utils.random_state import RandomState
from unbag.training.architectures.linear import Linear
from unbag.training.architectures.mlp import MLP
from unbag.training.architectures.one_logit import OneLogit, n_outputs
from unbag.training.architectures.rbf import RBF

MakeModel = Callable[[], nn.Module]
Model = str | nn.Module | MakeModel


def build(model: Model, input_shape: Sequence[int], n_classes: int) -> MakeModel:
    """Return a function that makes a new model for each replica, drawn from torch's random numbers.

    Parameters
    ----------
    model
        A name: ``"linear"``, ``"mlp"`` or ``"rbf"`` for rows of any shape, ``"logistic"``, linear with one output, for
        two classes. Installed packages may add names by entry points of the group ``unbag.models``.

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
    allowed = (
        f"model must be one of {', '.join(model_names())}, trees, a module, a function or a classifier of scikit-learn"
    )
    if isinstance(model, str) and model not in model_names():
        if model in plugins.EXPERIMENTS[plugins.MODELS]:
            raise ValueError(plugins.how_to_install(f"model {model!r}"))
        raise ValueError(f"{allowed}; got {model!r}")
    if not isinstance(model, str) and not callable(model):
        raise TypeError(f"{allowed}; got {describe(model)}")
    make = partial(_make, model, shape, n_classes)  # which can be handed to other processes
    # What is wrong shows here, and the trial leaves the random numbers of the caller as they were.
    with RandomState(0).in_place():
        make()
    return make


def model_names() -> tuple[str, ...]:
    """Return the names of models: those of unbag, and those that installed packages add."""
    return (*MODELS, *plugins.names(plugins.MODELS))


def _make(model: Model, shape: tuple[int, ...], n_classes: int) -> nn.Module:
    if isinstance(model, str):  # those with names have the outputs they should, and are not run
        make: Callable[..., nn.Module] = MODELS.get(model) or plugins.load(plugins.MODELS, model)
        return make(shape, n_classes)
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


MODELS: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {
    "linear": lambda shape, n_classes: Linear(prod(shape), n_classes),
    "logistic": lambda shape, n_classes: _fit_to_classes(Linear(prod(shape), 1), 1, n_classes),
    "mlp": lambda shape, n_classes: MLP(prod(shape), n_classes),
    "rbf": lambda shape, n_classes: RBF(prod(shape), n_classes),
}
