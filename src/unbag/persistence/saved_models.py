"""Save and load fitted classifiers: a JSON file that a schema validates, and a file of safetensors.

No part of a saved classifier is code. Each kind of model knows its own state.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError, to_json
from torch import Tensor

from unbag._utils.checks import check_device
from unbag._utils.environment import versions
from unbag._utils.files import WEIGHTS, read_regular, remove_drafts, write_atomic
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
from unbag.persistence.strict_json import compute_digest, parse_object

HEAD = "model.json"
MAX_JSON_BYTES, MAX_ARRAY_BYTES = 2**26, 2**32
MAX_HEADER_BYTES = 2**22
"""Maximum size of the list of arrays in their file, which bounds their number."""

LOCAL = ("device", "devices", "nodes", "checkpoint", "optimiser", "schedule", "stopping", "views")
"""Parameters that describe one machine, or are code that only training runs; they are not saved."""
FEATURES = TypeAdapter(tuple[Feature, ...])
"""Writes columns without the entries that are usual, as there may be hundreds of thousands of columns."""
SETTINGS = {cls.__name__: cls for cls in (NetworkTraining, CrossFitting)}
OF_MIXTURE = ("weights", "fold_sharpness", "sharpness")
"""Arrays of a mixture, with an entry for each candidate."""

Arrays = dict[str, dict[str, Tensor]]
"""Tensors by owner and name; the owners are ``"classifier"``, mixtures, and the models of their candidates."""
Code = dict[str, Any]
"""What the caller of ``load`` passes in place of the parameters ``aggregate``, ``model`` and ``loss``, or None."""


class CodeError(ValueError):
    """Code that ``load`` needs was not passed, or code that it does not need was passed."""


def save(classifier: Predictor, folder: str | Path, *, overwrite: bool = False) -> None:
    """Save a fitted classifier so that the folder holds the earlier or the new one at every moment.

    The file of arrays is named by its digest; the JSON file that names it is written last. ``overwrite`` replaces an
    earlier classifier in the folder; other files stay.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; name a folder for the classifier")
    if folder.exists() and not overwrite and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; choose another folder, or replace its model by overwrite=True")
    code: Code = dict.fromkeys(("aggregate", "model", "loss"))
    content, arrays = _describe(classifier, code)
    # safetensors accepts no tensors that share memory.
    flat = {f"{owner}:{name}": tensor for owner, tensors in arrays.items() for name, tensor in tensors.items()}
    raw = safetensors.torch.save({key: t.detach().cpu().contiguous().clone() for key, t in flat.items()})
    digest = hashlib.sha256(raw).hexdigest()
    file = f"weights-{digest[:16]}.safetensors"
    content["arrays"] = {"file": file, "n_bytes": len(raw), "sha256": digest}
    try:
        plain = json.loads(to_json(content, inf_nan_mode="null", fallback=_to_plain))
    except PydanticSerializationError as error:
        raise TypeError(f"the classifier has a parameter that cannot be saved as JSON: {error}") from None
    head = json.dumps({"format": schema.FORMAT, "sha256": compute_digest(plain), "content": plain}, indent=1).encode()
    try:
        for name, part, limit in ((HEAD, head, MAX_JSON_BYTES), (file, raw, MAX_ARRAY_BYTES)):
            if len(part) > limit:
                raise ValueError(f"{name} would have {len(part):,} bytes, expected at most {limit:,}")
        _restore(_parse_head(head), raw, code, "cpu")
    except ValueError as error:
        raise ValueError(f"the classifier is not saved, because it could not be loaded again: {error}") from error
    folder.mkdir(parents=True, exist_ok=True)
    _raise_if_not_replaceable(folder / HEAD)
    for name, part in ((file, raw), (HEAD, head)):
        remove_drafts(folder / name)
        write_atomic(folder / name, part)
    for path in folder.iterdir():
        if WEIGHTS.fullmatch(path.name) and path.name != file:
            path.unlink(missing_ok=True)


def load(
    folder: str | Path, *, model: Any = None, aggregate: Any = None, loss: Any = None, device: str = "cpu"
) -> AggregateClassifier:
    """Load a saved classifier; damaged, altered and hostile files raise ``ValueError``.

    No code in the folder runs, and only regular files are read. Their sizes are checked before
    they are read, and every entry before memory is taken for it. Whether the model can be trusted is not checked.

    Parameters
    ----------
    folder
        Folder in which the classifier was saved.
    model, aggregate, loss
        The argument of the same name with which the classifier was made, if it is a module, a function or a kind of
        observation that is not registered: code is not saved.
    device
        Device on which to predict.

    Examples
    --------
    >>> import tempfile
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> clf = AggregateClassifier(model="linear", random_state=0).fit(X, X[:, 0] > 0)
    >>> folder = Path(tempfile.mkdtemp()) / "model"
    >>> clf.save(folder)
    >>> bool((load(folder).predict_proba(X) == clf.predict_proba(X)).all())
    True
    """
    path = Path(folder) / HEAD
    try:
        content = _parse_head(read_regular(path, MAX_JSON_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"there is no saved classifier in {path.parent}: {path.name} is missing") from None
    except ValueError as error:
        raise ValueError(f"{path} is no classifier that this version of unbag can load: {error}") from error
    check_device(device)
    arrays = path.with_name(content.arrays.file)
    try:
        raw = read_regular(arrays, min(content.arrays.n_bytes, MAX_ARRAY_BYTES))
        return _restore(content, raw, {"model": model, "aggregate": aggregate, "loss": loss}, device)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} needs {arrays.name}, which is missing in the same folder") from None
    except CodeError as error:
        raise CodeError(f"{path}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}; save the classifier again") from error


# Writing


def _describe(classifier: Predictor, code: Code) -> tuple[dict[str, Any], Arrays]:
    """Return the JSON content without the name of the other file, and the arrays; add parameters that are code."""

    def is_code(name: str, value: Any) -> bool:
        if name == "aggregate":
            kinds = value if isinstance(value, list | tuple) else [value]
            return not all(isinstance(kind, str) or describe_aggregate(kind) for kind in kinds)
        return name in code and not isinstance(value, str | None)

    def encode(name: str, value: Any) -> Any:
        if is_code(name, value):
            code[name] = value
            return {"code": name}
        if name == "random_state" and not isinstance(value, int | np.integer | None):
            return None  # a generator has advanced since
        if type(value) in SETTINGS.values():
            return {"kind": type(value).__name__, "arguments": encode_parameters(value)}
        if isinstance(value, Mapping):
            return {"pairs": [(key, encode(name, v)) for key, v in value.items()]}
        if isinstance(value, list | tuple):
            return [encode(name, part) for part in value]
        return describe_aggregate(value) if isinstance(value, Aggregate) else value

    def encode_parameters(owner: Any) -> dict[str, Any]:
        return {n: encode(n, v) for n, v in owner.get_params(deep=False).items() if n not in LOCAL}

    def describe_mixture(mixture: Mixture, owner: str) -> dict[str, Any]:
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
            fields = {name: getattr(c, name) for name in schema.SavedCandidate.model_fields}
            candidates.append({**fields, "models": models})
        return {"score": mixture.score, "candidates": candidates}

    fitted = {"shift": classifier.scaling_.shift, "factor": classifier.scaling_.factor}
    fitted |= {n: torch.tensor(v, dtype=torch.float64) for n, v in (classifier.feature_statistics_ or {}).items()}
    for number, (folds, of_members) in enumerate(zip(classifier.folds_, classifier.member_folds_, strict=True)):
        fitted |= {f"folds.{number}": torch.as_tensor(folds).long(), f"member_folds.{number}": of_members}
    arrays: Arrays = {"classifier": fitted}
    bags, preparation = classifier.bag_model_, classifier.preparation_
    content = {
        **{name: getattr(classifier, f"{name}_") for name in schema.Attributes.model_fields},
        "versions": versions(),
        "parameters": encode_parameters(classifier),
        "classes": schema.Classes.describe(classifier.classes_),
        "class_order": classifier.class_order_,
        "input_shape": classifier.input_shape_,
        "feature_names": getattr(classifier, "feature_names_in_", None),
        "features": None if preparation is None else FEATURES.dump_python(preparation.features, exclude_defaults=True),
        "mixture": describe_mixture(classifier.mixture_, "mixture"),
        "bag_mixture": None if bags is None else describe_mixture(bags.mixture, "bags"),
    }
    if bags is not None:
        arrays["bags"] |= {"shift": bags.scaling.shift, "factor": bags.scaling.factor}
    return content, arrays


def _to_plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{value!r} of {type(value).__name__}")


def _raise_if_not_replaceable(path: Path) -> None:
    """Raise an error for a file that is no saved classifier, of this or an earlier version."""
    with suppress(ValueError, FileNotFoundError):
        if {"format", "sha256", "content"} <= {*parse_object(read_regular(path, MAX_JSON_BYTES))}:
            return
    if path.exists():
        raise FileExistsError(
            f"{path} is no saved classifier, or damaged, and is not replaced; choose another folder, or move the file "
            "elsewhere"
        )


# Reading


def _parse_head(raw: bytes) -> schema.Content:
    head = parse_object(raw)
    if head.keys() != {"format", "sha256", "content"} or type(head["format"]) is not int:
        raise ValueError("it must have format, sha256 and content; save the classifier again")
    if head["format"] > schema.FORMAT:
        raise ValueError(f"it has format {head['format']!r:.20}, which a later version has saved; upgrade unbag")
    if head["format"] < schema.FORMAT:
        raise ValueError(
            "it was saved by unbag 0.2.0 or earlier; fit the classifier again and save it, or load it by unbag 0.2"
        )
    if head["sha256"] != compute_digest(head["content"]):
        raise ValueError("it was altered after it was saved, as its checksum shows; save the classifier again")
    head.clear()  # of many values, one copy fits into memory
    return schema.parse(raw)


def _restore(content: schema.Content, raw: bytes, code: Code, device: str) -> AggregateClassifier:
    """Return the classifier of validated content and of the file of arrays."""
    try:
        classifier = _restore_parameters(content, code, device)
        arrays = _parse_arrays(raw, content.arrays, may_be_infinite=code["model"] is not None)
        _restore_fit(classifier, content, arrays, code["model"])
        if left := sorted(f"{owner}:{name}" for owner, group in arrays.items() for name in group):
            raise ValueError(f"no model has the array {left[0]}")
    except CodeError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        message = f"{type(error).__name__} {error}" if isinstance(error, LookupError) else str(error).partition("\n")[0]
        raise ValueError(ascii(message[:400])[1:-1]) from error
    return classifier


def _restore_parameters(content: schema.Content, code: Code, device: str) -> AggregateClassifier:
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


def _parse_arrays(raw: bytes, file: schema.ArrayFile, *, may_be_infinite: bool) -> Arrays:
    """Return finite tensors by owner and name; buffers of a module of the caller may be infinite."""
    if hashlib.sha256(raw).hexdigest() != file.sha256:
        raise ValueError(f"{file.file} was altered after it was saved, as its checksum shows")
    if int.from_bytes(raw[:8], "little") > MAX_HEADER_BYTES:
        raise ValueError(f"the header of {file.file} has more than {MAX_HEADER_BYTES:,} bytes")
    try:
        tensors = safetensors.torch.load(raw)
    except Exception as error:  # the library raises errors of many types for damaged files
        raise ValueError(f"{file.file} is no file of safetensors: {error}") from error
    arrays: Arrays = {}
    for key, tensor in tensors.items():
        owner, _, name = key.partition(":")
        checked = tensor.is_floating_point() and not (may_be_infinite and name.startswith("module."))
        if checked and not bool(tensor.double().isfinite().all()):
            raise ValueError(f"the array {key[:100]} has NaN or infinity")
        arrays.setdefault(owner, {})[name] = tensor
    return arrays


def _restore_fit(classifier: AggregateClassifier, content: schema.Content, arrays: Arrays, model: Any) -> None:
    """Set what ``fit`` had found, and remove the arrays that were used; ``model`` is a module of the caller or None."""

    def restore_mixture(saved: schema.SavedMixture, owner: str, shape: tuple[int, ...], n_outputs: int) -> Mixture:
        labels, unknown, row = Categorical(n_outputs), torch.empty(0, n_outputs), torch.zeros(1, *shape)
        candidates = []
        for i, c in enumerate(saved.candidates):
            models = []
            for j, of_fold in enumerate(c.models):
                if of_fold.kind not in MODELS:
                    raise ValueError(
                        f"models of kind {of_fold.kind!r} are not registered; import the module that does it"
                    )
                restored = MODELS[of_fold.kind].from_state(of_fold.values, arrays.pop(f"{owner}.{i}.{j}", {}), model)
                outputs = restored.outputs(row)  # what does not fit together shows here
                if tuple(outputs.shape) != (1, n_outputs) or bool(outputs.isnan().any()):
                    raise ValueError(f"model {j} of {c.name!r} does not predict {n_outputs} numbers for a row of zeros")
                if hasattr(restored, "module"):
                    restored.module.to(classifier.device)
                models.append(restored)
            orders, score = [np.array(order) for order in c.orders], math.nan if c.score is None else c.score
            candidates.append(Candidate(c.name, labels, models, orders, c.step, c.n_steps, score, unknown, c.seconds))
        own = arrays[owner]
        if "sharpness" in own:  # models that were saved earlier have no others
            own.setdefault("fold_sharpness", own["sharpness"])
        weights, by_fold, whole = (_pop_floats(own, name, (len(candidates),)) for name in OF_MIXTURE)
        if min(weights) < 0 or abs(float(weights.sum()) - 1) > 1e-3 or min(*by_fold, *whole) <= 0:
            raise ValueError(f"weights of {owner} must add up to 1, and its inverse temperatures must be positive")
        return Mixture(
            labels, candidates, weights, by_fold, whole, unknown, math.nan if saved.score is None else saved.score
        )

    fitted, shape = arrays["classifier"], tuple(content.input_shape)
    for name in schema.Attributes.model_fields:
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
    classifier.mixture_ = restore_mixture(content.mixture, "mixture", shape, len(content.classes.names))
    classifier.bag_model_ = None
    if content.bag_mixture is not None:
        of_bags = tuple(arrays["bags"]["shift"].shape)
        scaling = _restore_scaling(arrays["bags"], of_bags)
        classifier.bag_model_ = BagModel(scaling, restore_mixture(content.bag_mixture, "bags", of_bags, 2))


def _restore_scaling(arrays: dict[str, Tensor], shape: tuple[int, ...]) -> Scaling:
    return Scaling(*(_pop_floats(arrays, name, scaling_shape(shape)) for name in ("shift", "factor")))


def _pop_floats(arrays: dict[str, Tensor], name: str, shape: tuple[int, ...]) -> Tensor:
    tensor = arrays.pop(name)
    if tuple(tensor.shape) != shape or not tensor.is_floating_point():
        raise ValueError(
            f"the array {name} must have floats of shape {shape}, got {tensor.dtype} {tuple(tensor.shape)}"
        )
    return tensor
