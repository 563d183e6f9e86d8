"""Base class of aggregates: validation, gradients, and the computation of evidence from logits."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import wraps
from math import log
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, cast, get_args

import torch
from torch import Tensor

from unbag._kernels.logspace import class_major, log_softmax
from unbag._kernels.segments import Segments
from unbag._utils.checks import (
    ImpossibleObservation,
    as_tensor,
    check_choice,
    check_n_classes,
    describe,
    format_indices,
    is_integral,
    raise_if_any,
)
from unbag.data.alignment import match_columns, read_per_group, read_with_columns
from unbag.data.groups import Groups

Impossible = Literal["-inf", "raise"]
Outcome = Literal["yes_no", "class_counts", "published_counts", "class", "number"]
"""Values of an observation: 0 or 1; a count, or a statement about a count, for each class; a class; any other number,
or tuple of numbers."""

MOST_MEMBERSHIPS = 2**17
"""Memberships that are computed at once; larger batches are divided between groups."""


F = TypeVar("F", bound=Callable[..., Any])


def exclude_from_compilation(function: F) -> F:
    """Make ``torch.compile`` run a function as it is, because it validates values and chooses methods by them.

    ``torch.compiler.disable`` as a decorator would import the compiler, which takes a second.
    """

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*args, **kwargs)
        return function(*args, **kwargs)

    return cast(F, run)


class Evidence(NamedTuple):
    """Log-likelihood per group and posterior of the labels per membership."""

    log_likelihood: Tensor  # (groups,), differentiable
    posterior: Tensor  # (memberships, k), detached; rows sum to one


@dataclass(frozen=True)
class Wording:
    """Wording of a kind of observation in reports."""

    title: str
    observed: str
    """What was observed, to follow “known was”."""
    group: str = "group"
    groups: str = "groups"
    yes: str = "1"
    no: str = "0"


@dataclass(frozen=True)
class AnswerColumn:
    """Names of columns of binary observations, which identify the column and the meaning of 1."""

    yes: tuple[str, ...]
    contrary: tuple[str, ...] = ()
    """Names of columns with the opposite observation."""
    doubtful: tuple[str, ...] = ()
    """Names with an ambiguous meaning."""
    meanings: tuple[str, str, str, str] = ("yes", "no", "no", "yes")
    """Meaning of 1 in a column with a name of ``yes``, of ``contrary``, and with "not" before each of them."""
    symmetric: bool = False
    """Whether the observation does not depend on the order of the rows."""
    contrary_order: tuple[int, ...] | None = None
    """Order of the members in which the observation equals the opposite one; None: the opposite one is its negation."""


class Aggregate(ABC):
    """One kind of aggregate observation: a function of the labels of a group.

    A subclass defines the observation (:meth:`observe`), validates its values (:meth:`check`) and computes its
    likelihood by one of two methods: :meth:`log_prob`, which is differentiable, so that the posterior follows from its
    gradient; or :meth:`infer`, which returns both by a closed form or a forward-backward pass. Class attributes
    describe the rest. :func:`unbag.testing.check_aggregate` tests it.
    """

    name: ClassVar[str]
    """Name on the command line; by default the name of the class in snake case."""
    size: int | None = None
    """Required size of the groups; None: any."""
    outcome: ClassVar[Outcome] = "number"
    is_noisy: bool = False
    """Whether observations are drawn at random, from a seed."""
    n_classes: ClassVar[int | None] = None
    """Required number of classes; None: any."""
    weights: ClassVar[Literal["current", "remembered"]] = "remembered"
    """Outputs from which training computes weights by default."""
    pooled: ClassVar[bool] = False
    """Whether an observation is a label of the whole group, which its pooled columns may predict."""
    describes_all_rows: ClassVar[bool] = False
    """Whether groups express knowledge of all rows together, so that none are held out."""
    wording: ClassVar[Wording]
    """By default with the name of the class."""
    column: ClassVar[AnswerColumn | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" not in vars(cls):
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        if "wording" not in vars(cls):
            cls.wording = Wording(cls.__name__, f"what {cls.__name__} observes")

    @property
    def has_class_columns(self) -> bool:
        """Whether the second dimension of observations is that of the classes."""
        return self.outcome in ("class_counts", "published_counts")

    def is_binary(self, groups: Groups, n_classes: int) -> bool:
        """Return whether all possible observations of the groups are 0 or 1."""
        return self.outcome == "yes_no"

    def information(self, z: Tensor, groups: Groups, n_classes: int) -> float | None:
        """Return an upper bound of the bits in all observations, from the result of ``check``.

        By default it is their empirical entropy, and None for groups of a fixed size, which are small.
        """
        if self.size is not None:
            return None
        shares = z.unique(dim=0, return_counts=True)[1].double() / len(z)
        return float(torch.special.entr(shares).sum()) * len(z) / log(2)

    @abstractmethod
    def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
        """Return the observation of each group, from the true label of each row."""

    @abstractmethod
    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        """Validate observations, and return the tensor that :meth:`infer` takes."""

    def log_prob_given_labels(self, labels: Any, groups: Groups, z: Any, n_classes: int) -> Tensor:
        """Return log p(z | y) of each group, shape ``(groups,)``, from the label of each row.

        Without noise, the observation is a function of the labels: 0 where it equals z, else -inf.
        """
        observed = self.check(self.observe(labels, groups, n_classes), groups, n_classes)
        same = (observed == self.check(z, groups, n_classes)).reshape(len(groups), -1).all(1)
        return torch.zeros(len(groups), dtype=torch.float64, device=groups.device).masked_fill(~same, float("-inf"))

    def log_prob(self, log_probs: Tensor, segments: Segments, z: Tensor) -> Tensor:
        """Return log p(z | x) of each group from validated arguments, differentiable in ``log_probs``.

        ``log_probs`` holds the log-probabilities of the classes, one row per membership; ``segments`` divides these
        into groups. A subclass may pass the same arguments to other aggregates.
        """
        if type(self).infer is Aggregate.infer:
            raise TypeError(f"{type(self).__name__} must define log_prob or infer")
        return self.checked_evidence(log_probs, segments, z).log_likelihood

    def infer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return log p(z | x) per group and p(y | z, x) per membership, from validated arguments; no gradients.

        By default the posterior is ``softmax + d log_prob / d logits``. It is ignored where the likelihood is ``-inf``.
        It may be in float64 where ``log_probs`` are not, because the gradient is its small difference from the softmax.
        """
        with torch.enable_grad():
            logits = log_probs.detach().requires_grad_()
            log_likelihood = self.log_prob(logits.log_softmax(-1), segments, z)
            (slope,) = torch.autograd.grad(log_likelihood.sum(), logits)
        return log_likelihood.detach(), log_probs.exp() + slope

    def capturable(self, size: int, n_classes: int) -> bool:
        """Return whether a CUDA graph can capture :meth:`infer` on groups of one size: it reads no values."""
        return False

    def for_training(self) -> Aggregate:
        """Return the kind that training uses, which may approximate the likelihood at a lower cost."""
        return self

    def expect(self, log_probs: Tensor, groups: Groups) -> Tensor:
        """Return the expected observation of each group, from the log-probabilities of its members.

        For binary observations it is the probability of 1; kinds of counts return the expected counts.
        """
        n_classes = log_probs.shape[1]
        if not self.is_binary(groups, n_classes):
            raise ValueError(
                f"{type(self).__name__} has more than two possible observations; pass z=, one observation per group, "
                "to get its probability"
            )
        yes = self.check(torch.ones(len(groups), dtype=torch.int64, device=groups.device), groups, n_classes)
        return self.e_step(log_probs, groups.segments, yes)[0].exp()

    @exclude_from_compilation
    def evidence(
        self, logits: Tensor, groups: Groups, z: Any, *, impossible: Impossible = "-inf", classes: Any = None
    ) -> Evidence:
        """Compute :meth:`log_likelihood` and :meth:`posterior` in one pass, from the same arguments."""
        check_choice("impossible", impossible, get_args(Impossible))
        self.check_sizes(groups)
        logits_of_members = member_logits(logits, groups)
        z, columns = read_with_columns(z, groups)
        if classes is not None and columns is not None and self.has_class_columns:
            z = z[:, match_columns(columns, list(classes))]
        checked = self.check(z, groups, logits.shape[1])
        evidence = self.checked_evidence(logits_of_members, groups.segments, checked)
        raise_if_not_converged(evidence, groups, self)
        if impossible == "raise":
            raise_if_impossible(evidence.log_likelihood, groups, z)
        return evidence

    def checked_evidence(self, logits_of_members: Tensor, segments: Segments, z: Tensor) -> Evidence:
        """Compute likelihood and posterior from the logits of memberships and the result of :meth:`check`."""
        with full_precision(logits_of_members.device.type):
            return Evidence(*_InferWithGradient.apply(logits_of_members, self, segments, z))

    def smooth_log_likelihood(self, logits: Tensor, segments: Segments, z: Tensor) -> Tensor:
        """Compute the cheapest smooth approximation of the log-likelihood, for optimisers that call it often."""
        return self.checked_evidence(logits, segments, z).log_likelihood

    def e_step(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the results of :meth:`infer`, in parts of limited memory; NaN where the observation is impossible."""
        if len(log_probs) > MOST_MEMBERSHIPS and len(segments) > 1 and not is_tracing(log_probs):
            runs = segments.runs(MOST_MEMBERSHIPS)
            results = [self.infer(log_probs[members], run, z[which]) for which, members, run in runs]
            log_likelihood, posterior = map(torch.cat, zip(*results, strict=True))
        else:
            log_likelihood, posterior = self.infer(log_probs, segments, z)
        if not is_tracing(log_likelihood) and log_likelihood.amin().item() > float("-inf"):
            return log_likelihood, posterior
        impossible = log_likelihood == float("-inf")
        return log_likelihood, posterior.masked_fill(segments.expand(impossible)[:, None], float("nan"))

    def log_likelihood(
        self, logits: Tensor, groups: Groups, z: Any, *, impossible: Impossible = "-inf", classes: Any = None
    ) -> Tensor:
        """Return log p(z | x_1..x_m) of each group, shape ``(groups,)``, differentiable once.

        Parameters
        ----------
        logits
            One row per instance, shape ``(n, k)``. Half precision is computed in float32. A logit of ``-inf`` rules
            a class out.
        groups, z
            Rows and observation of each group. Observations are in the order of the groups, or in any order as a dict
            from ids or a table or column of pandas with the ids as its index.
        impossible
            ``"-inf"`` is the likelihood of observations that the logits rule out, with a posterior of NaN; ``"raise"``
            raises an error that names their groups.
        classes
            Names of the classes in the order of the columns of ``logits``, to match the columns of a table by name.
        """
        return self.evidence(logits, groups, z, impossible=impossible, classes=classes).log_likelihood

    def posterior(
        self, logits: Tensor, groups: Groups, z: Any, *, impossible: Impossible = "-inf", classes: Any = None
    ) -> Tensor:
        """Return p(y_i = j | z, x_1..x_m) of each membership, ``(memberships, k)``, in the order of ``groups.members``.

        The arguments are those of :meth:`log_likelihood`; the result is detached.
        """
        with torch.no_grad():
            return self.evidence(logits, groups, z, impossible=impossible, classes=classes).posterior

    def __repr__(self) -> str:
        names = [name for name in inspect.signature(type(self)).parameters if hasattr(self, name)]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def check_sizes(self, groups: Groups) -> None:
        """Raise an error for groups of sizes that the observation does not have."""
        _check_groups(groups)
        if self.size is not None and groups.uniform_size != self.size:
            raise_if_any(
                groups.sizes != self.size,
                f"{type(self).__name__} needs groups of {self.size} members",
                lambda first: f"group {first} has {int(groups.sizes[first])}",
                groups.name,
            )


class _InferWithGradient(torch.autograd.Function):
    """Fisher's identity as a backward pass: d log p(z | x) / d logits = posterior - softmax."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, aggregate: Aggregate, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = log_softmax(class_major(logits))
        log_likelihood, posterior = aggregate.e_step(log_probs, segments, z)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(gradient_in_logits(posterior, log_probs))
            ctx.segments = segments
        posterior = posterior.to(log_probs.dtype)
        ctx.mark_non_differentiable(posterior)
        return log_likelihood, posterior

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        return chain_gradient(ctx.saved_tensors[0], grad, ctx.segments), None, None, None


def gradient_in_logits(weights: Tensor, log_probs: Tensor) -> Tensor:
    """Compute the gradient of ``sum_j weights_j log p_j`` in the logits, for weights that add up to one.

    With the posterior as weights it is the gradient of log p(z | x), by Fisher's identity. Weights in float64 preserve
    the digits of a small difference.
    """
    if weights.dtype == log_probs.dtype:
        probs = log_probs.exp()
        return torch.sub(weights, probs, out=probs)  # allocating memory would cost as much as the subtraction
    probs = log_probs.to(weights.dtype).exp()
    return (weights - probs.div_(probs.sum(1, keepdim=True))).to(log_probs.dtype)


def chain_gradient(member_grad: Tensor, grad: Tensor, segments: Segments) -> Tensor:
    """Multiply the gradient of each membership by that of its group, which removes NaN from groups of weight zero."""
    factor = segments.expand(grad)[:, None]
    return (member_grad * factor).masked_fill_(factor == 0, 0)


def is_tracing(tensor: Tensor) -> bool:
    """Return whether operations on a tensor are captured in a CUDA graph, which must not read values."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def full_precision(device_type: str) -> AbstractContextManager[Any]:
    """Disable autocast, which would compute the evidence in half precision."""
    if torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()


def member_logits(logits: Tensor, groups: Groups) -> Tensor:
    """Validate logits, and return those of each membership in full precision."""
    if not isinstance(logits, Tensor) or not logits.is_floating_point() or logits.ndim != 2:
        raise TypeError(f"logits must be a floating-point tensor of shape (rows, classes), got {describe(logits)}")
    if logits.shape[1] < 2:
        raise ValueError(
            f"logits needs a column for each of at least 2 classes, got {describe(logits)}; "
            "for one logit of a positive class use torch.cat([torch.zeros_like(f), f], 1)"
        )
    check_rows(logits, groups, "logits")
    members = groups.gather(logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits)
    values = members.detach()
    if not bool(torch.isfinite(values.sum())):  # a fast test, which is false for valid -inf, too
        infinite = values == float("-inf")
        wrong = {"NaN": values.isnan(), "+inf": values == float("inf"), "-inf for every class": infinite}
        for value, places in wrong.items():
            rows = places.all(1) if places is infinite else places.any(1)
            if bool(rows.any()):
                raise ValueError(
                    f"logits must give every row a distribution over classes, but there is {value} in "
                    f"{format_indices('row', rows, lambda place: str(int(groups.members[place])))}; "
                    "look for a diverged model or missing features"
                )
    return members


def check_labels(labels: Any, groups: Groups, n_classes: int) -> Tensor:
    """Validate the labels of rows, and return that of each membership."""
    _check_groups(groups)
    check_n_classes(n_classes)
    labels = as_tensor(labels, "labels", groups.device)
    if labels.ndim != 1 or not is_integral(labels):
        raise TypeError(f"labels must be whole numbers, one per row; got {describe(labels)}")
    check_rows(labels, groups, "labels")
    raise_if_any(
        (labels < 0) | (labels >= n_classes),
        f"labels must be from 0 to {n_classes - 1}",
        lambda first: f"row {first} has {int(labels[first])}",
        kind="row",
    )
    return groups.gather(labels).long()


def check_one_per_group(z: Any, groups: Groups) -> Tensor:
    """Validate that there is one number per group, and return them in the order of the groups."""
    z = read_per_group(z, groups)
    if z.shape != (len(groups),):
        raise ValueError(f"z must have one entry per group, shape ({len(groups)},); got shape {tuple(z.shape)}")
    return z


def check_binary(z: Any, groups: Groups, n_classes: int) -> Tensor:
    """Validate observations that are 0 or 1, one per group, and return them as booleans."""
    check_n_classes(n_classes)
    z = check_one_per_group(z, groups)
    if z.dtype == torch.bool:
        return z
    if not is_integral(z):
        raise TypeError(f"z must be 0 or 1 as whole numbers or booleans, got {z.dtype}; convert it with z.long()")
    wrong = (z != 0) & (z != 1)
    raise_if_any(wrong, "z must be 0 or 1", lambda first: f"z[{first}] is {int(z[first])}", groups.name)
    return z.bool()


def _check_groups(groups: Groups) -> None:
    if not isinstance(groups, Groups):
        raise TypeError(
            f"groups must be unbag.Groups, got {describe(groups)}; from one id per row, make them with "
            "unbag.Groups.from_ids(ids)"
        )


def check_rows(table: Any, groups: Groups, name: str = "X") -> None:
    """Raise an error if the rows of groups are not those of a table, or are on another device."""
    device = getattr(table, "device", None)
    if isinstance(device, torch.device) and device != groups.device:
        raise ValueError(f"{name} is on {device}, but the groups are on {groups.device}; move one of them")
    if groups.n_rows is not None and len(table) != groups.n_rows:
        raise ValueError(f"{name} has {len(table)} rows, but the groups were made for {groups.n_rows}")
    if groups.last_row >= len(table):
        raise ValueError(
            f"row number {groups.last_row} is out of range for {name} of {len(table)} rows; "
            f"see {groups.format_groups_holding(groups.members >= len(table))}"
        )


def raise_if_impossible(log_likelihood: Tensor, groups: Groups, z: Any) -> None:
    """Raise an error that names the groups with a log-likelihood of ``-inf``, if there are any."""
    impossible = log_likelihood.detach() == float("-inf")
    if bool(impossible.any()):
        first = int(impossible.nonzero()[0])
        raise ImpossibleObservation(
            f"the logits rule out the observations of {format_indices('group', impossible, groups.name)}: "
            f"z[{first}] = {read_per_group(z, groups)[first].tolist()} has probability zero; look for logits of -inf"
        )


def raise_if_not_converged(evidence: Evidence, groups: Groups, aggregate: Aggregate) -> None:
    """Raise an error that names the groups with a log-likelihood of NaN, if there are any."""
    if bool((lost := evidence.log_likelihood.detach().isnan()).any()):
        raise ArithmeticError(
            f"the likelihood of {format_indices('group', lost, groups.name)} could not be computed: the approximation "
            f"of {aggregate!r} did not converge; look for logits beyond 10,000, or use method='exact' with larger "
            "max_states"
        )
