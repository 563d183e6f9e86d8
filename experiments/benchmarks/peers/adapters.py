# ruff: noqa: PLC0415 (a package that is not installed is met where it is needed)
"""Other packages behind one interface: a likelihood or loss with its gradient, from logits; a fit, from rows.

An adapter imports its package when it is called, so that what is not installed is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

Loss = Callable[[Tensor], Tensor]  # of logits (groups, members, classes)


def klay_counts(z: Tensor, size: int) -> Loss:
    """KLay: one circuit for all groups whose counts are the same up to the names of the classes."""
    ordered, classes = z.sort(dim=1, descending=True)
    kinds, kind_of_group = ordered.unique(dim=0, return_inverse=True)
    parts = []
    for number, kind in enumerate(kinds.tolist()):
        which = (kind_of_group == number).nonzero().flatten()
        counts = tuple(count for count in kind if count)
        names = classes[which, None, : len(counts)].expand(-1, size, -1)
        parts.append((which, names, _circuit([partial(_counts, counts=counts)])))

    def loss(logits: Tensor) -> Tensor:
        log_probs, found = logits.log_softmax(-1), []
        for which, names, circuit in parts:
            weights = log_probs[which].gather(2, names).flatten(1)
            found.append(circuit(weights, torch.zeros_like(weights)).sum())
        return -torch.stack(found).sum()

    return loss


def klay_bags(z: Tensor, size: int) -> Loss:
    """KLay: no member is positive, or the first positive one is the first, the second, ..."""
    circuit = _circuit([partial(_no_hit, size=size), partial(_first_hit, size=size)])

    def loss(logits: Tensor) -> Tensor:
        odds = logits[..., 1] - logits[..., 0]
        return -circuit(logsigmoid(odds), logsigmoid(-odds)).gather(1, z[:, None]).sum()

    return loss


def klay_comparisons(z: Tensor, size: int, k: int) -> Loss:
    """KLay: pairs or triplets, by the class of the first member."""
    build = _pairs if size == 2 else _triplets
    circuit = _circuit([partial(build, k=k, z=0), partial(build, k=k, z=1)])

    def loss(logits: Tensor) -> Tensor:
        weights = logits.log_softmax(-1).flatten(1)
        return -circuit(weights, torch.zeros_like(weights)).gather(1, z[:, None]).sum()

    return loss


def _circuit(roots: list[Callable[[Any], Any]]) -> Callable[[Tensor, Tensor], Tensor]:
    import klay

    circuit = klay.Circuit()
    for root in roots:
        circuit.set_root(root(circuit))
    return circuit.to_torch_module(semiring="log", compile=False)


def _counts(circuit: Any, counts: tuple[int, ...]) -> Any:
    @cache
    def rest(member: int, left: tuple[int, ...]) -> Any:
        ways = []
        for place, count in enumerate(left):
            if count:
                fewer = (*left[:place], count - 1, *left[place + 1 :])
                own = circuit.literal_node(1 + member * len(counts) + place)
                ways.append(circuit.and_node([own, rest(member + 1, fewer)]) if any(fewer) else own)
        return circuit.or_node(ways)

    return rest(0, counts)


def _no_hit(circuit: Any, size: int) -> Any:
    return circuit.and_node([circuit.literal_node(-member) for member in range(1, size + 1)])


def _first_hit(circuit: Any, size: int) -> Any:
    found = circuit.literal_node(size)
    for member in range(size - 1, 0, -1):
        found = circuit.or_node(
            [circuit.literal_node(member), circuit.and_node([circuit.literal_node(-member), found])]
        )
    return found


def _pairs(circuit: Any, k: int, z: int) -> Any:
    return circuit.or_node([circuit.and_node([_is(circuit, 0, k, j), _is(circuit, 1, k, j, z)]) for j in range(k)])


def _triplets(circuit: Any, k: int, z: int) -> Any:
    near = [[_is(circuit, 0, k, j), _is(circuit, 1, k, j), _is(circuit, 2, k, j, 1 - z)] for j in range(k)]
    # Where the second differs from the first, the answer is 0 whatever the third is.
    far = [[_is(circuit, 0, k, j), _is(circuit, 1, k, j, 0)] for j in range(k)] if z == 0 else []
    return circuit.or_node([circuit.and_node(way) for way in near + far])


def _is(circuit: Any, member: int, k: int, label: int, same: int = 1) -> Any:
    """Say that a member has the label, or, with ``same`` 0, one of the others."""
    literals = [circuit.literal_node(1 + member * k + j) for j in range(k) if (j == label) == bool(same)]
    return literals[0] if len(literals) == 1 else circuit.or_node(literals)


def torchmil_max_pool(z: Tensor, size: int) -> Loss:
    """torchmil: the largest log-odds of a bag are those of the bag."""
    from torchmil.nn import MaxPool

    pool, target = MaxPool(), z.float()
    return lambda logits: binary_cross_entropy_with_logits(
        pool(logits[..., 1:] - logits[..., :1]).squeeze(1), target, reduction="sum"
    )


def llp_learn_match(z: Tensor, size: int) -> Loss:
    """llp-learn: the loss of DLLP, bag by bag, as its fit takes them."""
    from llp_learn.dllp._classes import KLLossLLP

    match, shares = KLLossLLP(), (z / size).float()
    return lambda logits: torch.stack([match(own, share) for own, share in zip(logits, shares, strict=True)]).sum()


def contrastive(z: Tensor, size: int) -> Loss:
    """pytorch-metric-learning: contrastive loss of pairs, outputs taken for embeddings."""
    from pytorch_metric_learning.losses import ContrastiveLoss

    loss, (same, other) = ContrastiveLoss(), ((z == own).nonzero().flatten() for own in (1, 0))
    pairs = (2 * same, 2 * same + 1, 2 * other, 2 * other + 1)
    return lambda logits: loss(logits.flatten(0, 1), indices_tuple=pairs)


def triplet_margin(z: Tensor, size: int) -> Loss:
    """pytorch-metric-learning: triplet margin loss, of the triplets with a clear answer."""
    from pytorch_metric_learning.losses import TripletMarginLoss

    loss, first = TripletMarginLoss(), 3 * (z == 1).nonzero().flatten()
    triplets = (first, first + 1, first + 2)
    return lambda logits: loss(logits.flatten(0, 1), indices_tuple=triplets)


def fit_dllp(X: NDArray[Any], ids: NDArray[Any], counts: NDArray[Any], X_test: NDArray[Any]) -> NDArray[Any]:
    """llp-learn: DLLP with a network of one layer."""
    from llp_learn.dllp import DLLP

    clf = DLLP(lr=1e-3, n_epochs=200, model_type="simple-mlp", hidden_layer_sizes=(300,), n_jobs=0, random_state=0)
    clf.fit(X.astype(np.float32), ids, (counts / counts.sum(1, keepdims=True)).astype(np.float32))
    return clf.predict(X_test.astype(np.float32))


def fit_itml(X: NDArray[Any], pairs: NDArray[Any], same: NDArray[Any], X_test: NDArray[Any], k: int) -> NDArray[Any]:
    """metric-learn: a Mahalanobis distance by ITML, then k-means of the rows under it."""
    from metric_learn import ITML
    from sklearn.cluster import KMeans

    metric = ITML(preprocessor=X, prior="identity", max_iter=100, random_state=0).fit(pairs, 2 * same - 1)
    return KMeans(k, n_init=10, random_state=0).fit(metric.transform(X)).predict(metric.transform(X_test))
