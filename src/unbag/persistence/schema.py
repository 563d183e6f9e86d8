"""The schema of a saved classifier: every entry of its JSON file, with type and bounds.

Arrays are in a file of safetensors beside it. An entry that the schema does not name is refused.
"""

from __future__ import annotations

import re
from math import prod
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from unbag._utils.findings import Finding
from unbag.aggregates.registry import restore_aggregate
from unbag.aggregates.symmetry import Symmetry
from unbag.data.features import Feature
from unbag.ensemble import Estimate

FORMAT = 6
MAX_MODELS = 4096
MAX_ROW_VALUES = 2**25
MAX_CLASS_BYTES = 2**24

Name = bool | int | float | str
Count = Annotated[int, Field(ge=0, lt=2**63)]
Positive = Annotated[int, Field(ge=1, lt=2**63)]
Share = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, Field(max_length=100_000)]
Metrics = Annotated[list[dict[str, None | bool | int | float | str | list[float | None]]], Field(fail_fast=True)]
"""Rows of numbers by name, such as ``history_``; None stands for NaN."""


class Record(BaseModel):
    """Part of the schema: exact types, finite numbers, no further entries."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Rates(Record):
    """A dict whose keys may be numbers."""

    pairs: list[tuple[Name, float]]


Shares = None | float | Rates | list[None | float | list[float] | Rates]


class AggregateRecord(Record):
    """A registered kind of observation and its arguments."""

    kind: Text
    arguments: dict[str, bool | int | float | str | list[bool | int | float | str | None] | AggregateRecord | None]

    def restore(self) -> Any:
        """Return the aggregate."""
        arguments = {n: v.restore() if isinstance(v, AggregateRecord) else v for n, v in self.arguments.items()}
        return restore_aggregate(self.kind, arguments)


class TrainingRecord(Record):
    """Parameters of :class:`unbag.NetworkTraining`; hooks, processes and the checkpoint are not saved."""

    epochs: Positive
    loss: Text | None
    warm_up: Count | Literal["auto"]
    weights: Literal["auto", "current", "remembered"]
    batch_size: Positive
    learning_rate: Annotated[float, Field(gt=0)]
    weight_decay: Annotated[float, Field(ge=0)]
    patience: Count | None


class CrossFittingRecord(Record):
    """Parameters of :class:`unbag.CrossFitting`."""

    n_folds: Annotated[int, Field(ge=2)] | Literal["auto"] | None
    validation_fraction: Annotated[float, Field(ge=0, lt=1)]
    n_restarts: Positive


class Parameters(Record):
    """Parameters of :class:`unbag.AggregateClassifier`; the device is not saved."""

    aggregate: Text | AggregateRecord | list[Text | AggregateRecord] | None
    model: Text | None
    method: Text
    n_classes: Annotated[int, Field(ge=2)] | None
    classes: Annotated[list[Name], Field(fail_fast=True)] | str | None
    class_shares: Shares
    sampling: Shares
    scaling: Text
    training: TrainingRecord | None
    validation: CrossFittingRecord | None
    time_limit: Annotated[float, Field(gt=0)] | None
    n_jobs: int | None
    random_state: Annotated[int, Field(ge=0, lt=2**32)] | None
    verbose: int | float


class Classes(Record):
    """Names of the classes, and the type of their array."""

    names: Annotated[list[Name], Field(min_length=2, fail_fast=True)]
    dtype: Annotated[str, Field(pattern=r"^(O|[<>|][biuf][1248]|[<>]U[0-9]{1,9})$")]

    def restore(self) -> np.ndarray:
        """Return the array of names."""
        array = np.empty(len(self.names), dtype=self.dtype)
        with np.errstate(all="ignore"):
            array[:] = self.names
        return array

    @model_validator(mode="after")
    def _validate(self) -> Self:
        size = int(self.dtype[2:]) * (4 if "U" in self.dtype else 1) if self.dtype != "O" else 0
        _require(
            size * len(self.names) <= MAX_CLASS_BYTES, f"{len(self.names)} names of type {self.dtype} are too large"
        )
        types = {type(name) for name in self.names}
        expected = {"b": {bool}, "i": {int}, "u": {int}, "f": {float}, "U": {str}}.get(self.dtype[1:2])
        _require(expected is None or types <= expected, f"names must be of type {self.dtype}")
        _require(len({*self.names}) == len(self.names), "names must differ from each other")
        try:
            _require(self.restore().tolist() == self.names, f"names must fit into the type {self.dtype}")
        except (OverflowError, TypeError) as error:
            raise ValueError(f"names must fit into the type {self.dtype}: {error}") from error
        return self


class ModelRecord(Record):
    """The kind of a model, and what ``state`` returned beside tensors."""

    kind: Text
    values: dict[str, JsonValue]


class CandidateRecord(Record):
    """A candidate of a mixture."""

    name: Text
    step: Count
    n_steps: Count
    score: float | None
    seconds: float
    models: Annotated[list[ModelRecord], Field(max_length=MAX_MODELS, fail_fast=True)]
    orders: Annotated[list[list[int]], Field(max_length=MAX_MODELS, fail_fast=True)]


class MixtureRecord(Record):
    """A mixture of candidates."""

    score: float | None
    candidates: Annotated[list[CandidateRecord], Field(min_length=1, max_length=100, fail_fast=True)]

    def check(self, n_outputs: int) -> None:
        """Raise ``ValueError`` unless the orders of outputs are permutations, and the models not too many."""
        _require(sum(len(c.models) for c in self.candidates) <= MAX_MODELS, f"there are more than {MAX_MODELS} models")
        outputs = list(range(n_outputs))
        for candidate in self.candidates:
            right = all(sorted(order) == outputs for order in candidate.orders)
            _require(right, f"orders must hold each number from 0 to {n_outputs - 1} once")
            _require(len(candidate.orders) == len(candidate.models), "orders must have one entry for each model")


class ArraysFile(Record):
    """The file of arrays."""

    file: Annotated[str, Field(pattern=r"^weights-[0-9a-f]{16}\.safetensors$")]
    n_bytes: Count
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Content(Record):
    """Everything that a fitted classifier has but its arrays."""

    versions: dict[str, Text]
    arrays: ArraysFile
    code: list[Literal["aggregate", "model", "loss"]]
    """Parameters that are code, which is not saved."""
    parameters: Parameters
    classes: Classes
    class_order: Annotated[list[int], Field(fail_fast=True)]
    n_features_in: Positive
    input_shape: Annotated[list[Positive], Field(min_length=1, max_length=60)]
    feature_names: Annotated[list[str], Field(fail_fast=True)] | None
    preparation: Annotated[list[Feature], Field(fail_fast=True)] | None
    symmetry: Symmetry
    error_rates: list[Share | None]
    diagnosis: Annotated[list[Finding], Field(fail_fast=True)]
    estimated_accuracy: Estimate | None
    candidates: Metrics
    history: Metrics
    mixture: MixtureRecord
    bag_mixture: MixtureRecord | None

    @model_validator(mode="after")
    def _validate(self) -> Self:
        n_classes, shape = len(self.classes.names), self.input_shape
        _require(sorted(self.class_order) == [*range(n_classes)], f"class_order must hold each of {n_classes} classes")
        _require(prod(shape) <= MAX_ROW_VALUES, f"input_shape must have at most {MAX_ROW_VALUES:,} values")
        self.mixture.check(n_classes)
        if self.bag_mixture is not None:
            self.bag_mixture.check(2)
        names, n_features = self.feature_names, self.n_features_in
        _require(names is None or len(names) == n_features, f"feature_names must have {n_features} entries")
        if self.preparation is None:
            _require(n_features == shape[0], f"n_features_in must be {shape[0]}, the first of input_shape")
            return self
        _require(len({f.name for f in self.preparation}) == n_features, f"preparation must have {n_features} columns")
        n_columns = 0
        for feature in self.preparation:
            n_columns += feature.width if feature.kind == "array" else len(feature.encoded_names)
        _require(shape == [n_columns], f"input_shape must be [{n_columns}], the columns that preparation makes")
        return self


def validate_content(content: str) -> Content:
    """Validate the JSON of a classifier; the error names the first entry that does not fit the schema."""
    try:
        return Content.model_validate_json(content)
    except ValidationError as error:
        first = next(iter(error.errors(include_url=False, include_context=False)))
        place = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        shown = "" if first["type"] in ("value_error", "missing") else f", got {_shorten(repr(first['input']))}"
        raise ValueError(f"{_shorten(place)}: {_shorten(message, 200)}{shown}") from None


def _shorten(text: str, length: int = 100) -> str:
    """Return the start of a text from the file, without control characters."""
    return re.sub(r"[^ -~]", "?", text[:length]) + ("..." if len(text) > length else "")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
