"""Saved classifiers: a folder with one JSON file and one of safetensors, and nothing that could run."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Callable
from dataclasses import asdict
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

import unbag
from unbag.aggregates import AtLeast, CountOf, Majority
from unbag.diagnosis import Finding
from unbag.estimator import AggregateClassifier
from unbag.files import remove_drafts, write_whole
from unbag.inputs import AGGREGATES as NAMED
from unbag.models import build
from unbag.predictor import Predictor
from unbag.random_state import RandomState
from unbag.training.scaling import Scaling

FORMAT = 1
HEAD = "model.json"

OWN = ("aggregate", "model", "loss")
"""Settings that may hold code of the caller's own, which is not saved."""

AGGREGATES: dict[str, Any] = {
    **{kind.__name__: kind for kind in NAMED.values()},
    **{kind.__name__: kind for kind in (AtLeast, CountOf, Majority)},
}
"""Those that can be made again from their settings."""

FITTED = ("n_features_in_", "input_shape_", "scaling_", "symmetry_", "history_", "replicas_", "best_epoch_", "n_iter_")
"""What fit has found out and JSON can hold as it is."""


def save(classifier: Predictor, folder: str | Path, *, overwrite: bool = False) -> None:
    """Save a fitted classifier so that the folder holds the old one or the new one at every moment.

    Weights are in a file that is named by what it holds; the JSON file that refers to it is written last.

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
    content, weights = _describe(classifier), safetensors.torch.save(_weights_of(classifier))
    content["weights"] = {"file": f"weights-{_digest(weights)[:16]}.safetensors", "sha256": _digest(weights)}
    head = {"format": FORMAT, "sha256": _digest(_as_json(content)), "content": content}
    folder.mkdir(parents=True, exist_ok=True)
    old = _old_weights(folder)
    write_whole(folder / content["weights"]["file"], weights)
    remove_drafts(folder / HEAD)
    write_whole(folder / HEAD, json.dumps(head, indent=1).encode())
    if old is not None and old.name != content["weights"]["file"]:
        old.unlink(missing_ok=True)


def load(
    folder: str | Path, *, model: Any = None, aggregate: Any = None, loss: Any = None, device: str = "cpu"
) -> AggregateClassifier:
    """Load a classifier that was saved; files that are truncated, altered or from a later version are refused.

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
    >>> clf = unbag.AggregateClassifier(epochs=2, random_state=0).fit(X, X[:, 0] > 0)
    >>> folder = Path(tempfile.mkdtemp()) / "model"
    >>> clf.save(folder)
    >>> bool((load(folder).predict_proba(X) == clf.predict_proba(X)).all())
    True
    """
    folder = Path(folder)
    content = _read_head(folder / HEAD)
    own = {"model": model, "aggregate": aggregate, "loss": loss}
    try:
        _check_own(content["own"], own)
        settings = {**content["settings"], **{name: own[name] for name in content["own"]}, "device": device}
        settings["aggregate"] = _map_sets(_make_aggregate, settings["aggregate"])
        classifier = AggregateClassifier(**settings)
        _restore(classifier, content["fitted"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder / HEAD} is not as this version of unbag writes it: {error!r}") from error
    classifier.models_ = _make_models(classifier, _read_weights(folder, content["weights"]))
    return classifier


def _describe(classifier: Predictor) -> dict[str, Any]:
    """Return everything but the weights, as JSON can hold it."""
    settings = classifier.get_params(deep=False)
    settings["aggregate"] = _map_sets(_describe_aggregate, settings["aggregate"])
    own = [name for name in OWN if not _is_saved(settings[name])]
    settings.update(dict.fromkeys(own))
    if not isinstance(settings["random_state"], Integral):
        settings["random_state"] = None  # a generator has moved on
    fitted = {name: getattr(classifier, name) for name in FITTED}
    classes = classifier.classes_
    if other := [name for name in classes.tolist() if not isinstance(name, str | int | float)]:
        raise TypeError(f"the class {other[0]!r} cannot be saved as JSON; call classes by strings or numbers")
    dtype = classes.dtype.str if classes.dtype.kind in "biufU" else "O"
    fitted["classes"] = {"names": classes.tolist(), "dtype": dtype}
    fitted["feature_names"] = list(getattr(classifier, "feature_names_in_", [])) or None
    fitted["orders"] = [order.tolist() for order in classifier.orders_]
    fitted["diagnosis"] = [asdict(found) for found in classifier.diagnosis_]
    content = {
        "versions": {"unbag": unbag.__version__, "torch": torch.__version__},
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
    names = fitted["classes"]["names"]
    classifier.classes_ = np.empty(len(names), dtype=fitted["classes"]["dtype"])
    classifier.classes_[:] = names
    if fitted["feature_names"] is not None:
        classifier.feature_names_in_ = np.array(fitted["feature_names"], dtype=object)
    classifier.orders_ = [np.array(order) for order in fitted["orders"]]
    classifier.diagnosis_ = [Finding(**found) for found in fitted["diagnosis"]]


def _weights_of(classifier: Predictor) -> dict[str, Tensor]:
    models = enumerate(classifier.models_)
    named = {f"{place}.{name}": tensor for place, model in models for name, tensor in _named_tensors(model).items()}
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in named.items()}


def _make_models(classifier: AggregateClassifier, weights: dict[str, Tensor]) -> list[nn.Module]:
    make_net = build(classifier.model, classifier.input_shape_, len(classifier.classes_))
    models: list[nn.Module] = []
    for place in range(len(classifier.orders_)):
        prefix = f"{place}."
        own = {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
        with RandomState(0).in_place():
            model = nn.Sequential(Scaling(own["0.shift"], own["0.factor"]), make_net())
        tensors = _named_tensors(model)
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        if shapes != (saved := {name: tuple(tensor.shape) for name, tensor in own.items()}):
            differ = sorted(name for name in {*shapes, *saved} if shapes.get(name) != saved.get(name))
            raise ValueError(f"the saved weights are of another model; they differ in {', '.join(differ[:3])}")
        with torch.no_grad():
            for name, tensor in tensors.items():
                tensor.copy_(own[name])
        models.append(model.to(classifier.device).eval())
    return models


def _named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers, each once, also where parts share them."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _read_head(path: Path) -> dict[str, Any]:
    """Return the content of the JSON file, or say why it is not to be trusted."""
    if not path.exists():
        raise FileNotFoundError(f"there is no saved classifier in {path.parent}: {path.name} is missing")
    try:
        head = json.loads(path.read_bytes())
        written, digest, content = head["format"], head["sha256"], head.get("content")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is truncated, or no saved classifier: {error!r}") from error
    if isinstance(written, int) and written > FORMAT:
        raise ValueError(
            f"{path} was written by a later version of unbag, in format {written}; this one, {unbag.__version__}, "
            f"reads up to format {FORMAT}: upgrade unbag"
        )
    if written != FORMAT or digest != _digest(_as_json(content)):
        raise ValueError(f"{path} was altered after it was saved: its content does not fit its checksum")
    return content


def _read_weights(folder: Path, entry: dict[str, str]) -> dict[str, Tensor]:
    path = folder / Path(entry["file"]).name  # never outside the folder
    if not path.exists():
        raise FileNotFoundError(f"the weights of the classifier in {folder} are missing: {path.name}")
    content = path.read_bytes()
    if _digest(content) != entry["sha256"]:
        raise ValueError(f"{path} is truncated, or was altered after it was saved: it does not fit its checksum")
    try:
        return safetensors.torch.load(content)
    except SafetensorError as error:
        raise ValueError(f"{path} is no file of safetensors: {error}") from error


def _old_weights(folder: Path) -> Path | None:
    """Return the file of the classifier that is to be replaced, if there is one that can be read."""
    try:
        return folder / Path(_read_head(folder / HEAD)["weights"]["file"]).name
    except (OSError, ValueError):
        return None


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
    if type(aggregate) not in AGGREGATES.values():
        return aggregate
    names = inspect.signature(type(aggregate)).parameters
    return {"name": type(aggregate).__name__, "settings": {name: getattr(aggregate, name) for name in names}}


def _make_aggregate(described: Any) -> Any:
    return AGGREGATES[described["name"]](**described["settings"]) if isinstance(described, dict) else described


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


def _as_json(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
