"""Validation of the JSON file of a saved classifier, entry by entry, because anybody may have written it."""

from __future__ import annotations

import re
import reprlib
import sys
from collections.abc import Callable, Iterable
from math import prod
from pathlib import Path
from typing import Any, get_args

import numpy as np

from unbag.aggregates.registry import NAMES, SAVED
from unbag.aggregates.symmetry import Symmetry
from unbag.data.features import USUAL, Kind, Preparation
from unbag.data.scaling import ScalingName
from unbag.diagnostics.shift import STATISTICS
from unbag.families.choice import AUTO, CANDIDATES, TREES
from unbag.fit_settings import read_settings
from unbag.fitting import HOOKS
from unbag.training.architectures import model_names

OWN = ("aggregate", "model", "loss")
"""Settings that may hold code of the caller's own, which is not saved."""

LOCAL = ("checkpoint", "device", "devices", "nodes", *HOOKS)
"""Settings that name a place on one machine, or are code that only training runs: whoever loads says them anew."""

# NumPy has no arrays of more dimensions, and the first is that of rows.
MOST_DIMENSIONS = 63
MOST_IN_ARRAY = 1 << 20

_DTYPE = re.compile(r"O|[<>|][biuf][1248]|[<>]U[0-9]{1,9}")
_TYPES: dict[str, set[type]] = {
    "b": {bool},
    "i": {int},
    "u": {int},
    "f": {float},
    "U": {str},
    "O": {bool, int, float, str},
}
_ENTRIES = ("epoch", "phase", "loss", "score", "seconds")


def check_content(content: Any, defaults: dict[str, Any], spare: int) -> int:
    """Refuse anything that save does not write; return how many bytes are left beside the array of classes.

    ``defaults`` are all settings that a classifier has, each with the value that it takes where the file has none;
    ``spare`` bytes may be taken beside the content.
    """
    _check_names("the content", content, ("versions", "settings", "own", "fitted", "weights", "bags"))
    versions, own, weights = content["versions"], content["own"], content["weights"]
    _need(isinstance(versions, dict) and _all(_is_text, versions.values()), "versions", "names of versions", versions)
    _need(_is_list(own, lambda name: name in OWN), "own", f"a list of some of {', '.join(OWN)}", own)
    _check_settings(content["settings"], own, defaults)
    model = content["settings"].get("model", defaults["model"])
    _check_weights(weights, [None] if "model" in own else [*CANDIDATES] if model == AUTO else [model])
    _check_names("fitted", content["fitted"], _FITTED)
    size = _check_classes(content["fitted"]["classes"], spare)
    _check_fitted(content["fitted"])
    _check_mixture(content["fitted"], sum(one["n"] for one in weights))
    if (bags := content["bags"]) is not None:
        _check_names("bags", bags, ("weights", "content"))
        right = _is_list(bags["weights"], _is_share) and len(bags["weights"]) == 2
        right = right and abs(sum(bags["weights"]) - 1) < 1e-6
        _need(right, "bags.weights", "two numbers from 0 to 1 that add up to 1", bags["weights"])
        size += spare - check_content(bags["content"], defaults, spare)
        _need(bags["content"]["bags"] is None, "bags.content.bags", "null", bags["content"]["bags"])
        # Columns of a table are pooled as the numbers that are made of them.
        columns, of_bags = (one["fitted"]["input_shape_"][0] for one in (content, bags["content"]))
        _need(of_bags == 3 * columns, "bags.content.fitted.input_shape_", f"three times {columns}", of_bags)
        classes = bags["content"]["fitted"]["classes"]["names"]
        _need(len(classes) == 2, "bags.content.fitted.classes.names", "two names", classes)
    return spare - size


def read_classes(entry: dict[str, Any]) -> np.ndarray:
    """Return the names of the classes as the array that was saved.

    Examples
    --------
    >>> read_classes({"names": ["ill", "well"], "dtype": "<U4"})
    array(['ill', 'well'], dtype='<U4')
    """
    array = np.empty(len(entry["names"]), dtype=entry["dtype"])
    with np.errstate(all="ignore"):
        array[:] = entry["names"]
    return array


def make_aggregates(described: Any) -> Any:
    """Return the aggregates that were described by name, or by name and settings; a list of them for a list.

    Examples
    --------
    >>> make_aggregates({"name": "OrdinalRank", "settings": {"relation": ">"}})
    OrdinalRank(relation='>')
    """
    if isinstance(described, list):
        _need(len(described) > 0, "settings.aggregate", "a list of at least one aggregate", described)
        return [_make_aggregate(one) for one in described]
    return _make_aggregate(described)


def _make_aggregate(described: Any) -> Any:
    if isinstance(described, str):
        _need(described in NAMES, "settings.aggregate", f"one of {', '.join(NAMES)}", described)
        return described
    _check_names("settings.aggregate", described, ("name", "settings"))
    name, settings = described["name"], described["settings"]
    # Only what this package has can be made again from its settings, whatever else a caller has imported.
    kinds: dict[str, Any] = {kind.__name__: kind for kind in SAVED}
    _need(_is_text(name) and name in kinds, "settings.aggregate.name", f"one of {', '.join(kinds)}", name)
    if isinstance(settings, dict) and isinstance(settings.get("aggregate"), dict):
        settings = {**settings, "aggregate": _make_aggregate(settings["aggregate"])}
    try:
        return kinds[name](**settings)
    except (TypeError, ValueError):
        _need(False, "settings.aggregate.settings", f"those of {name}", settings)


def _check_settings(settings: Any, own: list[str], defaults: dict[str, Any]) -> None:
    _need(isinstance(settings, dict), "settings", "a table of settings", settings)
    unknown = sorted({*settings} - {*defaults})
    _need(not unknown, "settings", "those of AggregateClassifier", unknown)
    settings = {**defaults, **settings}
    for name in own:
        _need(settings[name] is None, f"settings.{name}", "null, because it is not saved", settings[name])
    if "aggregate" not in own:
        make_aggregates(settings["aggregate"])
    if "model" not in own:
        names = (AUTO, *model_names(), TREES)
        _need(settings["model"] in names, "settings.model", f"one of {', '.join(names)}", settings["model"])
    for name in {*defaults} - {*OWN, *LOCAL, "classes", "sampling", "class_shares"}:
        _need(_is_plain(settings[name]), f"settings.{name}", "a number, a word or null", settings[name])
    for name, (is_right, expected) in _SETTINGS.items():
        _need(is_right(settings[name]), f"settings.{name}", expected, settings[name])
    # The loop's own settings are checked as it does, with what it would decide itself left out.
    given = {**settings, "warm_up": 0} if settings["warm_up"] == AUTO else settings
    read_settings({**given, "loss": "cross_entropy"} if "loss" in own else given, [])


def _check_weights(weights: Any, models: list[str | None]) -> None:
    """Refuse files of weights that are not one for each of some models."""
    _need(isinstance(weights, list) and len(weights) > 0, "weights", "a list of files", weights)
    for one in weights:
        _check_names("weights", one, ("model", "n", "file", "sha256"))
        _need(one["model"] in models, "weights.model", f"one of {models}", one["model"])
        _need(_is_whole(one["n"], 1), "weights.n", "a whole number of at least 1", one["n"])
        _need(_is_text(one["file"]) and _is_file_name(one["file"]), "weights.file", "a name", one["file"])
        _need(_is_text(one["sha256"]), "weights.sha256", "a checksum", one["sha256"])
    names = [one["model"] for one in weights]
    _need(len({*names}) == len(names), "weights.model", "different from each other", names)


def _check_mixture(fitted: dict[str, Any], n_models: int) -> None:
    """Refuse what does not say of each model in the mean of probabilities its order, weight and fold."""
    for name in ("orders", "model_weights_", "model_temperatures_", "model_folds_"):
        value = fitted[name]
        right = (name == "model_folds_" and value is None) or len(value) == n_models
        _need(right, name, f"a list with one entry for each of {n_models} models", value)
    weights, folds, of_groups = (fitted[name] for name in ("model_weights_", "model_folds_", "folds_"))
    _need(abs(sum(weights) - 1) < 1e-6, "model_weights_", "numbers that add up to 1", weights)
    _need((folds is None) == (of_groups is None), "folds_", "null where model_folds_ is, and only there", of_groups)
    known = {-1, *(folds or [])}
    for own in of_groups or []:
        _need({*own} <= known, "folds_", "numbers of folds that a model has left out, or -1", own)
    for one in fitted["candidates_"]:
        _check_names("candidates_", one, ("model", "score", "weight"))
        right = _is_text(one["model"]) and _is_score(one["score"]) and _is_share(one["weight"])
        _need(right, "candidates_", "a list of candidates with model, score and weight", one)
    if (accuracy := fitted["estimated_accuracy"]) is not None:
        _check_names("estimated_accuracy", accuracy, ("value", "low", "high"))
        right = _all(_is_share, accuracy.values())
        _need(right, "estimated_accuracy", "numbers from 0 to 1", accuracy)


def _check_fitted(fitted: dict[str, Any]) -> None:
    for name, (is_right, expected) in _FITTED.items():
        _need(is_right(fitted[name]), name, expected, fitted[name])
    shape, features, names = fitted["input_shape_"], fitted["n_features_in_"], fitted["feature_names"]
    _check_preparation(fitted["preparation"], shape, features)
    _need(names is None or len(names) == features, "feature_names", f"{features} names", names)
    for name, own in (fitted["feature_statistics_"] or {}).items():
        right = _is_list(own, _is_number) and len(own) == shape[0]
        _need(right, f"feature_statistics_.{name}", f"{shape[0]} finite numbers", own)
    n_classes = len(fitted["classes"]["names"])
    numbers = list(range(n_classes))
    for order in fitted["orders"]:
        right = _is_list(order, _is_whole) and sorted(order) == numbers
        _need(right, "orders", f"lists with each number from 0 to {n_classes - 1} once", order)
    for entry in fitted["history_"]:
        right = isinstance(entry, dict) and {*_ENTRIES} <= {*entry} and _all(_is_column, entry.values())
        _need(right, "history_", f"a list of epochs with {', '.join(_ENTRIES)}", entry)
    for replica in fitted["replicas_"]:
        _check_names("replicas_", replica, ("scaling", "best_epoch", "score"))
        right = (
            replica["scaling"] in get_args(ScalingName)
            and _is_whole(replica["best_epoch"])
            and _is_score(replica["score"])
        )
        _need(right, "replicas_", "a list of replicas with scaling, best_epoch and score", replica)
    for finding in fitted["diagnosis"]:
        _check_names("diagnosis", finding, ("kind", "message", "fatal"))
        right = _is_text(finding["kind"]) and _is_text(finding["message"]) and isinstance(finding["fatal"], bool)
        _need(right, "diagnosis", "a list of findings with kind, message and fatal", finding)


def _check_preparation(described: Any, shape: list[int], features: int) -> None:
    """Refuse columns of a table that do not become as many columns of numbers as models read."""
    if described is None:
        _need(shape[0] == features, "n_features_in_", f"{shape[0]}, the first of input_shape_", features)
        return
    usual = {**USUAL, "values": []}
    for given in described:
        one = {**usual, **given} if isinstance(given, dict) else given
        _check_names("preparation", one, ("name", "kind", *usual))
        right = (
            _is_text(one["name"])
            and one["kind"] in get_args(Kind)
            and (one["fill"] is None or _is_number(one["fill"]))
            and isinstance(one["marked"], bool)
            and _is_list(one["values"], lambda value: value is None or _is_text(value))
            and len({*one["values"]}) == len(one["values"])
            and _is_whole(one["width"], *((1, MOST_IN_ARRAY) if one["kind"] == "array" else (0, 0)))
        )
        _need(right, "preparation", "a list of columns with name, kind, fill, marked, values and width", one)
    names = [one["name"] for one in described]
    _need(len({*names}) == features == len(names), "preparation", f"{features} columns of different names", names)
    width = len(Preparation.from_plain(described).encoded_names)
    _need(shape == [width], "input_shape_", f"[{width}], as many columns as preparation makes", shape)


def _check_classes(entry: dict[str, Any], spare: int) -> int:
    """Refuse names of classes that are not those of an array within a number of bytes; return how many it takes."""
    _check_names("classes", entry, ("names", "dtype"))
    names, dtype = entry["names"], entry["dtype"]
    _need(isinstance(names, list) and len(names) >= 2, "classes.names", "a list of at least 2 names", names)
    _need(isinstance(dtype, str) and _DTYPE.fullmatch(dtype) is not None, "classes.dtype", "a dtype of names", dtype)
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = np.dtype("V")
    size = kind.itemsize * len(names)
    _need(kind.kind in _TYPES and size <= spare, "classes.dtype", f"one that {len(names)} names need", dtype)
    types, own = {type(name) for name in names}, _TYPES[kind.kind]
    _need(types <= own, "classes.names", f"of type {' or '.join(sorted(one.__name__ for one in own))}", names)
    _need(len(set(names)) == len(names), "classes.names", "different from each other", names)
    try:
        fit = read_classes(entry).tolist() == names
    except OverflowError:
        fit = False
    _need(fit, "classes.names", f"such as {dtype} can hold", names)
    return size


def _check_names(field: str, value: Any, names: Iterable[str]) -> None:
    right = isinstance(value, dict) and {*value} == {*names}
    _need(right, field, f"a table with {', '.join(names)}", sorted(value) if isinstance(value, dict) else value)


def _need(right: bool, field: str, expected: str, got: Any) -> None:
    if not right:
        raise ValueError(f"{field} must be {expected}, got {reprlib.repr(got)}")


def _all(is_right: Callable[[Any], bool], values: Iterable[Any]) -> bool:
    return all(map(is_right, values))


def _is_list(value: Any, is_right: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and _all(is_right, value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_file_name(value: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", Path(value).name) is not None


def _is_number(value: Any) -> bool:
    """Whether a value is a number that float64 can hold."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_whole(value: Any, least: int = 0, most: int = 2**63 - 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


def _is_temperature(value: Any) -> bool:
    return _is_number(value) and 0.01 <= value <= 100


def _is_shares(value: Any) -> bool:
    return value is None or _is_number(value) or (isinstance(value, dict) and _all(_is_number, value.values()))


def _is_score(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | float | str) or _is_whole(value, -(2**63))


def _is_name(value: Any) -> bool:
    return isinstance(value, bool | int | float | str)


def _is_column(value: Any) -> bool:
    """Whether an entry of the history is a word, a number, or one number for each replica."""
    return _is_plain(value) or _is_list(value, _is_score)


def _is_shape(value: Any) -> bool:
    return (
        _is_list(value, lambda size: _is_whole(size, 1)) and 1 <= len(value) <= MOST_DIMENSIONS and prod(value) < 2**63
    )


Rules = dict[str, tuple[Callable[[Any], bool], str]]

_FITTED: Rules = {
    "n_features_in_": (lambda value: _is_whole(value, 1), "a whole number of at least 1"),
    "input_shape_": (_is_shape, f"a list of 1 to {MOST_DIMENSIONS} whole numbers of at least 1"),
    "scaling_": (lambda value: value in get_args(ScalingName), f"one of {', '.join(get_args(ScalingName))}"),
    "symmetry_": (lambda value: value in get_args(Symmetry), f"one of {', '.join(get_args(Symmetry))}"),
    "history_": (lambda value: isinstance(value, list), "a list of epochs"),
    "replicas_": (lambda value: isinstance(value, list), "a list of replicas"),
    "best_epoch_": (_is_whole, "a whole number, not negative"),
    "n_iter_": (_is_whole, "a whole number, not negative"),
    "held_out_": (
        lambda value: _is_list(value, lambda one: one is None or _is_list(one, _is_whole)),
        "a list with null or numbers of groups for each set",
    ),
    "feature_statistics_": (
        lambda value: value is None or (isinstance(value, dict) and {*value} == {*STATISTICS}),
        f"null, or a table with {', '.join(STATISTICS)}",
    ),
    "classes": (lambda value: isinstance(value, dict), "a table with names and dtype"),  # checked before
    "feature_names": (lambda value: value is None or _is_list(value, _is_text), "null, or a list of names"),
    "preparation": (lambda value: value is None or isinstance(value, list), "null, or a list of columns"),
    "orders": (lambda value: isinstance(value, list) and len(value) > 0, "a list with an order for each model"),
    "diagnosis": (lambda value: isinstance(value, list), "a list of findings"),
    "model_weights_": (lambda value: _is_list(value, lambda one: _is_share(one) and one > 0), "a list of weights"),
    "model_folds_": (lambda value: value is None or _is_list(value, _is_whole), "null, or a list of folds"),
    "folds_": (
        lambda value: value is None or _is_list(value, lambda one: _is_list(one, lambda fold: _is_whole(fold, -1))),
        "null, or a list with the folds of its groups for each set",
    ),
    "temperature_": (_is_temperature, "a number from 0.01 to 100"),
    "model_temperatures_": (lambda value: _is_list(value, _is_temperature), "a list of numbers from 0.01 to 100"),
    "error_rates_": (
        lambda value: _is_list(value, lambda one: one is None or (_is_share(one) and one < 1)),
        "a list with null or a number from 0 to less than 1 for each set",
    ),
    "candidates_": (lambda value: isinstance(value, list), "a list of candidates"),
    "estimated_accuracy": (lambda value: value is None or isinstance(value, dict), "null, or a table"),
}

_SETTINGS: Rules = {
    "scaling": (
        lambda value: value in ("auto", *get_args(ScalingName)),
        f"one of auto, {', '.join(get_args(ScalingName))}",
    ),
    "n_restarts": (lambda value: _is_whole(value, 1), "a whole number of at least 1"),
    "n_folds": (lambda value: value in (None, AUTO) or _is_whole(value, 2), "null, auto, or at least 2"),
    "ensemble": (lambda value: isinstance(value, int), "true or false"),
    "validation_fraction": (lambda value: _is_number(value) and 0 <= value < 1, "a number from 0 to less than 1"),
    "n_classes": (lambda value: value is None or _is_whole(value, 2), "null, or a whole number of at least 2"),
    "classes": (lambda value: value is None or isinstance(value, str) or _is_list(value, _is_name), "null, or names"),
    "sampling": (
        lambda value: _is_shares(value) or _is_list(value, _is_shares),
        "null, a number, or a table of rates; or a list of them",
    ),
    "class_shares": (
        lambda value: _is_shares(value) or _is_list(value, lambda one: _is_shares(one) or _is_list(one, _is_number)),
        "null, shares, or shares and an error",
    ),
    "random_state": (lambda value: value is None or _is_whole(value, 0, 2**32 - 1), "null, or a whole number"),
    "time_limit": (lambda value: value is None or (_is_number(value) and value > 0), "null, or a positive number"),
    "verbose": (lambda value: isinstance(value, int | float), "a number"),
}
