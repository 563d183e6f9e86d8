"""Options of ``unbag check`` and ``unbag fit``: one model for the command line, files of settings and the estimator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import isfinite
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import Field, StrictBool, StrictFloat, StrictInt
from pydantic.dataclasses import dataclass as model

# Names in help; a test compares them with the registries, which import torch, for which help should not wait.
AGGREGATES = (
    *("label_proportions", "multiple_instance", "pairwise_similarity", "ordinal_rank", "triplet_comparison"),
    *("ordinal_triplet", "at_least", "count_of", "majority", "published_counts"),
)
LOSSES = ("cross_entropy", "logistic", "mae", "mse", "gce", "focal", "symmetric_cross_entropy")
MODELS = ("auto", "linear", "mlp", "rbf", "trees")
RELATIONS = ("<", ">", "<=", ">=")
UNITS = ("counts", "proportions", "percentages")

SHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")  # suffixes of spreadsheets
DATE_ORDERS = ("day-first", "month-first")

RENAMED = {"n_jobs": "jobs", "random_state": "seed"}  # parameters of the estimator whose option has another name
REMOVED = {"ensemble": "models of several folds and restarts are always averaged; leave it out"}
"""Options of earlier versions, and what replaces them."""


@dataclass(frozen=True)
class Option:
    """An option of the command line and of files of settings."""

    hint: Any  # the annotation of its values, which may allow None and fixed words such as ``"auto"``
    type: type  # the type of the values, without None and fixed words
    words: list[str]  # fixed words that may replace a value
    default: Any
    help: str
    panel: str | None = None  # the heading of the help screen under which it is listed
    flag: str | None = None
    choices: tuple[str, ...] = ()


def option(default: Any, help: str, **extra: Any) -> Any:
    """Return a field of a model that is an option; ``name`` is its name, if it differs from that of the field."""
    return Field(default, description=help, json_schema_extra=extra)


SENSITIVITY = "Largest change of the counts of the table, summed over cells, by one person."
WHERE = "Where to compute"
NETWORK = "Training of a network by Algorithm 1 of the paper; any of these selects it"
panels = ("Files", "Columns", "Published counts", "Training", NETWORK, WHERE)
files, column, published, setting, network, where = (partial(option, panel=panel) for panel in panels)
Names = tuple[str, ...]
Text = str | None
Number = StrictFloat | None
Whole = StrictInt | None
WholeOrAuto = StrictInt | Literal["auto"]


@dataclass(frozen=True)
class Reading:
    """How a file is read: whether it is repaired, which sheet, and how numbers and dates are written.

    None: the only sheet with a table; the decimal separator and the order of dates are inferred for each column.
    """

    tidy: bool = False
    sheet: str | None = None
    decimal: str | None = None
    dates: str | None = None


@model(frozen=True)
class Source:
    """A file of observations, with one row per group, pair or triplet, and the meaning of its columns.

    None: inferred from the names of the columns.
    """

    file: Path
    aggregate: Text = option(
        None,
        f"Kind of observation: {', '.join(AGGREGATES)}; with arguments as in at_least(2), or your own as in "
        "my_module:MyKind.",
        flag="-a",
    )
    group: Text = column(None, "Column of group ids in the file of groups.", name="group_in_groups")
    sheet: Text = files(None, "Sheet of the file of groups, by name or number.", name="sheet_of_groups")
    members: Names | None = column(None, "Columns of the row ids of pairs or triplets: a,b,c.")
    observed: Text = column(None, "Column of the observations.")
    size: Text = column(None, "Column of group sizes.")
    group_weight: Text = column(None, "Column of weights: 2 counts a group, pair or triplet twice, 0 leaves it out.")
    relation: Text = column(None, "Relation of the first to the second row if the answer is 1", choices=RELATIONS)
    error_rate: str | StrictFloat | None = column(
        None, "Rate of wrong answers: 0.1; a column with the rate of each answer; or fit, to estimate one rate."
    )
    sampling: Names | None = column(
        None,
        "If groups were selected by their answer, the rate at which groups with each answer were kept, 0=0.1,1=1; "
        "or the share of 1 among random groups, 0.04.",
    )
    unit: Text = published(None, "Unit of the columns of classes; inferred if they add up", choices=UNITS)
    decimal: Text = published(None, "Decimal separator, . or , (inferred if the file is unambiguous).")
    noise: Text = published(
        None,
        "Noise on counts, with its scale: laplace:2.5, gaussian:17, geometric:2 or discrete_gaussian:17; or the "
        "name alone, with --epsilon or --noise-scale.",
    )
    epsilon: Number = published(None, "Privacy loss; with --sensitivity, it determines the scale of the noise.")
    sensitivity: Number = published(None, SENSITIVITY)
    noise_scale: Names = published((), "Column of the scale of the noise of each group, or a column per class.")
    rounded_to: Number = published(None, "Counts, or shares, are rounded to multiples of this number.")
    suppressed_below: Whole = published(None, "Empty cells are counts below this number; without it, they are unknown.")

    @property
    def rates(self) -> dict[str, float] | float | None:
        """Return ``sampling`` in the form that the estimator expects."""
        if self.sampling is None:
            return None
        words = [f"share={word}" if "=" not in word else word for word in self.sampling]
        rates = numbers_by_name(words, "--sampling", "0=0.1,1=1 or 0.04")
        return rates["share"] if [*rates] == ["share"] else rates


@model(frozen=True)
class Protection:
    """How ``unbag protect`` protects counts, and which columns hold them."""

    epsilon: Number = option(None, "Add geometric noise with this privacy loss (needs the extra private).")
    sensitivity: StrictInt = option(1, SENSITIVITY)
    round_to: Whole = option(None, "Round counts to multiples of this number.")
    suppress_below: Whole = option(None, "Write counts below this number as such, without their value.")
    group: Text = option(None, "Column of group ids.")
    classes: Names | None = option(None, "Columns of counts: healthy,ill; by default all others.")
    keep_sizes: StrictBool = option(False, "Write exact group sizes, which are not protected.")


@model(frozen=True)
class NetworkOptions:
    """Settings of :class:`unbag.NetworkTraining`, with the same names and defaults."""

    epochs: StrictInt = network(200, "Maximum number of passes over the groups.")
    loss: str = network("cross_entropy", "Loss of the unbiased risk", choices=LOSSES)
    warm_up: WholeOrAuto = network("auto", "Epochs that maximise the likelihood before the unbiased risk is minimised.")
    weights: str = network("auto", "Model that computes label weights", choices=("auto", "current", "remembered"))
    batch_size: StrictInt = network(128, "Groups per step.")
    learning_rate: StrictFloat = network(1e-3, "Learning rate of Adam.")
    weight_decay: StrictFloat = network(0.0, "Weight decay of Adam.")
    patience: Whole = network(30, "Epochs without a better held-out score after which training stops.")
    devices: WholeOrAuto = network("auto", "Processes that train together; auto: those of torchrun, or 1.")
    nodes: StrictInt = network(1, "Machines that train together, each with --devices processes.")


@model(frozen=True)
class Training:
    """Parameters of :class:`unbag.AggregateClassifier` and :class:`unbag.CrossFitting`."""

    model: str = setting("auto", "Model; auto averages those that best predict held-out groups", choices=MODELS)
    method: str = setting("auto", "Objective of networks by Algorithm 1", choices=("auto", "uum", "likelihood"))
    scaling: str = setting("auto", "Scaling of columns", choices=("auto", "standard", "table", "none"))
    n_folds: WholeOrAuto | None = setting("auto", "Folds for cross-fitting; auto: 4, or 8 with at most 40 groups.")
    validation_fraction: StrictFloat = setting(0.1, "Share of the groups that is held out, if there are no folds.")
    n_restarts: StrictInt = setting(1, "Models per learner and fold, from different random initialisations.")
    time_limit: Number = setting(None, "Seconds after which training ends with the best result so far.")
    seed: StrictInt = setting(0, "Seed of all random numbers.")
    jobs: Whole = where(None, "Models to fit at a time; without it, one on each core. The result does not change.")
    device: str = where("cpu", "Device of networks: cpu, or a GPU, cuda.")
    network: NetworkOptions | None = None

    def parameters(self, checkpoint: Path | None = None) -> dict[str, Any]:
        """Return the parameters of the estimator; a network by Algorithm 1 saves checkpoints in the folder."""
        from unbag.estimators import CrossFitting, NetworkTraining  # noqa: PLC0415 (slow to import)

        settings = asdict(self)
        network = settings.pop("network")
        renamed = {parameter: settings.pop(name) for parameter, name in RENAMED.items()}
        folds = {name: settings.pop(name) for name in ("n_folds", "validation_fraction", "n_restarts")}
        training = None if network is None else NetworkTraining(**network, checkpoint=checkpoint)
        return {**settings, **renamed, "training": training, "validation": CrossFitting(**folds)}


@model(frozen=True)
class Plan:
    """All inputs of a run: files, the meaning of their columns, and settings of training.

    None: a column is found by its name.
    """

    instances: Path
    sources: tuple[Source, ...]
    id: Text = column(None, "Column of row ids.")
    group: Text = column(None, "Column of group ids in the file of instances.")
    label: Text = column(None, "Column of true classes, used for evaluation only.")
    subject: Text = column(None, "Column of the person or object of each row, whose rows are held out together.")
    names: Text = column(None, "Column with the class of a few rows, which name the classes of pairs and triplets.")
    labelled: Text = column(None, "Column with the class of a few rows, used for training with the groups.")
    class_shares: Names | None = column(None, "Known shares of all classes: ill=0.1,well=0.9.")
    class_shares_error: StrictFloat = column(0.0, "Standard deviation of the known shares.")
    features: Names | None = column(None, "Columns to learn from: age,town.")
    exclude: Names = column((), "Columns not to learn from: name,street.")
    categorical: Names = column((), "Columns of numbers that are names of categories: district.")
    trust: Names = column((), "Columns to learn from although they look like the answer or like an id.")
    classes: Names | None = column(None, "Names of the classes: ill,well; for counts, their columns.")
    n_classes: Whole = column(None, "Number of classes.")
    tidy: StrictBool = files(
        False,
        "Repair files as people export them: titles, totals, footnotes, encodings, formats of numbers and dates, words "
        "for missing values, spellings of categories and ids. Every repair is listed.",
    )
    tidied: Path | None = files(None, "Folder for the repaired files.")
    sheet: Text = files(None, "Sheet of the file of instances, by name or number.")
    dates: Text = files(None, "Order of day and month, for --tidy; inferred for each column", choices=DATE_ORDERS)
    drop_unmatched: StrictBool = option(False, "Skip rows and groups without a partner in the other file.")
    drop_bad_groups: StrictBool = published(False, "Skip groups whose counts are impossible or unreadable.")
    missing_members: StrictBool = published(False, "Groups may count members that have no row in the file.")
    disk: Path | None = where(None, "Folder for encoded rows that stay on disk (Parquet); RUN-rows for large files.")
    training: Training = Training()

    def for_files(self, instances: Path, sources: tuple[Source, ...]) -> Plan:
        """Return the plan for other files; names of sheets hold for spreadsheets only."""
        sheet = self.sheet if is_spreadsheet(instances) else None
        sources = tuple(source if is_spreadsheet(source.file) else replace(source, sheet=None) for source in sources)
        return replace(self, instances=instances, sources=sources, sheet=sheet, tidied=None)

    def reading(self, place: int) -> Reading:
        """Return how the file of instances, 0, or a file of observations, from 1, is read."""
        decimal = self.sources[max(place - 1, 0)].decimal if self.sources else None
        sheet = self.sources[place - 1].sheet if place else self.sheet
        return Reading(self.tidy, sheet, decimal, self.dates)

    @property
    def shares(self) -> tuple[dict[str, float], float] | None:
        """Return ``class_shares`` in the form that the estimator expects."""
        if self.class_shares is None:
            return None
        return numbers_by_name(self.class_shares, "--class-shares", "ill=0.1,well=0.9"), self.class_shares_error

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as JSON, with absolute paths; ``Plan(**content)`` restores it."""
        content = asdict(self)
        for part in (content, *content["sources"]):
            part |= {name: str(value.absolute()) for name, value in part.items() if isinstance(value, Path)}
        return content


def is_spreadsheet(path: Path) -> bool:
    """Return whether a file is a spreadsheet, by its suffix."""
    return path.suffix.lower() in SHEETS


def numbers_by_name(words: Iterable[str], option: str, example: str) -> dict[str, float]:
    """Parse words such as ``ill=0.1``."""
    numbers: dict[str, float] = {}
    for word in words:
        name, _, number = word.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = float("nan")
        if not name or name in numbers or not isfinite(value):
            raise ValueError(f"{option} must be like {example}, each name once; got {word!r}")
        numbers[name.strip()] = value
    return numbers


def options_of(kind: Any) -> dict[str, Option]:
    """Return the options of a model by name."""
    strict, plain, options = get_type_hints(kind, include_extras=True), get_type_hints(kind), {}
    for name, field in kind.__pydantic_fields__.items():
        if field.description is not None:
            parts = get_args(plain[name]) if get_origin(plain[name]) in (Union, UnionType) else (plain[name],)
            words = [word for part in parts if get_origin(part) is Literal for word in get_args(part)]
            value = next(part for part in parts if part is not NoneType and get_origin(part) is not Literal)
            extra = dict(field.json_schema_extra)
            written = extra.pop("name", name)
            kind_of_value = get_origin(value) or value
            options[written] = Option(strict[name], kind_of_value, words, field.default, field.description, **extra)
    return options
