"""Several models of one architecture, trained at once: replicas are a dimension, not a loop."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from unbag._utils.checks import describe
from unbag._utils.parts import join
from unbag._utils.random_state import RandomState
from unbag.objectives.losses import Loss

PREDICTED_ROWS = 8192  # at a time

MakeModel = Callable[[], nn.Module]
Accelerate = Callable[..., nn.Module]
"""Called with ``replicas=`` and ``half=`` (whether in bfloat16) on a copy of the first model, which it returns, perhaps
compiled, or replaces by a faster one with parameters and buffers of the same names."""


def make_models(
    make_model: MakeModel | Sequence[MakeModel], seeds: Sequence[int], device: torch.device
) -> list[nn.Module]:
    """Make a model for each seed, by one function or by one for each; random numbers of the caller stay unchanged."""
    makers = [make_model] * len(seeds) if callable(make_model) else list(make_model)
    if len(makers) != len(seeds):
        raise ValueError(f"make_model must be a function, or a list of {len(seeds)}, one per seed; got {len(makers)}")
    models = []
    for make, seed in zip(makers, seeds, strict=True):
        with RandomState(seed, device).in_place():
            models.append(make().to(device))
    return models


def learns_from_all_rows(model: nn.Module) -> bool:
    """Return whether the output for a row, or a running statistic, depends on all rows of a step."""
    norms = [part for part in model.modules() if isinstance(part, nn.modules.batchnorm._NormBase)]
    return any(isinstance(part, nn.modules.batchnorm._BatchNorm) or part.track_running_stats for part in norms)


class Replicas:
    """Models of one architecture that run and learn side by side, perhaps with ``half`` precision (bfloat16).

    A single model runs as it is. Parameters and buffers of several are stacked along a first dimension of ``state``,
    which one optimiser handles; on a GPU they share one vectorised forward pass, on a CPU they run one after the other.
    """

    state: dict[str, Tensor]

    def __init__(
        self, models: Sequence[nn.Module], *, half: bool = False, accelerate: Accelerate | None = None
    ) -> None:
        self.n = len(models)
        self._half = half
        model = copy.deepcopy(models[0])
        if half and self.n == 1:  # convolutions in half precision are fastest in this layout
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's types lack it
        self.model = model if accelerate is None else accelerate(model, replicas=self.n, half=half)
        if self.n == 1:
            self.state = named_tensors(self.model)
            return
        parameters, buffers = stack_module_state(list(models))
        self.state = {**parameters, **buffers}

    def _run_one(self, state: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return functional_call(self.model, state, (inputs,))

    def run_at_once(self, inputs: Tensor) -> Tensor:
        """Run in one vectorised pass, which suits a GPU."""
        return torch.vmap(self._run_one, randomness="different")(self.state, inputs).flatten(0, 1)

    def run_in_turn(self, inputs: Tensor) -> Tensor:
        """Run one after the other, so that what one model needs stays in the caches of a processor."""
        parts = {name: tensor.unbind() for name, tensor in self.state.items()}
        states = ({name: part[replica] for name, part in parts.items()} for replica in range(self.n))
        return torch.cat([self._run_one(*pair) for pair in zip(states, inputs.unbind(), strict=True)])

    def parameters(self) -> list[Tensor]:
        """Return the tensors that an optimiser changes."""
        return [tensor for tensor in self.state.values() if tensor.requires_grad]

    def buffers(self) -> dict[str, Tensor]:
        """Return the tensors that no optimiser changes, but a forward pass may."""
        return {name: self.state[name] for name, _ in self.model.named_buffers()}

    def __call__(self, inputs: Tensor) -> Tensor:
        """Compute the logits of the replicas, each of separate rows: (replicas, n, ...) to (replicas * n, k)."""
        with torch.autocast(inputs.device.type, torch.bfloat16) if self._half else nullcontext():
            if self.n == 1:
                return self.model(inputs[0])
            return self.run_at_once(inputs) if inputs.is_cuda else self.run_in_turn(inputs)

    def predict(self, X: Tensor) -> Tensor:
        """Compute the logits of all replicas for the same rows, without gradients: (n, ...) to (replicas, n, k)."""
        with evaluating(self.model):
            parts = (self(part.expand(self.n, *part.shape)) for part in X.split(PREDICTED_ROWS))
            return join((part.view(self.n, -1, part.shape[1]) for part in parts), len(X), 1)

    def snapshot(self) -> dict[str, Tensor]:
        """Return a copy of all parameters and buffers, with a first dimension of replicas."""
        return {name: self._with_replicas(tensor).detach().clone() for name, tensor in self.state.items()}

    def update_snapshot(self, snapshot: dict[str, Tensor], which: Tensor) -> None:
        """Replace the replicas of a snapshot that a mask selects, (replicas,), by their present state."""
        for name, tensor in self.state.items():
            snapshot[name][which] = self._with_replicas(tensor).detach()[which]

    def restore(self, snapshot: dict[str, Tensor]) -> None:
        """Set all parameters and buffers to those of a snapshot."""
        with torch.no_grad():
            for name, tensor in self.state.items():
                self._with_replicas(tensor).copy_(snapshot[name])

    def _with_replicas(self, tensor: Tensor) -> Tensor:
        return tensor[None] if self.n == 1 else tensor


def check_outputs(model: nn.Module, X: Tensor, loss: Loss, k: int) -> None:
    """Raise an error if logits or losses of some rows have a shape that would be broadcast silently."""
    expected = f"shape {(len(X), k)} for {len(X)} rows"
    with evaluating(model):
        logits = model(X)
        if not isinstance(logits, Tensor) or logits.shape != (len(X), k):
            raise ValueError(
                f"the model must return a logit for each of {k} classes, {expected}; got {describe(logits)}"
            )
        if not isinstance(losses := loss(logits), Tensor) or losses.shape != logits.shape:
            raise ValueError(f"loss must return one loss per row and class, {expected}; got {describe(losses)}")


def unstack(models: Sequence[nn.Module], snapshot: dict[str, Tensor]) -> list[nn.Module]:
    """Return models with the states of a snapshot, ready to predict."""
    with torch.no_grad():
        for place, model in enumerate(models):
            for name, tensor in named_tensors(model).items():
                tensor.copy_(snapshot[name][place])
            model.eval()
    return list(models)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Have a model predict without gradients; afterwards, each of its parts trains as it did before."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes:
            part.training = training


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers, each once, also buffers that a state_dict leaves out."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}
