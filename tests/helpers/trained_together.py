"""Training in several processes, forked from one that has imported everything; `test_processes.py` uses it."""

import os
import tempfile
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
from training_problems import drawn, network, table, weights_of

import unbag
from unbag import Groups
from unbag.aggregates.base import Aggregate
from unbag.training import Observations, Settings, Trained, held_out_likelihood, train
from unbag.training.checkpoint import pack, unpack
from unbag.training.processes import Processes

N_ROWS, N_GROUPS, BATCH = 150, 23, 5
"""Five steps an epoch, of four and five groups."""

UNEVEN = [1, 9, 2, 1, 14, 3, 1, 1, 6, 2, 1, 11, 4, 1, 2, 8, 1, 5, 1, 1, 3, 12, 1]


def in_processes(n: int, function: Callable[[Processes], Any]) -> list[Any]:
    """Return what a function returns in each of so many processes that train together; or what ended it."""
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(n):
            if child := os.fork():
                children.append(child)
                continue
            try:
                meeting = {"init_method": f"file://{folder}/meeting", "timeout": timedelta(minutes=2)}
                torch.distributed.init_process_group("gloo", rank=rank, world_size=n, **meeting)
                try:
                    found = function(Processes(rank, n))
                except Exception as error:
                    found = {"error": type(error).__name__, "message": str(error)}
                Path(folder, str(rank)).write_bytes(pack(found))
            finally:
                os._exit(0)  # without the exit handlers of the parent
        for child in children:
            os.waitpid(child, 0)
        files = [Path(folder, str(rank)) for rank in range(n)]
        return [unpack(file.read_bytes()) if file.exists() else None for file in files]


def kinds() -> dict[str, tuple[Aggregate, Groups, int]]:
    """Return an aggregate of every kind with groups and a number of classes, those of any size with uneven ones."""
    uneven = Groups.from_offsets(torch.tensor([0, *UNEVEN]).cumsum(0), torch.arange(sum(UNEVEN)))
    pairs, triplets = drawn(N_ROWS, N_GROUPS, 2), drawn(N_ROWS, N_GROUPS, 3)
    return {
        "label_proportions": (unbag.LabelProportions(), uneven, 3),
        "pairwise_similarity": (unbag.PairwiseSimilarity(), pairs, 3),
        "triplet_comparison": (unbag.TripletComparison(), triplets, 3),
        "multiple_instance": (unbag.MultipleInstance(), uneven, 2),
        "ordinal_rank": (unbag.OrdinalRank(), pairs, 3),
        "ordinal_triplet": (unbag.OrdinalTriplet(), triplets, 3),
        "majority": (unbag.Majority(), uneven, 2),
        "at_least": (unbag.AtLeast(2), uneven, 2),
        "count_of": (unbag.CountOf(1), uneven, 3),
        "noisy": (unbag.Noisy(unbag.MultipleInstance(), 0.1), uneven, 2),
        "published_counts": (unbag.PublishedCounts(), uneven, 3),
        "fold": (unbag.FromFold(0, _parity, int), uneven, 2),
    }


def _parity(state: int, label: int) -> int:
    return (state + label) % 2


def observed(kind: str) -> tuple[torch.Tensor, Observations, int]:
    """Return rows and observed groups of one kind."""
    aggregate, groups, k = kinds()[kind]
    X, labels = table(N_ROWS, k)
    return X, Observations(aggregate, groups, aggregate.observe(labels, groups, k), k), k


def train_kind(kind: str, processes: Processes | None, steps: int = 10, **settings: Any) -> dict[str, Any]:
    """Train on one kind of observation for about so many steps, some with likelihood and some with memory."""
    X, seen, k = observed(kind)
    learned, held_out = seen.split(0.1, torch.Generator().manual_seed(0))
    chosen = {"warm_up": 1, "remember_from": 1, "batch_size": BATCH, "learning_rate": 0.01, **settings}
    chosen["epochs"] = -(-steps // -(-len(learned.groups) // BATCH))
    seeds = chosen.pop("seeds", [0])
    given = {"seeds": seeds, "score": held_out_likelihood(X, [held_out]), "processes": processes}
    return summarise(train(partial(network, k), X, [learned], Settings(**chosen), **given))


def summarise(trained: Trained) -> dict[str, Any]:
    """Return what two runs are compared by, as plain values and tensors."""
    return {**vars(trained), "models": [weights_of(model) for model in trained.models], "others": []}


def difference(found: dict[str, Any], expected: dict[str, Any]) -> float:
    """Return the largest difference of any weight."""
    pairs = zip(found["models"], expected["models"], strict=True)
    return max(float((one[name] - other[name]).abs().max()) for one, other in pairs for name in one)
