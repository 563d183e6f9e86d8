"""Several models of one make, trained at once: replicas are a dimension, not a loop."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from unbag._utils.checks import describe
from unbag._utils.parts import join
from unbag._utils.random_state import RandomState
from unbag.objectives.losses import Loss
from unbag.training.architectures.build import MakeModel
from unbag.training.convolutions import use_im2col


class Accelerate(Protocol):
    """A hook that may exchange the model that replicas run for one that computes the same faster."""

    def __call__(self, model: nn.Module, *, replicas: int, half: bool) -> nn.Module:
        """Return the model itself or, with parameters and buffers of the same names, another in its place.

        It is given a copy of the first model, on its device, how many run side by side, and whether in bfloat16.
        """
        ...


def make_models(
    make_model: MakeModel | Sequence[MakeModel], seeds: Sequence[int], device: torch.device
) -> list[nn.Module]:
    """Make one model for each seed, by one function or each by its own; other runs' random numbers are left alone."""
    makers = [make_model] * len(seeds) if callable(make_model) else list(make_model)
    if len(makers) != len(seeds):
        raise ValueError(f"make_model must be one function, or one for each of {len(seeds)} seeds; got {len(makers)}")
    models = []
    for make, seed in zip(makers, seeds, strict=True):
        with RandomState(seed, device).in_place():
            models.append(make().to(device))
    return models


def can_be_stacked(model: nn.Module) -> bool:
    """Whether replicas of a model can share one forward pass: no part changes its own buffers or shares its weights.

    Nor may it look at several rows at once, as batch norm does: to be of equal length, the rows of replicas are padded.
    """
    shared = len(list(model.named_parameters(remove_duplicate=False))) > len(list(model.parameters()))
    return not (keeps_statistics(model) or shared)


def keeps_statistics(model: nn.Module) -> bool:
    """Whether a model looks at several rows at once, or changes its own buffers, as norms with statistics do."""
    norms = [part for part in model.modules() if isinstance(part, nn.modules.batchnorm._NormBase)]
    return looks_across_rows(model) or any(part.track_running_stats for part in norms)


def looks_across_rows(model: nn.Module) -> bool:
    """Whether what a model says of a row depends on the rows beside it."""
    return any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in model.modules())


class Replicas:
    """Models that run and learn side by side.

    One model runs as it is. Several are stacked: parameters and buffers get a leading dimension, which one optimiser
    handles, and on a GPU one vectorised forward pass; Adam on stacked parameters is Adam on each.

    Parameters
    ----------
    models
        Of one make; parameters and buffers may differ in value.
    half
        Run them in bfloat16 where that is safe.
    compiled
        Compile the forward pass of a single model, unless ``accelerate`` exchanged it.
    accelerate
        Exchanges the model that runs for a faster one; None leaves it as it is.
    own
        Which of them run in this process.
    """

    state: dict[str, Tensor]
    """Parameters and buffers by name; with a leading dimension of replicas if there are several."""

    def __init__(
        self,
        models: Sequence[nn.Module],
        *,
        half: bool = False,
        compiled: bool = False,
        accelerate: Accelerate | None = None,
        own: slice = slice(None),
    ) -> None:
        self.n = len(models)
        self._own = own
        self._half = half
        model = copy.deepcopy(models[0])
        if half and self.n == 1:  # the order in memory in which convolutions in half precision are fastest
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's types lack it
        self._model = model if accelerate is None else accelerate(model, replicas=self.n, half=half)
        if self.n == 1:
            self.state = named_tensors(self._model)
            self._single = torch.compile(self._model) if compiled and self._model is model else self._model
            return
        parameters, buffers = stack_module_state(list(models))
        self.state = {**parameters, **buffers}
        self._model.to("meta")
        if next(iter(self.state.values())).is_cuda:
            use_im2col(self._model)
        self._vectorised = torch.vmap(self._one, randomness="different")

    def _one(self, state: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return functional_call(self._model, state, (inputs,))

    def _at_once(self, state: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return self._vectorised(state, inputs).flatten(0, 1)

    def _in_turn(self, state: dict[str, Tensor], inputs: Tensor) -> Tensor:
        """Run one after the other: what one model needs at a time stays in the caches of a processor."""
        parts = {name: tensor.unbind() for name, tensor in state.items()}
        own = [{name: part[replica] for name, part in parts.items()} for replica in range(len(inputs))]
        return torch.cat([self._one(one, rows) for one, rows in zip(own, inputs.unbind(), strict=True)])

    def parameters(self) -> list[Tensor]:
        """Return what an optimiser changes."""
        return [tensor for tensor in self.state.values() if tensor.requires_grad]

    def buffers(self) -> dict[str, Tensor]:
        """Return what no optimiser changes, but a forward pass may."""
        return {name: self.state[name] for name, _ in self._model.named_buffers()}

    def __call__(self, inputs: Tensor, which: slice | Tensor | None = None) -> Tensor:
        """Run replicas, all of this process or some, on their own inputs, (replicas, n, ...): all logits in a row."""
        with torch.autocast(inputs.device.type, torch.bfloat16) if self._half else nullcontext():
            if self.n == 1:
                return self._single(inputs[0])
            run = self._at_once if inputs.is_cuda else self._in_turn
            state = self.state
            if len(inputs) < self.n:
                state = {name: tensor[self._own if which is None else which] for name, tensor in state.items()}
            return run(state, inputs)  # (replicas * n, k)

    def predict(self, X: Tensor, chunk: int = 8192, *, own: bool = False) -> Tensor:
        """Run the replicas of this process without gradients, on the same rows, (n, ...), or each on its own.

        The latter are of shape (replicas, n, ...). Returns logits (replicas, n, k).
        """
        with _predicting(self._model):
            rows = X if own else X.expand(len(range(self.n)[self._own]), *X.shape)
            parts = (self(part) for part in rows.split(chunk, 1))
            return join((part.view(len(rows), -1, part.shape[1]) for part in parts), rows.shape[1], 1)

    def snapshot(self) -> dict[str, Tensor]:
        """Return a copy of all parameters and buffers, with a leading dimension of replicas."""
        return {name: self._with_replicas(tensor).detach().clone() for name, tensor in self.state.items()}

    def update_best(self, best: dict[str, Tensor], better: Tensor) -> None:
        """Update a snapshot for the replicas that are better now, (replicas,)."""
        for name, tensor in self.state.items():
            best[name][better] = self._with_replicas(tensor).detach()[better]

    def restore(self, snapshot: dict[str, Tensor]) -> None:
        """Set all parameters and buffers to those of a snapshot."""
        with torch.no_grad():
            for name, tensor in self.state.items():
                self._with_replicas(tensor).copy_(snapshot[name])

    def _with_replicas(self, tensor: Tensor) -> Tensor:
        return tensor[None] if self.n == 1 else tensor


def check_outputs(model: nn.Module, X: Tensor, loss: Loss, k: int) -> None:
    """Refuse, by the example of some rows, logits and losses that would be broadcast silently."""
    expected = f"shape {(len(X), k)} for {len(X)} rows"
    with _predicting(model):
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
def _predicting(model: nn.Module) -> Iterator[None]:
    """Have a model predict, without gradients; after that, each part of it learns as it did before."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    with torch.no_grad():
        yield
    for part, training in modes:
        part.training = training


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers, each once, also buffers that a state_dict leaves out."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}
