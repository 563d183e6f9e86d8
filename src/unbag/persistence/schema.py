"""The schema of a saved classifier: every entry of its JSON file, with type and bounds.

Arrays are in a file of safetensors in the same folder. An entry that the schema does not name is an error.
"""

from __future__ import annotations

import re
from math import prod
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator
from typing_extensions import TypeAliasType

from unbag._utils.findings import Finding
from unbag.aggregates.symmetry import Symmetry
from unbag.data.features import Feature
from unbag.ensemble import Estimate, Performance

FORMAT = 6
MAX_MODELS = 4096
MAX_ROW_VALUES = 2**25
MAX_CLASSES = 2**16
MAX_CLASS_BYTES = 2**24

T = TypeVar("T")
Items = Annotated[list[T], Field(fail_fast=True)]
"""A list of which only the first wrong item is reported: a file may have millions."""
Scalar = bool | int | float | str | None
Text = Annotated[str, Field(max_length=100_000)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Positive = Annotated[int, Field(ge=1, lt=2**63)]
Number = Annotated[float, Field(ge=-1e300, le=1e300)]


class Record(BaseModel):
    """Part of the schema: exact types, finite numbers, no further entries."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class CodeValue(Record):
    """A parameter that is code, which is not saved."""

    code: Literal["aggregate", "model", "loss"]


class ObjectValue(Record):
    """A registered kind of observation, or an object that groups parameters, with its arguments."""

    kind: Text
    arguments: dict[str, Value]


class DictValue(Record):
    """A dict, whose keys may be numbers."""

    pairs: Items[tuple[Scalar, Value]]


Value = TypeAliasType("Value", "Scalar | CodeValue | ObjectValue | DictValue | Items[Value]")
"""A parameter of :class:`unbag.AggregateClassifier`."""


class Classes(Record):
    """Names of the classes, and the type of their array."""

    names: Annotated[list[bool | int | float | str], Field(min_length=2, max_length=MAX_CLASSES, fail_fast=True)]
    dtype: Annotated[str, Field(pattern=r"^(O|[<>|][biuf][1248]|[<>]U[0-9]{1,9})$")]

    @classmethod
    def describe(cls, classes: np.ndarray) -> dict[str, Any]:
        """Return the entries for an array of class names."""
        names = list(classes) if classes.dtype.kind in "mM" else classes.tolist()
        if wrong := [name for name in names if not isinstance(name, str | int | float)]:
            raise TypeError(f"the class {wrong[0]!r} cannot be saved as JSON; name classes by strings or numbers")
        return {"names": names, "dtype": classes.dtype.str if classes.dtype.kind in "biufU" else "O"}

    def restore(self) -> np.ndarray:
        """Return the array of names."""
        array = np.empty(len(self.names), dtype=self.dtype)
        with np.errstate(all="ignore"):
            array[:] = self.names
        return array

    @model_validator(mode="after")
    def _validate(self) -> Self:
        size = 8 if self.dtype == "O" else int(self.dtype[2:]) * (4 if "U" in self.dtype else 1)
        _require(size * len(self.names) <= MAX_CLASS_BYTES, f"{len(self.names)} names of {self.dtype} are too large")
        _require(len({*self.names}) == len(self.names), "names must differ from each other")
        try:
            restored = self.restore().tolist()
        except (OverflowError, TypeError, ValueError) as error:
            raise ValueError(f"names must be of type {self.dtype}: {error}") from error
        right = restored == self.names and [*map(type, restored)] == [*map(type, self.names)]
        _require(right, f"names must be of type {self.dtype}")
        return self


class SavedModel(Record):
    """The kind of a model, and its state without the tensors."""

    kind: Text
    values: dict[str, JsonValue]


class SavedCandidate(Record):
    """A candidate of a mixture; the names are those of :class:`unbag.ensemble.Candidate`."""

    name: Text
    step: Count
    n_steps: Count
    score: Number | None
    seconds: Number
    orders: Items[Items[int]]
    models: Items[SavedModel]


class SavedMixture(Record):
    """A mixture of candidates."""

    score: Number | None
    candidates: Annotated[list[SavedCandidate], Field(min_length=1, max_length=100, fail_fast=True)]

    def check(self, n_outputs: int) -> None:
        """Raise ``ValueError`` unless each model has a permutation of the outputs, and there are not too many."""
        _require(sum(len(c.models) for c in self.candidates) <= MAX_MODELS, f"there are more than {MAX_MODELS} models")
        for c in self.candidates:
            _require(len(c.orders) == len(c.models), "orders must have one entry for each model")
            right = all(sorted(order) == [*range(n_outputs)] for order in c.orders)
            _require(right, f"orders must have each number from 0 to {n_outputs - 1} once")


class ArrayFile(Record):
    """The file of arrays."""

    file: Annotated[str, Field(pattern=r"^weights-[0-9a-f]{16}\.safetensors$")]
    n_bytes: Count
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Attributes(Record):
    """Attributes of a fitted classifier, without the underscore at their end, that are saved as they are."""

    n_features_in: Positive
    symmetry: Symmetry
    error_rates: Items[Annotated[float, Field(ge=0, lt=1)] | None]
    diagnosis: Items[Finding]
    estimated_accuracy: Estimate | None
    estimated_performance: Performance | None = None
    candidates: list[dict[str, JsonValue]]
    history: list[dict[str, JsonValue]]


class Content(Attributes):
    """Everything that a fitted classifier has except its arrays."""

    versions: dict[str, Text]
    arrays: ArrayFile
    parameters: dict[str, Value]
    classes: Classes
    class_order: Items[int]
    input_shape: Annotated[list[Positive], Field(min_length=1, max_length=60, fail_fast=True)]
    feature_names: Items[str] | None
    features: Items[Feature] | None
    mixture: SavedMixture
    bag_mixture: SavedMixture | None

    @model_validator(mode="after")
    def _validate(self) -> Self:
        n_classes, shape, n_features = len(self.classes.names), self.input_shape, self.n_features_in
        self.mixture.check(n_classes)
        if self.bag_mixture is not None:
            self.bag_mixture.check(2)
        performance = self.estimated_performance
        _require(performance is None or len(performance.classes) == n_classes, f"classes must be {n_classes}")
        _require(sorted(self.class_order) == [*range(n_classes)], f"class_order must have each of {n_classes} classes")
        _require(prod(shape) <= MAX_ROW_VALUES, f"input_shape must have at most {MAX_ROW_VALUES:,} values")
        names = self.feature_names
        _require(names is None or len(names) == n_features, f"feature_names must have {n_features} names")
        if self.features is None:
            _require(n_features == shape[0], f"n_features_in must be {shape[0]}, the first of input_shape")
        else:
            distinct = {feature.name for feature in self.features}
            right = len(distinct) == len(self.features) == n_features
            _require(right, f"features must be {n_features}, with different names")
            n_columns = sum(f.width if f.kind == "array" else len(f.encoded_names) for f in self.features)
            _require(shape == [n_columns], f"input_shape must be [{n_columns}], the columns that features become")
        return self


class SavedFile(Record):
    """The JSON file: the content, and the digest of the content."""

    format: int
    sha256: str
    content: Content


def parse(raw: bytes) -> Content:
    """Validate the JSON of a classifier; the error names the first entry that does not fit."""
    try:
        return SavedFile.model_validate_json(raw).content
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place, message = ".".join(map(str, first["loc"][1:])), first["msg"].removeprefix("Value error, ")
        got = "" if first["type"] in ("value_error", "missing") else f", got {first['input']!r:.100}"
        raise ValueError(re.sub(r"[^ -~]", "?", f"{place[:100]}: {message[:200]}{got}")) from None


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
