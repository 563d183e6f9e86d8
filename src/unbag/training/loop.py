"""The training loop: Algorithm 1 of the paper, for one model or several at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from unbag._utils.random_state import RandomState
from unbag.aggregates.observations import Observations, check_sets
from unbag.data.row_source import Rows, Views, gather_rows
from unbag.objectives.objective import Objective
from unbag.training.architectures.build import MakeModel
from unbag.training.best import StoppingRule
from unbag.training.checkpoints import Checkpoint
from unbag.training.optimisation import MakeOptimiser, MakeSchedule
from unbag.training.processes import Processes
from unbag.training.progress import LogProgress, logger
from unbag.training.replicas import Accelerate, can_be_stacked, check_outputs, keeps_statistics, make_models
from unbag.training.run import Hooks, Run
from unbag.training.selection import Score
from unbag.training.settings import Settings
from unbag.training.trained import Trained, side_by_side


def train(
    make_model: MakeModel | Sequence[MakeModel],
    X: Rows,
    observations: Sequence[Observations | Sequence[Observations]],
    settings: Settings | None = None,
    *,
    seeds: Sequence[int] = (0,),
    score: Score | None = None,
    checkpoint: Checkpoint | None = None,
    progress: LogProgress | None = None,
    objective: Objective | None = None,
    n_criteria: int = 1,
    keep_diverged: bool = False,
    accelerate: Accelerate | None = None,
    optimiser: MakeOptimiser | None = None,
    schedule: MakeSchedule | None = None,
    stopping: StoppingRule | None = None,
    views: Views | None = None,
    processes: Processes | None = None,
) -> Trained:
    """Train one model for each seed, all at once, on sets of observed groups.

    Parameters
    ----------
    make_model
        Returns a fresh model, from rows of ``X`` to logits; called once for each seed, with torch's random numbers set
        to it. In its place, a list with one function for each seed. Models that keep running statistics cannot run side
        by side and are trained one after the other.
    X
        Rows, (n, ...), on the device to train on; the groups must be there too. In place of a tensor, a
        :class:`RowSource`, whose rows may be on disk; on a GPU, its steps are not captured.
    observations
        The sets to learn from, all at once. In place of one that is shared, a set may be a list with one for each seed;
        where these are of different lengths, the longest makes an epoch.
    settings
        How to train.
    seeds
        One for each replica: of its first weights and of the order in which it visits the groups. A replica comes out
        the same, up to rounding, alone or beside others; not so with torch's dropout, which draws for all at once:
        :class:`unbag_experiments.dropout.ColumnDropout` draws for each by itself. A run comes out the same, to the last
        bit, whatever other runs are trained in other threads.
    score
        Tells after every epoch how good each replica is; the weights of the best epoch are returned. Without it, those
        of the last.
    checkpoint
        Where to save the run, and how often. If a run was saved there, it goes on from where it was.
    progress
        Shows how the run is doing.
    objective
        Minimised in place of what Algorithm 1 minimises, for other methods: a function from the outputs of the model,
        one row per membership, the groups of a step and the checked observations to one value per group. What the
        settings say of warm-up, loss and remembered weights is then not looked at.
    n_criteria
        How many criteria ``score`` has. With more than one it returns a score of each replica by each of them,
        (criteria, replicas); each criterion chooses epochs and loses patience by itself, and the run goes on until the
        last has.
    keep_diverged
        Return a replica whose weights or whose scores are NaN, with the epoch -1 and the score -inf where no epoch has
        been chosen, instead of ending all of them with an error.
    accelerate
        Exchanges the model that runs for one that computes the same faster; None leaves it as it is.
    optimiser
        A function from parameters to a torch optimiser, in place of Adam. Replicas are a first dimension of their
        parameters, so that it must treat each number by itself, as Adam, AdamW and SGD do. On a GPU, steps with another
        one than Adam or AdamW with ``capturable=True`` are not captured.
    schedule
        A function from the optimiser to one of ``torch.optim.lr_scheduler``, which goes on after every epoch; in a
        :class:`PerStep`, after every step. A run that goes on from a checkpoint repeats the steps of its schedule.
    stopping
        A rule that is asked after every epoch which replicas stop, in place of patience:
        ``lambda best, history: best.score > -0.1``; see :data:`unbag.training.best.StoppingRule`.
    views
        Makes the inputs of a step from gathered rows, (n, ...), of all replicas: augmentation or noise. It may draw
        from torch's random numbers, which are those of the run. Predictions and scores are of the rows themselves. On a
        GPU, steps with views are not captured.
    processes
        This process among several that call this function with the same arguments, and train together. All return the
        same as one process does, up to rounding. The first one reads and writes checkpoints. Replicas are spread over
        processes where each gets as many; otherwise each step's groups are, and gradients are added up. Dropout and
        views draw in each process by itself, so that their numbers depend on how many processes there are. Models that
        look across rows, as batch norm does, are refused: no process sees all rows of a step.
    """
    processes = processes or Processes()
    settings = settings or Settings()
    seeds = [int(seed) for seed in seeds]
    if not seeds:
        raise ValueError("seeds is empty: give at least one seed, one for each replica")
    given = [[one] if isinstance(one, Observations) else list(one) for one in observations]
    sets = [[one.counting() for one in replicas] for replicas in given]
    check_sets(sets, X, len(seeds))
    models = make_models(make_model, seeds, X.device)
    if objective is None:
        some = gather_rows(X, torch.arange(min(2, len(X)), device=X.device))
        with RandomState(seeds[0], X.device).in_place():
            check_outputs(models[0], some, settings.loss_function, sets[0][0].n_classes)
    if processes.size > 1 and keeps_statistics(models[0]):
        raise ValueError(
            f"a model with batch norm, or with running statistics, learns from all rows of a step at once, which none "
            f"of {processes.size} processes has; train it in one process, or with layer norm or group norm"
        )
    hooks = Hooks(optimiser, schedule, stopping, views)
    together = len(models) == 1 or can_be_stacked(models[0])
    if not together:
        logger.warning(
            "models with batch norm, running statistics or shared weights cannot be trained side by side: "
            "training %d in turn",
            len(models),
        )
    results = []
    for places in [range(len(seeds))] if together else [[place] for place in range(len(seeds))]:
        run = Run(
            [models[place] for place in places],
            X,
            [replicas if len(replicas) == 1 else [replicas[place] for place in places] for replicas in sets],
            settings,
            [seeds[place] for place in places],
            score,
            objective,
            n_criteria,
            accelerate,
            hooks,
            processes,
        )
        own = checkpoint if checkpoint is None or together else checkpoint.part(f"replica {places[0]}")
        run.train(own, progress or LogProgress())
        results.append(run.result(run.models, keep_diverged=keep_diverged))
    return results[0] if together else side_by_side(results)
