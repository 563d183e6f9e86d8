"""Networks from rows to logits, by name or supplied by the caller; public as ``unbag.models``."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn

from unbag._utils import plugins
from unbag._utils.checks import check_n_classes, describe
from unbag._utils.random_state import RandomState
from unbag.training.replicas import evaluating

MakeModel = Callable[[], nn.Module]
Model = str | nn.Module | MakeModel


class Linear(nn.Module):
    """A linear classifier of flattened rows.

    Examples
    --------
    >>> Linear(4, 3)(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.output = nn.Linear(n_features, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, shape ``(n, n_classes)``."""
        return self.output(x.flatten(1))


class MLP(nn.Module):
    """A perceptron of flattened rows; ``hidden`` are the units of each hidden layer.

    Examples
    --------
    >>> MLP(4, 3, hidden=(20, 10))(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, n_features: int, n_classes: int, hidden: Sequence[int] = (300,)) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for n_inputs, n_outputs in pairwise((n_features, *hidden)):
            layers += [nn.Linear(n_inputs, n_outputs), nn.ReLU()]
        self.hidden = nn.Sequential(*layers)
        self.output = nn.Linear((n_features, *hidden)[-1], n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, shape ``(n, n_classes)``."""
        return self.output(self.hidden(x.flatten(1)))


class RBF(nn.Module):
    """A linear layer on ``units`` radial basis functions ``exp(-width |x - centre|^2)`` of flattened rows.

    Examples
    --------
    >>> RBF(4, 3)(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, n_features: int, n_classes: int, units: int = 256) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.randn(units, n_features))
        self.width = nn.Parameter(torch.full((1,), 1 / n_features))
        self.output = nn.Linear(units, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, shape ``(n, n_classes)``."""
        rows = x.flatten(1)
        squares = rows.square().sum(1)[:, None] + self.centres.square().sum(1) - 2 * rows @ self.centres.T
        return self.output((-self.width * squares.clamp_min(0)).exp())  # clamped: rounding can make squares negative


class OneLogit(nn.Module):
    """Turn a model with one output f into a classifier of two classes with logits ``[0, f]``.

    The probability of class 1 is then the logistic function of f.

    Examples
    --------
    >>> OneLogit(nn.Identity())(torch.tensor([[3.0], [-1.0]]))
    tensor([[ 0.,  3.],
            [ 0., -1.]])
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, shape ``(n, 2)``."""
        f = self.net(x).reshape(x.shape[0], 1)  # (n, 1), also from a model that returns (n,)
        return torch.cat([torch.zeros_like(f), f], 1)


def n_outputs(net: nn.Module, input_shape: Sequence[int]) -> int:
    """Run a model on two rows of zeros, and count the outputs of a row.

    Examples
    --------
    >>> n_outputs(nn.Linear(4, 3), (4,))
    3
    """
    weights = next((weight for weight in net.parameters() if weight.is_floating_point()), torch.empty(0))
    rows = torch.zeros(2, *input_shape, dtype=weights.dtype, device=weights.device)
    try:
        with evaluating(net):  # leaves running statistics as they are
            outputs = net(rows)
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise ValueError(f"the model fails on rows of shape {tuple(input_shape)}: {error}") from error
    if not isinstance(outputs, Tensor) or outputs.ndim not in (1, 2) or len(outputs) != 2:
        raise ValueError(
            f"the model must return one row of logits for each row that it reads, here a tensor of shape (2, k); "
            f"got {describe(outputs)}"
        )
    return outputs[0].numel()


def build(model: Model, input_shape: Sequence[int], n_classes: int) -> MakeModel:
    """Return a function that makes new models with random initial weights.

    Parameters
    ----------
    model
        A name: ``"linear"``, ``"logistic"`` (one output), ``"mlp"`` or ``"rbf"``, or one that an installed package adds
        by an entry point of the group ``unbag.models``. Or a module, of which each model is a copy whose parts with a
        ``reset_parameters`` are initialised again. Or a function without arguments that returns a new module, such as
        ``lambda: copy.deepcopy(pretrained)``; see :class:`OneLogit` for modules with one output.
    input_shape
        Shape of one row, ``X.shape[1:]``.
    n_classes
        Number of classes.

    Examples
    --------
    >>> build("mlp", (4,), n_classes=3)()(torch.zeros(2, 4)).shape
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
    make = partial(_make, model, shape, n_classes)  # a partial can be pickled for other processes
    with RandomState(0).in_place():  # reports errors now, and leaves the random numbers of the caller as they were
        make()
    return make


def model_names() -> tuple[str, ...]:
    """Return the names of models: those of unbag, and those that installed packages add."""
    return (*MODELS, *plugins.names(plugins.MODELS))


def _make(model: Model, shape: tuple[int, ...], n_classes: int) -> nn.Module:
    if isinstance(model, str):
        make: Callable[..., nn.Module] = MODELS.get(model) or plugins.load(plugins.MODELS, model)
        return make(shape, n_classes)
    net = _reinitialise(model) if isinstance(model, nn.Module) else _call(model)
    return _fit_to_classes(net, n_outputs(net, shape), n_classes)


def _reinitialise(model: nn.Module) -> nn.Module:
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
