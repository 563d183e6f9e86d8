"""Checks for aggregates of the library and of users.

The reference is enumeration: the probabilities of all label vectors of a small group with the same observation are
added up. Only ``observe`` is assumed to be correct, and for kinds with noise ``log_prob_given_labels``, for a sample of
the observations, which must be equal for equal seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from unbag._utils.checks import ImpossibleObservation, check_n_classes
from unbag.aggregates.base import Aggregate, Evidence
from unbag.data.groups import Groups

EXACT = 1e-10  # float64 against enumeration, relative above one
EXACT_AT_EXTREMES = 1e-8
SINGLE = 1e-4  # float32 against float64
MAX_VECTORS = 20_000
MAX_NOISY_OUTCOMES = 40
EXTREMES = (-1e4, -200.0, 0.0, 200.0, 1e4)
NEVER = float("-inf")


@dataclass(frozen=True)
class Batch:
    """Groups of consecutive rows, and their evidence by enumeration."""

    logits: Tensor  # (memberships, k), float64
    groups: Groups
    z: Tensor  # (groups, ...)
    log_likelihood: Tensor  # (groups,)
    posterior: Tensor  # (memberships, k)

    def take(self, which: Tensor) -> Batch:
        """Return the selected groups with consecutive rows."""
        selected = self.groups.take(which)
        rows, groups = selected.members, Groups.from_sizes(selected.sizes)
        return Batch(self.logits[rows], groups, self.z[which], self.log_likelihood[which], self.posterior[rows])

    def sample(self, most: int, random: torch.Generator) -> Batch:
        """Return at most ``most`` random groups."""
        return self.take(torch.randperm(len(self.groups), generator=random)[:most])

    @classmethod
    def join(cls, batches: Sequence[Batch]) -> Batch:
        """Join the groups of several batches."""
        sizes = torch.cat([batch.groups.sizes for batch in batches])
        parts = [(batch.logits, batch.z, batch.log_likelihood, batch.posterior) for batch in batches]
        logits, z, log_likelihood, posterior = map(torch.cat, zip(*parts, strict=True))
        return cls(logits, Groups.from_sizes(sizes), z, log_likelihood, posterior)


@dataclass(frozen=True)
class Enumeration:
    """All label vectors of one size, and the observation of each."""

    labels: Tensor  # (vectors, size)
    z: Tensor  # possible observations, or a sample of them for kinds with noise, (outcomes, ...)
    outcome: Tensor | None  # the outcome of each vector, (vectors,); None for kinds with noise
    log_conditional: Tensor | None  # for kinds with noise, log p(outcome | vector), (outcomes, vectors)
    n_classes: int

    @classmethod
    def create(cls, aggregate: Aggregate, size: int, n_classes: int) -> Enumeration:
        """Enumerate the label vectors of groups of a size."""
        vectors = n_classes**size
        if vectors > MAX_VECTORS:
            raise ValueError(
                f"groups of {size} with {n_classes} classes have {vectors:,} label vectors to enumerate, more than "
                f"{MAX_VECTORS:,}; check smaller groups or fewer classes"
            )
        labels = torch.cartesian_prod(*[torch.arange(n_classes)] * size).view(vectors, size)
        groups = Groups.from_sizes([size] * vectors)
        observed = aggregate.observe(labels.flatten(), groups, n_classes)
        if observed.ndim not in (1, 2, 3) or len(observed) != vectors:
            raise ValueError(
                f"observe must return one observation per group, shape ({vectors},) or ({vectors}, d) for "
                f"{vectors} groups; got shape {tuple(observed.shape)}"
            )
        z, outcome = torch.unique(observed, dim=0, return_inverse=True)
        if not getattr(aggregate, "is_noisy", False):
            return cls(labels, z, outcome, None, n_classes)
        z = z[:: -(-len(z) // MAX_NOISY_OUTCOMES)]
        conditional = [
            aggregate.log_prob_given_labels(labels.flatten(), groups, outcome.expand_as(observed), n_classes)
            for outcome in z
        ]
        return cls(labels, z, None, torch.stack(conditional), n_classes)

    @property
    def size(self) -> int:
        """Number of members of a group."""
        return self.labels.shape[1]

    def evidence(self, logits: Tensor) -> Evidence:
        """Compute likelihood, (outcomes,), and posterior, (outcomes, size, k), of each outcome of one group."""
        members = torch.arange(self.size)
        log_probs = logits.log_softmax(-1)[members, self.labels].sum(1)  # (vectors,)
        if self.outcome is None:
            assert self.log_conditional is not None
            joint = log_probs + self.log_conditional  # (outcomes, vectors)
            total = joint.logsumexp(1)
            one_hot = torch.nn.functional.one_hot(self.labels, self.n_classes).double()
            return Evidence(total, torch.einsum("ov,vmk->omk", (joint - total[:, None]).exp(), one_hot))
        top = log_probs.new_full((len(self.z),), NEVER).scatter_reduce_(0, self.outcome, log_probs, "amax")
        shift = top.masked_fill(top == NEVER, 0)
        parts = (log_probs - shift[self.outcome]).exp()
        total = torch.zeros_like(top).index_add_(0, self.outcome, parts)
        joint = log_probs.new_zeros(len(self.z), self.size, self.n_classes)
        places = (self.outcome[:, None].expand_as(self.labels), members.expand_as(self.labels), self.labels)
        joint.index_put_(places, parts[:, None].expand(self.labels.shape), accumulate=True)
        return Evidence(total.log() + shift, joint / total[:, None, None])

    def batch(self, tables: Tensor) -> Batch:
        """Return a group for each table of logits, (tables, size, k), and each outcome."""
        evidences = [self.evidence(table) for table in tables]
        outcomes = len(self.z)
        return Batch(
            tables.repeat_interleave(outcomes, 0).flatten(0, 1),
            Groups.from_sizes([self.size] * (len(tables) * outcomes)),
            self.z.repeat(len(tables), *[1] * (self.z.ndim - 1)),
            torch.cat([e.log_likelihood for e in evidences]),
            torch.cat([e.posterior for e in evidences]).flatten(0, 1),
        )


@dataclass(frozen=True)
class Trial:
    """The input of a check."""

    aggregate: Aggregate
    n_classes: int
    enumerations: list[Enumeration]
    random: torch.Generator

    def normal(self, *shape: int) -> Tensor:
        """Draw logits, (*shape, k)."""
        return torch.randn(*shape, self.n_classes, generator=self.random, dtype=torch.float64)

    def batches(self, scale: float = 1.5, tables: int = 3) -> Iterator[Batch]:
        """Yield one batch per size, with random logits."""
        for enumeration in self.enumerations:
            yield enumeration.batch(scale * self.normal(tables, enumeration.size))

    def extreme_batches(self) -> Iterator[Batch]:
        """Yield one batch per size; logits support each outcome, contradict it, or are tied."""
        for enumeration in self.enumerations:
            vectors = torch.randint(len(enumeration.labels), (3,), generator=self.random)
            certain = 2.0 * torch.nn.functional.one_hot(enumeration.labels[vectors], self.n_classes) - 1
            choice = torch.randint(len(EXTREMES), (6, enumeration.size, self.n_classes), generator=self.random)
            mixed = torch.tensor(EXTREMES, dtype=torch.float64)[choice]
            yield enumeration.batch(torch.cat([200 * certain.double(), 1e4 * certain.double(), mixed]))

    def evidence(self, batch: Batch, dtype: torch.dtype = torch.float64) -> Evidence:
        """Return the evidence of a batch by the aggregate."""
        return self.aggregate.evidence(batch.logits.to(dtype), batch.groups, batch.z)

    def posterior(self, batch: Batch) -> Tensor:
        """Return the result of the method ``posterior``."""
        return self.aggregate.posterior(batch.logits, batch.groups, batch.z)

    def evidence_and_slope(self, batch: Batch, dtype: torch.dtype = torch.float64) -> tuple[Evidence, Tensor]:
        """Return the evidence, and the gradient of the summed log-likelihoods, (rows, k)."""
        logits = batch.logits.to(dtype).requires_grad_()
        evidence = self.aggregate.evidence(logits, batch.groups, batch.z)
        if not evidence.log_likelihood.requires_grad:
            raise AssertionError("the log-likelihood must have a gradient in the logits, but it has none")
        (slope,) = torch.autograd.grad(evidence.log_likelihood.sum(), logits)
        return evidence, slope


def check_aggregate(
    aggregate: Aggregate,
    *,
    n_classes: int = 3,
    sizes: Sequence[int] = (3,),
    seed: int = 0,
    checks: Sequence[str] | None = None,
) -> None:
    """Check an aggregate against enumeration of all label vectors of small groups.

    The first check that fails raises an AssertionError with its name, the expected and the actual value.

    Parameters
    ----------
    aggregate
        Any object with the methods ``observe``, ``check``, ``log_likelihood``, ``posterior``, ``evidence``,
        ``is_binary`` and ``expect``.
    n_classes
        Number of classes.
    sizes
        Sizes of the groups; several of them are also checked in one batch.
    seed
        Seed of the random logits.
    checks
        Names of checks in :data:`CHECKS`; None: all.

    Examples
    --------
    >>> from unbag import PairwiseSimilarity
    >>> check_aggregate(PairwiseSimilarity(), n_classes=4, sizes=(2,))
    >>> list(CHECKS)[:3]
    ['observations', 'likelihood', 'posterior']
    """
    names = tuple(CHECKS) if checks is None else tuple(checks)
    if unknown := [name for name in names if name not in CHECKS]:
        raise ValueError(f"there is no check {unknown[0]!r}; the checks are {', '.join(CHECKS)}")
    check_n_classes(n_classes)
    enumerations = [Enumeration.create(aggregate, size, n_classes) for size in sizes]
    if not enumerations:
        raise ValueError("sizes must contain at least one size of groups")
    for name in names:
        trial = Trial(aggregate, n_classes, enumerations, torch.Generator().manual_seed(seed))
        try:
            CHECKS[name](trial)
        except Exception as error:
            message = str(error) if isinstance(error, AssertionError) else f"it raised {type(error).__name__}: {error}"
            raise AssertionError(
                f"{aggregate!r} fails the check {name!r} (n_classes={n_classes}, sizes={tuple(sizes)}, seed={seed}): "
                f"{message}"
            ) from error


def _observations(trial: Trial) -> None:
    """Require that check accepts the results of observe, and that observations of sampled labels are possible."""
    for enumeration in trial.enumerations:
        size = enumeration.size
        for z in (enumeration.z, *enumeration.z[:100].split(1)):  # together and alone
            _require_accepted(trial, z, size)
        groups = Groups.from_sizes([size] * 50)
        logits = 3 * trial.normal(50 * size)
        labels = torch.multinomial(logits.softmax(-1), 1, generator=trial.random).flatten()
        z = trial.aggregate.observe(labels, groups, trial.n_classes)
        if not torch.equal(z, trial.aggregate.observe(labels, groups, trial.n_classes)):
            raise AssertionError("observe must be deterministic; draw noise from a seed of the aggregate")
        _require_accepted(trial, z, size)
        log_likelihood = trial.aggregate.log_likelihood(logits, groups, z)
        density = enumeration.outcome is None
        _require(
            "log-likelihood of an observation simulated from the logits",
            log_likelihood,
            log_likelihood.isfinite() & (density | (log_likelihood < EXACT)),
            "a finite number" if density else "a finite number of at most 0",
            (groups, z),
        )


def _require_accepted(trial: Trial, z: Tensor, size: int) -> None:
    try:
        trial.aggregate.check(z, Groups.from_sizes([size] * len(z)), trial.n_classes)
    except Exception as error:
        raise AssertionError(
            f"check must accept what observe returns, but for groups of {size} members and z = {z.tolist()} "
            f"it raised {type(error).__name__}: {error}"
        ) from error


def _likelihood(trial: Trial) -> None:
    """Require the likelihood of enumeration for every outcome."""
    for batch in trial.batches():
        alone = trial.aggregate.log_likelihood(batch.logits, batch.groups, batch.z)
        for found in (alone, trial.evidence(batch).log_likelihood):
            _require_close("log-likelihood", found, batch.log_likelihood, batch)


def _posterior(trial: Trial) -> None:
    """Require the posterior of enumeration for every outcome."""
    for batch in trial.batches():
        for found in (trial.posterior(batch), trial.evidence(batch).posterior):
            _require_close("posterior", found, batch.posterior, batch)


def _gradient(trial: Trial) -> None:
    """Require the gradient of the likelihood, which is the posterior minus the softmax."""
    for batch in trial.batches():
        _, slope = trial.evidence_and_slope(batch)
        _require_close("softmax plus gradient", batch.logits.softmax(-1) + slope, batch.posterior, batch)
        sample = batch.sample(4, trial.random)
        log_likelihood = partial(trial.aggregate.log_likelihood, groups=sample.groups, z=sample.z)
        torch.autograd.gradcheck(log_likelihood, sample.logits.clone().requires_grad_())


def _row_order(trial: Trial) -> None:
    """Require invariance under permutations of the rows of the table."""
    for batch in trial.batches():
        new_place = torch.randperm(len(batch.logits) + 1, generator=trial.random)[:-1]
        table = trial.normal(len(batch.logits) + 1)
        table[new_place] = batch.logits
        moved = trial.aggregate.evidence(table, Groups.from_offsets(batch.groups.offsets, new_place), batch.z)
        _require_evidence("with rows renumbered", moved, batch)


def _group_order(trial: Trial) -> None:
    """Require equivariance under permutations of the groups."""
    for batch in trial.batches():
        trial.posterior(batch)  # a wrong cache of an earlier result would show
        order = torch.randperm(len(batch.groups), generator=trial.random)
        arguments, moved = (batch.logits, batch.groups.take(order), batch.z[order]), batch.take(order)
        found = trial.aggregate.log_likelihood(*arguments), trial.aggregate.posterior(*arguments)
        _require_evidence("with groups reordered", Evidence(*found), moved)


def _unequal_sizes(trial: Trial) -> None:
    """Require that groups of different sizes in one batch have the evidence of each alone."""
    batches = [batch.sample(20, trial.random) for batch in trial.batches()]
    if len({batch.z.shape[1:] for batch in batches}) > 1:
        return  # shapes of observations that depend on the size cannot be in one batch
    mixed = Batch.join(batches).sample(20 * len(batches), trial.random)
    alone = [trial.evidence(mixed.take(torch.tensor([group]))) for group in range(len(mixed.groups))]
    log_likelihood, posterior = map(torch.cat, zip(*alone, strict=True))
    expected = replace(mixed, log_likelihood=log_likelihood, posterior=posterior)
    _require_evidence("in a batch of unequal sizes, against the group alone,", trial.evidence(mixed), expected)


def _shared_rows(trial: Trial) -> None:
    """Require that a row in several groups is equivalent to copies of it, and adds up their gradients."""
    for enumeration in trial.enumerations:
        table = trial.normal(enumeration.size + 1)
        choices = torch.combinations(torch.arange(len(table)), enumeration.size)  # each omits one row
        copies = enumeration.batch(table[choices])
        tuples = choices.repeat_interleave(len(enumeration.z), 0)  # all rows with all outcomes
        rows = tuples.flatten()
        evidence, slope = trial.evidence_and_slope(replace(copies, logits=table, groups=Groups.from_tuples(tuples)))
        _require_evidence("with rows shared", evidence, copies)
        expected = torch.zeros_like(table).index_add_(0, rows, copies.posterior - copies.logits.softmax(-1))
        _require_close("gradient with rows shared", slope[rows], expected[rows], copies)


def _precision(trial: Trial) -> None:
    """Require that float32 agrees with float64, and that half precision is computed in float32."""
    for batch in trial.batches(scale=6, tables=16):
        rounded = replace(batch, logits=batch.logits.bfloat16().double())  # exact in all three types
        exact = trial.evidence(rounded)
        for dtype in (torch.float32, torch.bfloat16):
            for what, value, expected in zip(Evidence._fields, trial.evidence(rounded, dtype), exact, strict=True):
                if value.dtype != torch.float32:
                    raise AssertionError(f"{what} of {dtype} logits: expected torch.float32, got {value.dtype}")
                _require_close(f"{what} of {dtype} logits", value.double(), expected, rounded, SINGLE)


def _finite(trial: Trial) -> None:
    """Require finite likelihood, gradient and posterior for extreme logits in float32 and bfloat16."""
    for batch in trial.extreme_batches():
        for dtype in (torch.float32, torch.bfloat16):
            evidence, slope = trial.evidence_and_slope(batch, dtype)
            for what, value in (("log-likelihood", evidence[0]), ("posterior", evidence[1]), ("gradient", slope)):
                name = f"{what} of extreme {dtype} logits"
                _require(name, value, value.isfinite(), "finite", (batch.groups, batch.z))


def _extremes(trial: Trial) -> None:
    """Require the results of enumeration for extreme logits."""
    for batch in trial.extreme_batches():
        evidence, slope = trial.evidence_and_slope(batch)
        _require_evidence("of extreme logits", evidence, batch, EXACT_AT_EXTREMES)
        expected = batch.posterior - batch.logits.softmax(-1)
        _require_close("gradient of extreme logits", slope, expected, batch, EXACT_AT_EXTREMES)


def _impossible(trial: Trial) -> None:
    """Require -inf, or an error on request, for observations that logits of -inf rule out."""
    for enumeration in trial.enumerations:
        labels = enumeration.labels[torch.randint(len(enumeration.labels), (6,), generator=trial.random)]
        tables = trial.normal(6, enumeration.size)
        kept = torch.nn.functional.one_hot(labels, trial.n_classes).bool()
        kept[3:] |= tables[3:] > 0  # the first three tables have one possible label per row, the others more
        batch = enumeration.batch(tables.masked_fill(~kept, NEVER))
        possible = batch.log_likelihood > NEVER
        evidence, left = trial.evidence(batch), batch.take(possible.nonzero().flatten())
        _require_close("log-likelihood of logits with -inf", evidence.log_likelihood, batch.log_likelihood, batch)
        posterior = evidence.posterior[possible[batch.groups.segment]]  # the other groups have none
        _require_close("posterior of logits with -inf", posterior, left.posterior, left)
        trial.aggregate.evidence(left.logits, left.groups, left.z, impossible="raise")
        if bool(possible.all()):
            continue
        try:
            trial.aggregate.evidence(batch.logits, batch.groups, batch.z, impossible="raise")
        except ImpossibleObservation:
            continue
        group = int((~possible).nonzero()[0])
        raise AssertionError(
            f"logits of -inf rule out z = {batch.z[group].tolist()} of group {group}: "
            'expected ImpossibleObservation with impossible="raise", got no error'
        )


def _expectation(trial: Trial) -> None:
    """Require that observations agree with is_binary, and the expectation with enumeration."""
    for enumeration, batch in zip(trial.enumerations, trial.batches(), strict=True):
        is_binary = trial.aggregate.is_binary(batch.groups, trial.n_classes)
        if is_binary:
            inside = (batch.z == 0) | (batch.z == 1)
            _require("observation", batch.z, inside, "0 or 1, as is_binary says", (batch.groups, batch.z))
        if batch.z.ndim > 2:
            continue  # statements have no mean
        try:
            expectation = trial.aggregate.expect(batch.logits.log_softmax(-1), batch.groups)
        except ValueError:
            if is_binary:
                raise
            continue  # the kind has no expectation
        probs = batch.log_likelihood.exp().view(-1, len(enumeration.z))
        expected = (probs @ enumeration.z.double()).repeat_interleave(len(enumeration.z), 0)
        _require_close("expected observation", expectation, expected, batch)


def _require_evidence(what: str, found: Evidence, batch: Batch, tolerance: float = EXACT) -> None:
    """Require the likelihood and the posterior of a batch."""
    _require_close(f"log-likelihood {what}", found.log_likelihood, batch.log_likelihood, batch, tolerance)
    _require_close(f"posterior {what}", found.posterior, batch.posterior, batch, tolerance)


def _require_close(what: str, got: Tensor, expected: Tensor, batch: Batch, tolerance: float = EXACT) -> None:
    """Require equality of values or rows per group or membership, within a tolerance that is relative above one."""
    if got.shape != expected.shape:
        raise AssertionError(f"{what}: expected shape {tuple(expected.shape)}, got shape {tuple(got.shape)}")
    close = (got - expected).abs() <= tolerance * expected.abs().clamp_min(1)
    # Differences of infinite values are infinite or NaN.
    right = torch.where(expected.isfinite(), close, got == expected)
    _require(what, got, right, expected, (batch.groups, batch.z))


def _require(what: str, got: Tensor, right: Tensor, expected: Tensor | str, of: tuple[Groups, Tensor]) -> None:
    wrong = ~right.reshape(len(right), -1).all(1)
    if not bool(wrong.any()):
        return
    place = int(wrong.nonzero()[0])
    groups, z = of
    group = place if len(got) == len(groups) else int(groups.segment[place])
    member = "" if len(got) == len(groups) else f"member {place - int(groups.offsets[group])} of "
    wanted = expected if isinstance(expected, str) else expected[place].tolist()
    raise AssertionError(
        f"{what} of {member}group {group} ({int(groups.sizes[group])} members, z = {z[group].tolist()}): "
        f"expected {wanted}, got {got[place].tolist()}"
    )


CHECKS: dict[str, Callable[[Trial], None]] = {
    "observations": _observations,
    "likelihood": _likelihood,
    "posterior": _posterior,
    "gradient": _gradient,
    "row_order": _row_order,
    "group_order": _group_order,
    "unequal_sizes": _unequal_sizes,
    "shared_rows": _shared_rows,
    "precision": _precision,
    "finite": _finite,
    "extremes": _extremes,
    "impossible": _impossible,
    "expectation": _expectation,
}
"""Checks by name, in the order in which they run."""
