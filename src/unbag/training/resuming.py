"""Saving everything that the rest of a run depends on, and going on from there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unbag._utils.environment import versions
from unbag.training.best import Best
from unbag.training.checkpoints import Checkpoint
from unbag.training.identity import digest
from unbag.training.progress import logger
from unbag.training.sharing import gather

if TYPE_CHECKING:
    from unbag.training.run import Run

CHOICE = ("score", "epoch", "improved", "stopped")
"""What a criterion has chosen, beside weights; as :class:`Best` calls it."""


def save(run: Run, checkpoint: Checkpoint) -> None:
    """Save a run as it is between two steps; what is saved is that of all processes, and the first one writes it."""
    gather(run)
    if not run.processes.first:
        return
    tensors = {
        **{f"model.{name}": tensor for name, tensor in run.replicas.snapshot().items()},
        **{f"best.{place}.{name}": one for place, best in enumerate(run.best) for name, one in best.weights.items()},
        **{f"choice.{place}.{name}": getattr(best, name) for place, best in enumerate(run.best) for name in CHOICE},
        **{f"generator.{place}": one.get_state() for place, one in enumerate(run.generators)},
        **{f"order.{place}": batches.order for place, batches in enumerate(run.batches)},
        **{f"rest.{p}.{r}": rest for p, batches in enumerate(run.batches) for r, rest in enumerate(batches.rest)},
        **{f"memory.{place}": memory for place, memory in enumerate(run.memory)},
        **{f"optimiser.{name}": tensor for name, tensor in run.optimisation.state().items()},
        "random": torch.cat(run.random.state),
        "loss_sum": run.loss_sum,
    }
    if run.average is not None:
        tensors |= {f"average.{name}": tensor for name, tensor in run.average.state.items()}
        tensors["averaged steps"] = run.average.n_steps
    numbers = {"epoch": run.epoch_number, "step": run.step, "history": run.history, "run": _identity(run)}
    checkpoint.save(tensors, numbers)


def resume(run: Run, checkpoint: Checkpoint) -> None:
    """Bring a new run to where it was saved, if it was."""
    saved = run.processes.of_first(lambda: _load(run, checkpoint))
    if saved is None:
        return
    tensors, numbers = saved
    device = run.X.device

    def part(prefix: str) -> dict[str, Tensor]:
        return {name[len(prefix) :]: one.to(device) for name, one in tensors.items() if name.startswith(prefix)}

    run.replicas.restore(part("model."))
    run.best = [Best(part(f"best.{place}."), **part(f"choice.{place}.")) for place in range(run.n_criteria)]
    for place, generator in enumerate(run.generators):
        generator.set_state(tensors[f"generator.{place}"])
    for place, batches in enumerate(run.batches):
        batches.set_order(tensors[f"order.{place}"])
        batches.rest = [tensors[f"rest.{place}.{replica}"] for replica in range(len(run.seeds))]
    if run.average is not None:
        run.average.state = part("average.")
        run.average.n_steps.copy_(tensors["averaged steps"])
    for place, memory in enumerate(run.memory):
        memory.copy_(tensors[f"memory.{place}"])
    run.random.state = list(tensors["random"].split([len(own) for own in run.random.state]))
    if run.processes.first:  # others begin anew, and all are added up
        run.loss_sum.copy_(tensors["loss_sum"])
    run.optimisation.restore(part("optimiser."))
    run.epoch_number, run.step, run.history = numbers["epoch"], numbers["step"], numbers["history"]
    run.optimisation.go_to(run.epoch_number, run.epoch_number * run.n_steps + run.step)
    logger.info("going on with epoch %d, step %d, from %s", run.epoch_number + 1, run.step, checkpoint.file)


def _load(run: Run, checkpoint: Checkpoint) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    saved = checkpoint.load()
    if saved is not None and saved[1]["run"] != (identity := _identity(run)):
        raise ValueError(
            f"{checkpoint.file} is of another run: {_difference(saved[1]['run'], identity)}; "
            "give each run a folder of its own, or remove the checkpoint to start anew"
        )
    return saved


def _identity(run: Run) -> dict[str, str]:
    """Return what must not change between the start of a run and its end."""
    if run.identity is None:  # reading all rows takes a while, and a run is saved many times
        run.identity = _read_identity(run)
    return run.identity


def _read_identity(run: Run) -> dict[str, str]:
    seen = [one for given in run.sets for one in given]
    kinds = [(one.aggregate, one.weight, len(one.groups)) for one in seen]
    parts = {
        "versions": (versions(), versions()),
        "settings": (run.settings, run.settings),
        "objective": (run.objective, run.objective),
        "seeds": (run.seeds, run.seeds),
        "rows": (tuple(run.X.shape) if isinstance(run.X, Tensor) else f"{len(run.X)} of {run.X}", run.X),
        "observations": (kinds, seen),
        "model": (run.models[0], list(run.models)),
        "hooks": (run.hooks, run.hooks),
        "score": (f"{run.n_criteria} of {run.score}", run.score),
    }
    # The addresses of functions change from process to process; what they do is in the digest.
    return {
        name: f"{re.sub(' at 0x[0-9a-f]+', '', str(shown))} with content {digest(content, f'the {name}')[:16]}"
        for name, (shown, content) in parts.items()
    }


def _difference(saved: dict[str, str], current: dict[str, str]) -> str:
    name = next(name for name in current if saved.get(name) != current[name])
    return f"its {name}: {saved.get(name)}; of this run: {current[name]}"
