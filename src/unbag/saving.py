"""Saved classifiers: a folder with one JSON file, one of safetensors or trees per model, and nothing that could run."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import reprlib
from collections.abc import Callable
from dataclasses import asdict
from itertools import groupby
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch

import unbag
from unbag._utils.checks import check_device
from unbag._utils.environment import versions
from unbag._utils.files import MAX_JSON_BYTES, WEIGHTS, read_regular, remove_drafts, write_atomic
from unbag._utils.findings import Finding
from unbag.aggregates import Aggregate
from unbag.aggregates.registry import SAVED
from unbag.data.features import Preparation
from unbag.estimator import AggregateClassifier
from unbag.families.choice import check_processor
from unbag.out_of_fold import Estimate
from unbag.plain_json import canonical_digest, parse_json
from unbag.predictor import Predictor
from unbag.saved_content import LOCAL, OWN, check_content, make_aggregates, read_classes
from unbag.saved_weights import read_models, weights_as_bytes

FORMAT = 5
HEAD = "model.json"

FITTED = (
    *("n_features_in_", "input_shape_", "scaling_", "symmetry_", "history_", "replicas_", "best_epoch_", "n_iter_"),
    *("held_out_", "model_weights_", "model_folds_", "folds_", "temperature_", "candidates_", "feature_statistics_"),
    *("model_temperatures_", "error_rates_"),
)
"""What fit has found out and JSON can hold as it is."""


def save(classifier: Predictor, folder: str | Path, *, overwrite: bool = False) -> None:
    """Save a fitted classifier so that the folder holds the old one or the new one at every moment.

    Weights are in files that are named by what they hold, one for each kind of model; the JSON file that refers to them
    is written last. What would not be loaded again is refused here. ``checkpoint`` and ``device`` are not saved: they
    name a place on one machine.

    Parameters
    ----------
    classifier
        A fitted classifier.
    folder
        Made if it does not exist; one that holds anything is left alone unless overwrite is true.
    overwrite
        Replace a classifier that was saved in the folder before. Other files in it stay.
    """
    folder = Path(folder)
    if folder.exists() and not overwrite and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; give another folder, or overwrite=True to replace what it holds")
    content, files = _pack(classifier)
    head = json.dumps({"format": FORMAT, "sha256": canonical_digest(content), "content": content}, indent=1)
    try:
        read, spare = parse_json(head)
        _check(read["content"], spare)
    except ValueError as error:
        raise ValueError(
            f"the classifier could not be loaded again, and is not saved: {error}; mend that with set_params, or cut "
            "history_ where there is too much of it"
        ) from error
    folder.mkdir(parents=True, exist_ok=True)
    old = _old_weights(folder)
    for name, raw in {**files, HEAD: head.encode()}.items():
        remove_drafts(folder / name)
        write_atomic(folder / name, raw)
    for path in old:
        if path.name not in files:
            path.unlink(missing_ok=True)


def load(
    folder: str | Path, *, model: Any = None, aggregate: Any = None, loss: Any = None, device: str = "cpu"
) -> AggregateClassifier:
    """Load a classifier that was saved; files that are truncated, altered or from a later version are refused.

    Nothing in a folder can run, whoever has written it, and nothing but regular files is read. Everything that they
    hold is checked before memory is taken for it: about three times the size of the files at most, and 128 MiB. No path
    and no device is taken from the folder: ``checkpoint`` is None, and so are the hooks of training. That the weights
    are those that somebody trained is for you to know.

    Parameters
    ----------
    folder
        Where it was saved.
    model, aggregate, loss
        What the classifier was made with, where that was a module or a function of your own: code is not saved.
    device
        Where to predict.

    Examples
    --------
    >>> import tempfile
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> clf = unbag.AggregateClassifier(model="mlp", epochs=2, random_state=0).fit(X, X[:, 0] > 0)
    >>> folder = Path(tempfile.mkdtemp()) / "model"
    >>> clf.save(folder)
    >>> bool((load(folder).predict_proba(X) == clf.predict_proba(X)).all())
    True
    """
    folder = Path(folder)
    content, spare = _read_head(folder / HEAD)
    own = {"model": model, "aggregate": aggregate, "loss": loss}
    classifier = _unpack(folder, content, spare, device, own)
    classifier.bag_model_, classifier.bag_weights_ = None, None
    if (bags := content["bags"]) is not None:
        classifier.bag_model_ = _unpack(folder, bags["content"], spare, device, {})
        classifier.bag_weights_ = bags["weights"]
    return classifier


def _unpack(folder: Path, content: dict[str, Any], spare: int, device: str, own: dict[str, Any]) -> AggregateClassifier:
    """Return the classifier that checked content describes, without its model of bags."""
    _check_own(content["own"], own)
    settings = {name: value for name, value in content["settings"].items() if name not in LOCAL}
    settings |= {name: own[name] for name in content["own"]}
    if "aggregate" in settings and "aggregate" not in content["own"]:
        settings["aggregate"] = make_aggregates(settings["aggregate"])
    check_device(device)
    check_processor(settings.get("model"), device)
    classifier = AggregateClassifier(**settings, device=device)
    _restore(classifier, content["fitted"])
    classifier.model_names_ = [one["model"] for one in content["weights"] for _ in range(one["n"])]
    classifier.models_ = read_models(folder, content["weights"], classifier, spare)
    return classifier


def _pack(classifier: Predictor) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return what the JSON file is to hold, and the files of weights by their names."""
    content, files = _describe(classifier), dict[str, bytes]()
    content["weights"] = []
    for name, of_name in groupby(zip(classifier.model_names_, classifier.models_, strict=True), lambda one: one[0]):
        models = [model for _, model in of_name]
        suffix, weights = weights_as_bytes(models)
        digest = hashlib.sha256(weights).hexdigest()
        files[file := f"weights-{digest[:16]}.{suffix}"] = weights
        content["weights"].append({"model": name, "n": len(models), "file": file, "sha256": digest})
    content["bags"] = None
    if classifier.bag_model_ is not None:
        packed, others = _pack(classifier.bag_model_)
        content["bags"] = {"weights": classifier.bag_weights_, "content": packed}
        files |= others
    return content, files


def _describe(classifier: Predictor) -> dict[str, Any]:
    """Return everything but the weights, as JSON can hold it."""
    settings = {name: value for name, value in classifier.get_params(deep=False).items() if name not in LOCAL}
    settings["aggregate"] = _map_sets(_describe_aggregate, settings["aggregate"])
    own = [name for name in OWN if not _is_saved(settings[name])]
    settings.update(dict.fromkeys(own))
    if not isinstance(settings["random_state"], Integral):
        settings["random_state"] = None  # a generator has moved on
    fitted = {name: getattr(classifier, name) for name in FITTED}
    classes = classifier.classes_
    # Dates of NumPy look like numbers to tolist, or like objects.
    names = list(classes) if classes.dtype.kind in "mM" else classes.tolist()
    if other := [name for name in names if not isinstance(name, str | int | float)]:
        raise TypeError(f"the class {other[0]!r} cannot be saved as JSON; call classes by strings or numbers")
    dtype = classes.dtype.str if classes.dtype.kind in "biufU" else "O"
    fitted["classes"] = {"names": names, "dtype": dtype}
    fitted["feature_names"] = list(getattr(classifier, "feature_names_in_", [])) or None
    prepared = classifier.preparation_
    fitted["preparation"] = None if prepared is None else prepared.as_plain()
    fitted["orders"] = [order.tolist() for order in classifier.orders_]
    fitted["diagnosis"] = [asdict(finding) for finding in classifier.diagnosis_]
    accuracy = classifier.estimated_accuracy_
    fitted["estimated_accuracy"] = None if accuracy is None else asdict(accuracy)
    content = {
        "versions": versions(),
        "settings": settings,
        "own": own,
        "fitted": fitted,
    }
    try:
        return _without_nan(json.loads(json.dumps(content, default=_plain)))
    except TypeError as error:
        raise TypeError(f"this classifier holds something that cannot be saved as JSON: {error}") from error


def _restore(classifier: AggregateClassifier, fitted: dict[str, Any]) -> None:
    for name in FITTED:
        setattr(classifier, name, fitted[name])
    classifier.input_shape_ = tuple(fitted["input_shape_"])
    classifier.classes_ = read_classes(fitted["classes"])
    if fitted["feature_names"] is not None:
        classifier.feature_names_in_ = np.array(fitted["feature_names"], dtype=object)
    prepared = fitted["preparation"]
    classifier.preparation_ = None if prepared is None else Preparation.from_plain(prepared)
    classifier.orders_ = [np.array(order) for order in fitted["orders"]]
    classifier.diagnosis_ = [Finding(**finding) for finding in fitted["diagnosis"]]
    accuracy = fitted["estimated_accuracy"]
    classifier.estimated_accuracy_ = None if accuracy is None else Estimate(**accuracy)


def _read_head(path: Path) -> tuple[dict[str, Any], int]:
    """Return the content of the JSON file, and how many bytes it leaves, or say why it is not to be trusted."""
    try:
        raw = read_regular(path, MAX_JSON_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"there is no saved classifier in {path.parent}: {path.name} is missing") from None
    try:
        text = raw.decode("ascii")
        del raw
        head, spare = parse_json(text)
        if not isinstance(head, dict) or not {"format", "sha256"} <= {*head}:
            raise ValueError("it must be a table with format, sha256 and content")
        written = head["format"]
        content: Any = head.get("content")
        digest = canonical_digest(content)
    except ValueError as error:
        raise ValueError(f"{path} is truncated, or no saved classifier: {error}; save it again") from error
    del text
    if isinstance(written, int) and not isinstance(written, bool) and written != FORMAT:
        which, advice = (
            ("a later", "upgrade unbag") if written > FORMAT else ("an earlier", "fit it again, and save it")
        )
        raise ValueError(
            f"{path} was written by {which} version of unbag, in format {reprlib.repr(written)}; this one, "
            f"{unbag.__version__}, reads format {FORMAT}: {advice}"
        )
    if written != FORMAT or head["sha256"] != digest:
        raise ValueError(f"{path} was altered after it was saved: its content does not fit its checksum")
    try:
        return content, _check(content, spare)
    except ValueError as error:
        raise ValueError(
            f"{path} is not as this version of unbag writes it: {str(error)[:400]}; save it again"
        ) from error


def _check(content: Any, spare: int) -> int:
    return check_content(content, AggregateClassifier().get_params(deep=False), spare)


def _old_weights(folder: Path) -> list[Path]:
    """Return the files of the classifier that is to be replaced, if there is one; refuse to replace anything else."""
    try:
        content = _read_head(folder / HEAD)[0]
        bags = [] if content["bags"] is None else content["bags"]["content"]["weights"]
        names = [one["file"] for one in (*content["weights"], *bags)]
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise FileExistsError(
            f"{folder / HEAD} is no classifier that this version of unbag has saved, or damaged, and is not replaced; "
            "give another folder, or move the file elsewhere"
        ) from error
    # Another name is not one that save has given.
    return [folder / name for name in names if WEIGHTS.fullmatch(name)]


def _check_own(needed: list[str], given: dict[str, Any]) -> None:
    for name, value in given.items():
        if name in needed and value is None:
            raise ValueError(
                f"the classifier was made with a {name} of your own, which is code and was not saved; "
                f"hand it in again: unbag.load(folder, {name}=...)"
            )
        if name not in needed and value is not None:
            raise ValueError(f"the {name} was saved with the classifier; leave {name}= out")


def _describe_aggregate(aggregate: Any) -> Any:
    """Return a name, or a name and settings, for what this package has; anything else as it is."""
    if type(aggregate) not in SAVED:
        return aggregate
    settings = {name: getattr(aggregate, name) for name in inspect.signature(type(aggregate)).parameters}
    if "aggregate" in settings:  # one that others are observed through
        settings["aggregate"] = _describe_aggregate(settings["aggregate"])
        if isinstance(settings["aggregate"], Aggregate):
            return aggregate
    return {"name": type(aggregate).__name__, "settings": settings}


def _map_sets(function: Callable[[Any], Any], value: Any) -> Any:
    return [function(one) for one in value] if isinstance(value, list | tuple) else function(value)


def _is_saved(value: Any) -> bool:
    return all(isinstance(one, str | dict) for one in (value if isinstance(value, list | tuple) else [value]))


def _without_nan(value: Any) -> Any:
    """Return the same with null for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _without_nan(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Path | torch.device):
        return str(value)
    raise TypeError(f"{value!r}, of type {type(value).__name__}")
