"""Save and load fitted classifiers: a JSON file that is validated by a schema, and a file of safetensors.

No part of a saved classifier is code, whoever has written it. Each kind of model knows its own state; see
:class:`unbag.learners.Model`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

import unbag
from unbag._utils.checks import check_device
from unbag._utils.environment import versions
from unbag._utils.files import WEIGHTS, read_regular, remove_drafts, write_atomic
from unbag.aggregates.noisy import fits_rate
from unbag.aggregates.registry import describe_aggregate, find_aggregate
from unbag.data.features import Preparation
from unbag.data.labels import Categorical
from unbag.data.scaling import Scaling, scaling_shape
from unbag.diagnostics.shift import STATISTICS
from unbag.ensemble import Candidate, Mixture
from unbag.estimators import AggregateClassifier, CrossFitting, NetworkTraining
from unbag.estimators.bags import BagModel
from unbag.estimators.predictor import Predictor
from unbag.learners import MODELS
from unbag.persistence.schema import FORMAT, CandidateRecord, Content, MixtureRecord, Rates, validate_content
from unbag.persistence.strict_json import compute_digest, parse_json

HEAD = "model.json"
MAX_JSON_BYTES = 2**26
MAX_ARRAY_BYTES = 2**32
MAX_HEADER_BYTES = 2**22
"""Size of the list of arrays at most, which limits their number."""

LOCAL = ("device", "devices", "nodes", "checkpoint", "optimiser", "schedule", "stopping", "views")
"""Parameters that describe one machine or are code for training alone; they are not saved."""

Groups = dict[str, dict[str, Tensor]]
"""Arrays by owner and name; the file has them as ``owner:name``."""
Code = Mapping[str, Any]
"""Parameters that the caller of ``load`` passes because they are code."""


def save(classifier: Predictor, folder: str | Path, *, overwrite: bool = False) -> None:
    """Save a fitted classifier so that the folder holds the earlier or the new one at every moment.

    The file of arrays is named by its digest; the JSON file that refers to it is written last.

    Parameters
    ----------
    classifier
        A fitted classifier.
    folder
        Folder, which is made if it does not exist.
    overwrite
        Whether to replace a classifier that was saved in the folder before. Other files stay.
    """
    folder = Path(folder)
    if folder.exists() and not overwrite and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; choose another folder, or replace a model by overwrite=True")
    content, groups = _describe(classifier)
    arrays = safetensors.torch.save(
        {f"{owner}:{name}": tensor for owner, tensors in groups.items() for name, tensor in tensors.items()}
    )
    digest = hashlib.sha256(arrays).hexdigest()
    file = f"weights-{digest[:16]}.safetensors"
    content["arrays"] = {"file": file, "n_bytes": len(arrays), "sha256": digest}
    try:
        content = _replace_nan(json.loads(json.dumps(content, default=_to_plain)))
    except TypeError as error:
        raise TypeError(f"the classifier has a parameter that cannot be saved as JSON: {error}") from error
    head = json.dumps({"format": FORMAT, "sha256": compute_digest(content), "content": content}, indent=1).encode()
    try:
        _raise_if_larger(len(head), MAX_JSON_BYTES, HEAD)
        _raise_if_larger(len(arrays), MAX_ARRAY_BYTES, file)
        _validate_head(head)
    except ValueError as error:
        raise ValueError(f"the classifier is not saved, because it could not be loaded again: {error}") from error
    folder.mkdir(parents=True, exist_ok=True)
    earlier = _find_arrays(folder)
    for name, raw in ((file, arrays), (HEAD, head)):
        remove_drafts(folder / name)
        write_atomic(folder / name, raw)
    if earlier is not None and earlier.name != file:
        earlier.unlink(missing_ok=True)


def load(
    folder: str | Path, *, model: Any = None, aggregate: Any = None, loss: Any = None, device: str = "cpu"
) -> AggregateClassifier:
    """Load a saved classifier; damaged, altered and hostile files raise ``ValueError``.

    No code in the folder runs, whoever has written it, and only regular files are read. Their sizes are checked before
    they are read, and every entry before memory is taken for it. Whether the model was trained on what you think is
    not checked.

    Parameters
    ----------
    folder
        Folder in which the classifier was saved.
    model, aggregate, loss
        The parameter of the same name that the classifier was made with, if it is a module, a function or a kind of
        observation that is not registered: code is not saved.
    device
        Device on which to predict.

    Examples
    --------
    >>> import tempfile
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> clf = unbag.AggregateClassifier(model="linear", random_state=0).fit(X, X[:, 0] > 0)
    >>> folder = Path(tempfile.mkdtemp()) / "model"
    >>> clf.save(folder)
    >>> bool((load(folder).predict_proba(X) == clf.predict_proba(X)).all())
    True
    """
    path = Path(folder) / HEAD
    content = _read_head(path)
    code = {"model": model, "aggregate": aggregate, "loss": loss}
    _check_code(content.code, code)
    check_device(device)
    groups = _read_arrays(path.parent, content, code)
    try:
        classifier = _restore(content, groups, code, device)
        if unknown := sorted(owner for owner, tensors in groups.items() if tensors):
            raise ValueError(f"there are arrays that no model has: {unknown[0]}")
    except (ArithmeticError, KeyError, IndexError, RuntimeError, TypeError, ValueError) as error:
        message = f"a value is missing: {error}" if isinstance(error, KeyError) else str(error).partition("\n")[0]
        raise ValueError(f"{path} is no valid classifier: {ascii(message[:400])[1:-1]}; save it again") from error
    return classifier


# From a classifier to plain values and arrays


def _describe(classifier: Predictor) -> tuple[dict[str, Any], Groups]:
    parameters, code = _describe_parameters(classifier)
    groups = {"classifier": _describe_arrays(classifier)}
    bag_model, preparation = classifier.bag_model_, classifier.preparation_
    classes = classifier.classes_
    names = list(classes) if classes.dtype.kind in "mM" else classes.tolist()
    if wrong := [name for name in names if not isinstance(name, str | int | float)]:
        raise TypeError(f"the class {wrong[0]!r} cannot be saved as JSON; name classes by strings or numbers")
    accuracy = classifier.estimated_accuracy_
    content = {
        "versions": versions(),
        "code": code,
        "parameters": parameters,
        "classes": {"names": names, "dtype": classes.dtype.str if classes.dtype.kind in "biufU" else "O"},
        "class_order": classifier.class_order_,
        "n_features_in": classifier.n_features_in_,
        "input_shape": classifier.input_shape_,
        "feature_names": list(getattr(classifier, "feature_names_in_", [])) or None,
        "preparation": None if preparation is None else preparation.as_plain(),
        "symmetry": classifier.symmetry_,
        "error_rates": classifier.error_rates_,
        "diagnosis": [asdict(finding) for finding in classifier.diagnosis_],
        "estimated_accuracy": None if accuracy is None else asdict(accuracy),
        "candidates": classifier.candidates_,
        "history": classifier.history_,
        "mixture": _describe_mixture(classifier.mixture_, "mixture", groups),
        "bag_mixture": None if bag_model is None else _describe_mixture(bag_model.mixture, "bags", groups),
    }
    if bag_model is not None:
        groups["bags"] |= _copy({"shift": bag_model.scaling.shift, "factor": bag_model.scaling.factor})
    return content, groups


def _describe_parameters(classifier: Predictor) -> tuple[dict[str, Any], list[str]]:
    """Return the parameters as plain values, and the names of those that are code."""
    values = {name: value for name, value in classifier.get_params(deep=False).items() if name not in LOCAL}
    code = []
    aggregate = values["aggregate"]
    several = isinstance(aggregate, list | tuple)
    described = [a if isinstance(a, str) else describe_aggregate(a) for a in (aggregate if several else [aggregate])]
    values["aggregate"] = described if several else described[0]
    if None in described:
        values["aggregate"] = None
        code.append("aggregate")
    if not isinstance(values["model"], str):
        values["model"] = None
        code.append("model")
    for name in ("training", "validation"):
        if values[name] is not None:
            nested = values[name].get_params(deep=False)
            values[name] = {key: value for key, value in nested.items() if key not in LOCAL}
    if values["training"] is not None and not isinstance(values["training"]["loss"], str):
        values["training"]["loss"] = None
        code.append("loss")
    if not isinstance(values["random_state"], Integral):
        values["random_state"] = None  # a generator has advanced since
    for name in ("class_shares", "sampling"):
        values[name] = _describe_shares(values[name])
    if values["classes"] is not None and not isinstance(values["classes"], str):
        values["classes"] = np.asarray(values["classes"], dtype=object).tolist()
    return values, code


def _describe_shares(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {"pairs": [[key, share] for key, share in value.items()]}
    if isinstance(value, list | tuple | np.ndarray):
        return [_describe_shares(part) for part in value]
    return value


def _describe_arrays(classifier: Predictor) -> dict[str, Tensor]:
    """Return the arrays of a classifier that belong to no model."""
    arrays = {"shift": classifier.scaling_.shift, "factor": classifier.scaling_.factor}
    if classifier.feature_statistics_ is not None:
        arrays |= {name: torch.tensor(classifier.feature_statistics_[name], dtype=torch.float64) for name in STATISTICS}
    if (row_folds := getattr(classifier, "row_folds_", None)) is not None:
        arrays["row_folds"] = row_folds
    for number, folds in enumerate(getattr(classifier, "folds_", [])):
        arrays[f"folds.{number}"] = torch.as_tensor(folds, dtype=torch.int64)
    return _copy(arrays)


def _describe_mixture(mixture: Mixture, owner: str, groups: Groups) -> dict[str, Any]:
    """Return plain values, and add the arrays of the mixture and of its models."""
    groups[owner] = _copy({"weights": mixture.weights, "sharpness": mixture.sharpness})
    candidates = []
    for i, c in enumerate(mixture.candidates):
        models = []
        for j, model in enumerate(c.models):
            if type(model) is not MODELS.get(getattr(model, "kind", None)):
                raise TypeError(
                    "a classifier of scikit-learn cannot be saved without pickle, whose files can run code; networks "
                    "and model='trees' can be saved"
                    if c.name not in MODELS and not hasattr(model, "state")
                    else f"the models of {c.name} cannot be saved; register {type(model).__name__} by register_model"
                )
            values, tensors = model.state()
            groups[f"{owner}.{i}.{j}"] = _copy(tensors)
            models.append({"kind": model.kind, "values": values})
        record = {"name": c.name, "step": c.step, "n_steps": c.n_steps, "score": c.score, "seconds": c.seconds}
        candidates.append({**record, "models": models, "orders": [order.tolist() for order in c.orders]})
    return {"score": mixture.score, "candidates": candidates}


def _copy(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors, as safetensors accepts none that share memory."""
    return {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}


def _to_plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{value!r}, of type {type(value).__name__}")


def _replace_nan(value: Any) -> Any:
    """Return the same with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _replace_nan(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_replace_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# From files to validated content


def _read_head(path: Path) -> Content:
    try:
        raw = read_regular(path, MAX_JSON_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"there is no saved classifier in {path.parent}: {path.name} is missing") from None
    try:
        return _validate_head(raw)
    except ValueError as error:
        raise ValueError(f"{path} {_explain(error)}") from error


class _OtherVersion(ValueError):
    """The file was written by another version of the library."""


def _explain(error: ValueError) -> str:
    if isinstance(error, _OtherVersion):
        return str(error)
    return f"is damaged, or no saved classifier: {error}; save it again"


def _validate_head(raw: bytes) -> Content:
    head = parse_json(raw.decode("ascii"))
    if not isinstance(head, dict) or head.keys() != {"format", "sha256", "content"}:
        raise ValueError("it must be an object with format, sha256 and content")
    written = head["format"]
    if type(written) is not int or written < 1:
        raise ValueError("format must be a whole number")
    if written > FORMAT:
        raise _OtherVersion(
            f"was saved by a later version of unbag, in format {str(written)[:20]}, but this version, "
            f"{unbag.__version__}, reads format {FORMAT}; upgrade unbag"
        )
    if written < FORMAT:
        raise _OtherVersion(
            f"was saved by unbag 0.2 or earlier, in format {written}, which this version, {unbag.__version__}, does not "
            "read; fit and save the classifier again, or use unbag 0.2 (pip install 'unbag<0.3')"
        )
    if head["sha256"] != compute_digest(head["content"]):
        raise ValueError("it was altered after it was saved, because its content does not fit its checksum")
    content = json.dumps(head.pop("content"))
    return validate_content(content)


def _check_code(needed: Iterable[str], code: Code) -> None:
    for name, value in code.items():
        if name in needed and value is None:
            raise ValueError(
                f"the classifier was made with a {name} of your own, which is code and was not saved; pass it again: "
                f"unbag.load(folder, {name}=...)"
            )
        if name not in needed and value is not None:
            raise ValueError(f"the {name} was saved with the classifier; leave {name}= out")


def _read_arrays(folder: Path, content: Content, code: Code) -> Groups:
    """Return the arrays by owner; they are finite, but for buffers of modules of the caller."""
    path = folder / content.arrays.file
    try:
        raw = read_regular(path, min(content.arrays.n_bytes, MAX_ARRAY_BYTES))
    except FileNotFoundError:
        raise FileNotFoundError(f"the arrays of the classifier in {folder} are missing: {path.name}") from None
    if hashlib.sha256(raw).hexdigest() != content.arrays.sha256:
        raise ValueError(f"{path} is damaged, or was altered after it was saved; save the classifier again")
    if int.from_bytes(raw[:8], "little") > min(len(raw) - 8, MAX_HEADER_BYTES):
        raise ValueError(f"{path} is no file of safetensors: its header is too long; save the classifier again")
    try:
        tensors = safetensors.torch.load(raw)
    except Exception as error:  # the library has errors of many types for damaged files
        raise ValueError(f"{path} is no file of safetensors: {str(error)[:200]!a}; save it again") from error
    groups: Groups = defaultdict(dict)
    for key, tensor in tensors.items():
        owner, _, name = key.partition(":")
        may_be_infinite = code["model"] is not None and name.startswith("module.")
        if tensor.is_floating_point() and not may_be_infinite and not bool(tensor.double().isfinite().all()):
            raise ValueError(f"{path} has NaN or infinity in the array {key[:100]!a}; fit the classifier again")
        groups[owner][name] = tensor
    return groups


def _find_arrays(folder: Path) -> Path | None:
    """Return the arrays of the classifier that is to be replaced; refuse to replace any other file."""
    try:
        head = parse_json(read_regular(folder / HEAD, MAX_JSON_BYTES).decode("ascii"))
        content = head["content"]
        name = content["arrays"]["file"] if head["format"] == FORMAT else content["weights"][0]["file"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise FileExistsError(
            f"{folder / HEAD} is no saved classifier, or damaged, and is not replaced; choose another folder, or move "
            "the file elsewhere"
        ) from error
    return folder / name if isinstance(name, str) and WEIGHTS.fullmatch(name) else None


def _raise_if_larger(size: int, limit: int, name: str) -> None:
    if size > limit:
        raise ValueError(f"{name} would have {size:,} bytes, expected at most {limit:,}")


# From validated content to a classifier


def _restore(content: Content, groups: Groups, code: Code, device: str) -> AggregateClassifier:
    arrays, n_classes, shape = groups.pop("classifier"), len(content.classes.names), tuple(content.input_shape)
    classifier = AggregateClassifier(**_restore_parameters(content, code), device=device)
    classifier.classes_ = content.classes.restore()
    classifier.class_order_ = np.array(content.class_order)
    classifier.n_features_in_, classifier.input_shape_ = content.n_features_in, shape
    if content.feature_names is not None:
        classifier.feature_names_in_ = np.array(content.feature_names, dtype=object)
    prepared = content.preparation
    classifier.preparation_ = None if prepared is None else Preparation(tuple(prepared))
    classifier.symmetry_ = content.symmetry
    classifier.diagnosis_ = content.diagnosis
    classifier.estimated_accuracy_ = content.estimated_accuracy
    classifier.candidates_, classifier.history_ = content.candidates, content.history
    classifier.error_rates_ = content.error_rates
    kinds = classifier.aggregate if isinstance(classifier.aggregate, list) else [classifier.aggregate]
    classifier.fitted_aggregates_ = [
        kind.with_rate(rate) if rate is not None and fits_rate(kind) else kind
        for kind, rate in zip(map(find_aggregate, kinds), content.error_rates, strict=True)
    ]
    classifier.scaling_ = _restore_scaling(arrays, shape)
    classifier.feature_statistics_ = None
    if STATISTICS[0] in arrays:
        classifier.feature_statistics_ = {name: _pop(arrays, name, shape).tolist() for name in STATISTICS}
    if "row_folds" in arrays:
        classifier.row_folds_ = arrays.pop("row_folds").long()
    n_sets = sum(name.startswith("folds.") for name in arrays)
    classifier.folds_ = [arrays.pop(f"folds.{number}").tolist() for number in range(n_sets)]
    restore = _MixtureReader(groups, code["model"], torch.device(device))
    classifier.mixture_ = restore(content.mixture, "mixture", n_classes, shape)
    classifier.bag_model_ = None
    if content.bag_mixture is not None:
        scaling = _restore_scaling(groups["bags"], tuple(groups["bags"]["shift"].shape))
        mixture = restore(content.bag_mixture, "bags", 2, tuple(scaling.shift.shape))
        classifier.bag_model_ = BagModel(scaling, mixture)
    groups["classifier"] = arrays
    return classifier


def _restore_parameters(content: Content, code: Code) -> dict[str, Any]:
    record = content.parameters
    values = {name: getattr(record, name) for name in type(record).model_fields}
    several = isinstance(record.aggregate, list)
    kinds = [
        a if isinstance(a, str) or a is None else a.restore()
        for a in (record.aggregate if several else [record.aggregate])
    ]
    values["aggregate"] = kinds if several else kinds[0]
    for name in ("class_shares", "sampling"):
        values[name] = _restore_shares(values[name])
    if record.training is not None:
        values["training"] = NetworkTraining(**record.training.model_dump())
        if "loss" in content.code:
            values["training"].loss = code["loss"]
    if record.validation is not None:
        values["validation"] = CrossFitting(**record.validation.model_dump())
    return values | {name: code[name] for name in ("aggregate", "model") if name in content.code}


def _restore_shares(value: Any) -> Any:
    if isinstance(value, Rates):
        return dict(value.pairs)
    if isinstance(value, list):
        parts = [_restore_shares(part) for part in value]
        return tuple(parts) if isinstance(parts[0], list | dict) and isinstance(parts[-1], float) else parts
    return value


def _restore_scaling(arrays: dict[str, Tensor], shape: tuple[int, ...]) -> Scaling:
    expected = scaling_shape(shape)
    return Scaling(_pop(arrays, "shift", expected), _pop(arrays, "factor", expected))


def _pop(arrays: dict[str, Tensor], name: str, shape: tuple[int, ...]) -> Tensor:
    """Remove an array of floats of a shape and return it."""
    tensor = arrays.pop(name)
    if tuple(tensor.shape) != shape or not tensor.is_floating_point():
        raise ValueError(
            f"the array {name} must hold floats of shape {shape}, got {tensor.dtype} {tuple(tensor.shape)}"
        )
    return tensor


class _MixtureReader:
    """Restores mixtures from the arrays of a file, for a module of the caller and a device."""

    def __init__(self, groups: Groups, model: Any, device: torch.device) -> None:
        self.groups, self.model, self.device = groups, model, device

    def __call__(self, record: MixtureRecord, owner: str, n_outputs: int, shape: tuple[int, ...]) -> Mixture:
        """Return the mixture of a record, for rows of a shape."""
        labels, n = Categorical(n_outputs), len(record.candidates)
        row = torch.zeros(1, *shape)
        candidates = [self._candidate(c, f"{owner}.{i}", labels, row) for i, c in enumerate(record.candidates)]
        weights, sharpness = (_pop(self.groups[owner], name, (n,)) for name in ("weights", "sharpness"))
        if (
            bool((weights < 0).any())
            or not math.isclose(float(weights.sum()), 1, abs_tol=1e-3)
            or bool((sharpness <= 0).any())
        ):
            raise ValueError(f"the weights of {owner} must be positive and add up to 1, its sharpness positive")
        return Mixture(labels, candidates, weights, sharpness, torch.empty(0, n_outputs), _or_nan(record.score))

    def _candidate(self, record: CandidateRecord, owner: str, labels: Categorical, row: Tensor) -> Candidate:
        models = []
        for number, saved in enumerate(record.models):
            if saved.kind not in MODELS:
                raise ValueError(
                    f"the kind of model {saved.kind!r} is not registered; import the module that registers it, then load"
                )
            tensors = self.groups.pop(f"{owner}.{number}", {})
            model = MODELS[saved.kind].from_state(saved.values, tensors, self.model)
            outputs = model.outputs(row)  # values that do not fit together show here
            if outputs.shape != (1, labels.n_outputs) or bool(outputs.isnan().any()):
                raise ValueError(f"model {number} of {record.name} has no valid outputs for a row of zeros")
            if (module := getattr(model, "module", None)) is not None:
                module.to(self.device)
            models.append(model)
        orders = [np.array(order) for order in record.orders]
        none = torch.empty(0, labels.n_outputs)
        score = _or_nan(record.score)
        return Candidate(record.name, labels, models, orders, record.step, record.n_steps, score, none, record.seconds)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
