"""From a fitted classifier to plain values and arrays, and back; each kind of model knows its own state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import Tensor

from unbag._utils.environment import versions
from unbag.aggregates import Aggregate
from unbag.aggregates.noisy import fits_rate
from unbag.aggregates.registry import describe_aggregate, find_aggregate, is_registered, restore_aggregate
from unbag.data.features import Feature, Preparation
from unbag.data.labels import Categorical
from unbag.data.scaling import Scaling, scaling_shape
from unbag.diagnostics.shift import STATISTICS
from unbag.ensemble import Candidate, Mixture
from unbag.estimators import AggregateClassifier, CrossFitting, NetworkTraining
from unbag.estimators.bags import BagModel
from unbag.estimators.predictor import Predictor
from unbag.learners import MODELS
from unbag.persistence import schema

LOCAL = ("device", "devices", "nodes", "checkpoint", "optimiser", "schedule", "stopping", "views")
"""Parameters that describe one machine, or are code that only training runs; they are not saved."""
COPIED = (
    *("n_features_in", "symmetry", "error_rates", "diagnosis", "estimated_accuracy", "estimated_performance"),
    *("candidates", "history"),
)
"""Attributes, without the underscore at their end, that the JSON file holds as they are."""
CANDIDATE = ("name", "step", "n_steps", "score", "seconds", "orders")
"""The same of a candidate of a mixture."""
OF_MIXTURE = ("weights", "fold_sharpness", "sharpness")
"""Arrays of a mixture, with an entry for each candidate."""
FEATURES = TypeAdapter(tuple[Feature, ...])
"""Writes columns without the entries that are usual, as there may be hundreds of thousands of columns."""
SETTINGS = {cls.__name__: cls for cls in (NetworkTraining, CrossFitting)}

Arrays = dict[str, dict[str, Tensor]]
"""Tensors by owner and name; the owners are ``"classifier"``, mixtures, and the models of their candidates."""
Code = Mapping[str, Any]
"""What the caller of ``load`` passes in place of the parameters ``aggregate``, ``model`` and ``loss``, or None."""


class CodeError(ValueError):
    """Code that ``load`` needs was not passed, or code that it does not need was passed."""


def describe(classifier: Predictor) -> tuple[dict[str, Any], Arrays, Code]:
    """Return what the JSON file holds besides the name of the other file; the arrays; the parameters that are code."""
    code: dict[str, Any] = dict.fromkeys(("aggregate", "model", "loss"))

    def is_code(name: str, value: Any) -> bool:
        if name == "aggregate":
            kinds = value if isinstance(value, list | tuple) else [value]
            return not all(isinstance(kind, str) or describe_aggregate(kind) for kind in kinds)
        return name in code and not isinstance(value, str | None)

    def encode(name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray | np.generic):
            value = value.tolist()
        if is_code(name, value):
            code[name] = value
            return {"code": name}
        if type(value) in SETTINGS.values():
            return {"kind": type(value).__name__, "arguments": encode_all(value)}
        if isinstance(value, Mapping):
            return {"pairs": [(key, encode(name, v)) for key, v in value.items()]}
        if isinstance(value, list | tuple):
            return [encode(name, part) for part in value]
        return describe_aggregate(value) if isinstance(value, Aggregate) else value

    def encode_all(owner: Any) -> dict[str, Any]:
        values = {n: v for n, v in owner.get_params(deep=False).items() if n not in LOCAL}
        if not isinstance(values.get("random_state"), int | np.integer | None):
            values["random_state"] = None  # a generator has advanced since
        return {n: encode(n, v) for n, v in values.items()}

    classes, bags, preparation = classifier.classes_, classifier.bag_model_, classifier.preparation_
    names = list(classes) if classes.dtype.kind in "mM" else classes.tolist()
    if wrong := [name for name in names if not isinstance(name, str | int | float)]:
        raise TypeError(f"the class {wrong[0]!r} cannot be saved as JSON; name classes by strings or numbers")
    fitted = {"shift": classifier.scaling_.shift, "factor": classifier.scaling_.factor}
    fitted |= {n: torch.tensor(v, dtype=torch.float64) for n, v in (classifier.feature_statistics_ or {}).items()}
    for number, (folds, of_members) in enumerate(zip(classifier.folds_, classifier.member_folds_, strict=True)):
        fitted |= {f"folds.{number}": torch.as_tensor(folds).long(), f"member_folds.{number}": of_members}
    arrays: Arrays = {"classifier": fitted}
    content = {
        **{name: getattr(classifier, f"{name}_") for name in COPIED},
        "versions": versions(),
        "parameters": encode_all(classifier),
        "classes": {"names": names, "dtype": classes.dtype.str if classes.dtype.kind in "biufU" else "O"},
        "class_order": classifier.class_order_,
        "input_shape": classifier.input_shape_,
        "feature_names": getattr(classifier, "feature_names_in_", None),
        "features": None if preparation is None else FEATURES.dump_python(preparation.features, exclude_defaults=True),
        "mixture": _describe_mixture(classifier.mixture_, "mixture", arrays),
        "bag_mixture": None if bags is None else _describe_mixture(bags.mixture, "bags", arrays),
    }
    if bags is not None:
        arrays["bags"] |= {"shift": bags.scaling.shift, "factor": bags.scaling.factor}
    return content, arrays, code


def _describe_mixture(mixture: Mixture, owner: str, arrays: Arrays) -> dict[str, Any]:
    """Return plain values, and add the arrays of the mixture and of its models."""
    arrays[owner] = {name: getattr(mixture, name) for name in OF_MIXTURE}
    candidates = []
    for i, c in enumerate(mixture.candidates):
        models = []
        for j, model in enumerate(c.models):
            if MODELS.get(getattr(model, "kind", "")) is not type(model):
                raise TypeError(
                    f"the models of {c.name!r} cannot be saved, because {type(model).__name__} is not registered; "
                    "decorate the class by unbag.learners.register_model"
                )
            values, arrays[f"{owner}.{i}.{j}"] = model.state()
            models.append({"kind": model.kind, "values": values})
        candidates.append({**{name: getattr(c, name) for name in CANDIDATE}, "models": models})
    return {"score": mixture.score, "candidates": candidates}


def restore_parameters(content: schema.Content, code: Code, device: str) -> AggregateClassifier:
    """Return an unfitted classifier with the parameters that were saved and the code that was passed."""
    used = set[str]()

    def take(name: str, reason: str) -> Any:
        used.add(name)
        if code[name] is None:
            raise CodeError(
                f"the classifier was fitted with the {name} {reason} pass it: unbag.load(folder, {name}=...)"
            )
        return code[name]

    def restore(value: Any) -> Any:
        if isinstance(value, schema.CodeValue):
            return take(value.code, "of a caller, which is code and was not saved;")
        if isinstance(value, schema.ObjectValue):
            if value.kind not in SETTINGS and not is_registered(value.kind):
                return take("aggregate", f"{value.kind!r}, which is not registered; import the module that does it, or")
            make = SETTINGS.get(value.kind) or partial(restore_aggregate, value.kind)
            return make(**{name: restore(v) for name, v in value.arguments.items()})
        if isinstance(value, schema.DictValue):
            return {key: restore(v) for key, v in value.pairs}
        return [restore(part) for part in value] if isinstance(value, list) else value

    model = content.parameters.get("model")
    if not isinstance(model, str | schema.CodeValue):
        raise ValueError(f"parameters.model must be the name of a model, got {model!r:.100}")
    classifier = AggregateClassifier(**{name: restore(v) for name, v in content.parameters.items()}, device=device)
    for name in {name for name, value in code.items() if value is not None} - used:
        raise CodeError(f"the {name} was saved with the classifier; leave {name}= out")
    return classifier


def restore_fit(classifier: AggregateClassifier, content: schema.Content, arrays: Arrays, model: Any) -> None:
    """Set what ``fit`` had found, and remove the arrays that were used; ``model`` is a module of the caller or None."""
    fitted, shape, n_classes = arrays["classifier"], tuple(content.input_shape), len(content.classes.names)
    for name in COPIED:
        setattr(classifier, f"{name}_", getattr(content, name))
    classifier.classes_, classifier.class_order_ = content.classes.restore(), np.array(content.class_order)
    classifier.input_shape_ = shape
    if content.feature_names is not None:
        classifier.feature_names_in_ = np.array(content.feature_names, dtype=object)
    classifier.preparation_ = None if content.features is None else Preparation(tuple(content.features))
    kinds = classifier.aggregate if isinstance(classifier.aggregate, list) else [classifier.aggregate]
    classifier.fitted_aggregates_ = [
        kind.with_rate(rate) if rate is not None and fits_rate(kind) else kind
        for kind, rate in zip(map(find_aggregate, kinds), content.error_rates, strict=True)
    ]
    classifier.scaling_ = _restore_scaling(fitted, shape)
    statistics = {name: _pop_floats(fitted, name, shape).tolist() for name in STATISTICS if name in fitted}
    classifier.feature_statistics_ = statistics or None
    n_sets = sum(name.startswith("folds.") for name in fitted)
    classifier.folds_ = [fitted.pop(f"folds.{number}").tolist() for number in range(n_sets)]
    classifier.member_folds_ = [fitted.pop(f"member_folds.{number}") for number in range(n_sets)]
    restore = partial(_restore_mixture, arrays=arrays, model=model, device=classifier.device)
    classifier.mixture_, classifier.bag_model_ = restore(content.mixture, "mixture", shape, n_classes), None
    if content.bag_mixture is not None:
        of_bags = tuple(arrays["bags"]["shift"].shape)
        scaling = _restore_scaling(arrays["bags"], of_bags)
        classifier.bag_model_ = BagModel(scaling, restore(content.bag_mixture, "bags", of_bags, 2))


def _restore_mixture(
    saved: schema.SavedMixture,
    owner: str,
    shape: tuple[int, ...],
    n_outputs: int,
    *,
    arrays: Arrays,
    model: Any,
    device: str,
) -> Mixture:
    labels, unknown, row = Categorical(n_outputs), torch.empty(0, n_outputs), torch.zeros(1, *shape)
    candidates = []
    for i, c in enumerate(saved.candidates):
        models = []
        for j, of_fold in enumerate(c.models):
            if of_fold.kind not in MODELS:
                raise ValueError(f"models of kind {of_fold.kind!r} are not registered; import the module that does it")
            restored = MODELS[of_fold.kind].from_state(of_fold.values, arrays.pop(f"{owner}.{i}.{j}", {}), model)
            outputs = restored.outputs(row)  # what does not fit together shows here
            if tuple(outputs.shape) != (1, n_outputs) or bool(outputs.isnan().any()):
                raise ValueError(f"model {j} of {c.name!r} does not predict {n_outputs} numbers for a row of zeros")
            if hasattr(restored, "module"):
                restored.module.to(device)
            models.append(restored)
        orders, score = [np.array(order) for order in c.orders], math.nan if c.score is None else c.score
        candidates.append(Candidate(c.name, labels, models, orders, c.step, c.n_steps, score, unknown, c.seconds))
    if "sharpness" in arrays[owner]:  # models that were saved earlier have no others
        arrays[owner].setdefault("fold_sharpness", arrays[owner]["sharpness"])
    weights, by_fold, whole = (_pop_floats(arrays[owner], name, (len(candidates),)) for name in OF_MIXTURE)
    if (
        float(weights.min()) < 0
        or abs(float(weights.sum()) - 1) > 1e-3
        or float(torch.cat([by_fold, whole]).min()) <= 0
    ):
        raise ValueError(f"weights of {owner} must add up to 1, and its inverse temperatures must be positive")
    score = math.nan if saved.score is None else saved.score
    return Mixture(labels, candidates, weights, by_fold, whole, unknown, score)


def _restore_scaling(arrays: dict[str, Tensor], shape: tuple[int, ...]) -> Scaling:
    expected = scaling_shape(shape)
    return Scaling(_pop_floats(arrays, "shift", expected), _pop_floats(arrays, "factor", expected))


def _pop_floats(arrays: dict[str, Tensor], name: str, shape: tuple[int, ...]) -> Tensor:
    tensor = arrays.pop(name)
    if tuple(tensor.shape) != shape or not tensor.is_floating_point():
        raise ValueError(
            f"the array {name} must have floats of shape {shape}, got {tensor.dtype} {tuple(tensor.shape)}"
        )
    return tensor
