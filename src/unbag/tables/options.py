"""Options of ``unbag check`` and ``unbag fit``: one model for the command line, files of settings and the estimator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import StrictBool, StrictFloat, StrictInt
from pydantic.dataclasses import dataclass as model

# What :mod:`unbag.aggregates` and :mod:`unbag.losses` have, by name: those wait for torch, which help does not need.
AGGREGATES = (
    *("label_proportions", "multiple_instance", "pairwise_similarity", "ordinal_rank", "triplet_comparison"),
    *("ordinal_triplet", "at_least", "count_of", "majority", "published_counts"),
)
LOSSES = ("cross_entropy", "logistic", "mae", "mse", "gce", "focal", "symmetric_cross_entropy")


@dataclass(frozen=True)
class Option:
    """What an option is for, in a line, and how the command line shows it.

    Parameters
    ----------
    help
        For people.
    panel
        The heading it stands under.
    flag
        A short form, such as ``-a``.
    name
        What people call it, if not as the field.
    choices
        The words that it takes, if it takes no others.
    """

    help: str
    panel: str | None = None
    flag: str | None = None
    name: str | None = None
    choices: tuple[str, ...] = ()


WHERE = "Where to compute"
Column, Setting = partial(Option, panel="Columns"), partial(Option, panel="Training")
Where = partial(Option, panel=WHERE)
Published = partial(Option, panel="Counts as they were published")
RELATIONS = ("<", ">", "<=", ">=")
UNITS = ("counts", "proportions", "percentages")
Names = tuple[str, ...]
Auto = Literal["auto"]


@model(frozen=True)
class Source:
    """A file of observations, one row per group, pair or triplet, and what its columns mean where names do not say it.

    What is None is found from the names of the columns.
    """

    file: Path
    aggregate: Annotated[
        str | None,
        Option(
            f"What was observed: {', '.join(AGGREGATES)}; with arguments as in at_least(2), or your own as in "
            "my_module:MyKind.",
            flag="-a",
        ),
    ] = None
    group: Annotated[
        str | None, Column("The column of group ids in the file of groups, if it differs.", name="group_in_groups")
    ] = None
    members: Annotated[Names | None, Column("The columns of row ids of pairs or triplets: a,b,c.")] = None
    observed: Annotated[str | None, Column("The column of what was observed.")] = None
    size: Annotated[str | None, Column("The column of group sizes.")] = None
    group_weight: Annotated[
        str | None, Column("The column of weights: 2 counts a group, pair or triplet twice, 0 leaves it out.")
    ] = None
    relation: Annotated[
        str | None, Column("What the answer 1 says of the first and the second of a pair", choices=RELATIONS)
    ] = None
    error_rate: Annotated[
        str | StrictFloat | None,
        Column("How often answers are wrong: 0.1; a column with the rate of each; or fit, to find one for all."),
    ] = None
    sampling: Annotated[
        Names | None,
        Column(
            "Where groups were chosen by their answer, the rates at which those with each were kept, 0=0.1,1=1; or the "
            "share of 1 among random ones, 0.04."
        ),
    ] = None
    unit: Annotated[
        str | None, Published("What the columns of classes hold; found where they add up", choices=UNITS)
    ] = None
    decimal: Annotated[
        str | None,
        Published("What stands before decimals, a point (.) or a comma (,); found where the file leaves no doubt."),
    ] = None
    noise: Annotated[
        str | None,
        Published(
            "Noise on counts: laplace:2.5, gaussian:17, geometric:2 or discrete_gaussian:17, with its scale; or the "
            "name alone, with --epsilon or --noise-scale."
        ),
    ] = None
    epsilon: Annotated[
        StrictFloat | None,
        Published(
            "Privacy loss, which gives the scale of the noise together with --sensitivity; the noise is laplace unless "
            "--noise says another."
        ),
    ] = None
    sensitivity: Annotated[
        StrictFloat | None, Published("By how much one person changes the counts of the table, over all cells.")
    ] = None
    noise_scale: Annotated[
        Names, Published("A column with the scale of the noise of each group, or one for each class.")
    ] = ()
    rounded_to: Annotated[StrictFloat | None, Published("Counts, or shares, are rounded to multiples of this.")] = None
    suppressed_below: Annotated[
        StrictInt | None, Published("Cells without a number are counts below this; without it, unknown ones.")
    ] = None

    @property
    def rates(self) -> dict[str, float] | float | None:
        """What ``sampling`` says, as the estimator takes it."""
        if self.sampling is None:
            return None
        words = [f"share={word}" if "=" not in word else word for word in self.sampling]
        rates = numbers_by_name(words, "--sampling", "0=0.1,1=1 or 0.04")
        return rates["share"] if [*rates] == ["share"] else rates


@model(frozen=True)
class Training:
    """Settings of training, with the names and defaults that they have in :class:`unbag.AggregateClassifier`.

    The seed is its ``random_state``, and a number unless another is given: a run can be repeated.
    """

    model: Annotated[
        str,
        Setting(
            "What to fit; auto mixes those that explain left-out groups",
            choices=("auto", "linear", "logistic", "mlp", "rbf", "trees"),
        ),
    ] = "auto"
    method: Annotated[str, Setting("What to minimise", choices=("auto", "uum", "likelihood"))] = "auto"
    loss: Annotated[str, Setting("Loss of uum", choices=tuple(LOSSES))] = "cross_entropy"
    epochs: Annotated[
        StrictInt | Auto, Setting("How often each group is visited at most; auto: until left-out groups gain nothing.")
    ] = "auto"
    warm_up: Annotated[StrictInt | Auto, Setting("Epochs of likelihood before those of uum.")] = "auto"
    weights: Annotated[
        str,
        Setting("Weights of uum, of the current model or of the last epoch", choices=("auto", "current", "remembered")),
    ] = "auto"
    batch_size: Annotated[StrictInt | Auto, Setting("Groups in a step.")] = "auto"
    learning_rate: Annotated[StrictFloat | Auto, Setting("Learning rate of Adam.")] = "auto"
    weight_decay: Annotated[StrictFloat | Auto, Setting("Weight decay of Adam.")] = "auto"
    scaling: Annotated[str, Setting("How columns are scaled", choices=("auto", "standard", "table", "none"))] = "auto"
    n_restarts: Annotated[
        StrictInt, Setting("Networks to train, from different first weights; the best by left-out groups is kept.")
    ] = 1
    ensemble: Annotated[StrictBool, Setting("Keep all of --n-restarts, and average them.")] = False
    n_folds: Annotated[
        StrictInt | Auto | None,
        Setting("Parts of the groups, each left out once; auto: 4 or 8 for --model auto, none for others."),
    ] = "auto"
    validation_fraction: Annotated[
        StrictFloat, Setting("Share of groups that is left out to choose by, where there are no folds.")
    ] = 0.1
    patience: Annotated[StrictInt | Auto | None, Setting("Stop after so many epochs without progress.")] = "auto"
    time_limit: Annotated[
        StrictFloat | None,
        Setting("Seconds that training and what follows it may take; without it, as long as it needs."),
    ] = None
    seed: Annotated[StrictInt, Setting("Seed of all random numbers.")] = 0
    device: Annotated[str, Where("The processor, cpu, or a GPU, cuda.")] = "cpu"
    devices: Annotated[StrictInt | Auto, Where("Processes that train together; auto: those of torchrun, or 1.")] = (
        "auto"
    )
    nodes: Annotated[StrictInt, Where("Machines that train together, each with --devices processes.")] = 1

    @property
    def parameters(self) -> dict[str, Any]:
        """The same as parameters of the estimator."""
        settings = asdict(self)
        settings["random_state"] = settings.pop("seed")
        return settings


@model(frozen=True)
class Plan:
    """Everything that a run is made from: files, what their columns mean, and settings of training.

    Columns that are None are found by their names.
    """

    instances: Path
    sources: tuple[Source, ...]
    id: Annotated[str | None, Column("The column of row ids.")] = None
    group: Annotated[str | None, Column("The column of group ids in the file of instances.")] = None
    label: Annotated[str | None, Column("The column of true classes, used for evaluation alone.")] = None
    subject: Annotated[
        str | None,
        Column("The column of the person or object that a row is about; rows of a subject are held out together."),
    ] = None
    names: Annotated[
        str | None, Column("A column with the class of a few rows, which name the classes of pairs and triplets.")
    ] = None
    labelled: Annotated[
        str | None, Column("A column with the class of a few rows, which are learned from beside the groups.")
    ] = None
    class_shares: Annotated[Names | None, Column("Known shares of all classes: ill=0.1,well=0.9.")] = None
    class_shares_error: Annotated[
        StrictFloat, Column("How well these are known: the standard deviation of a share.")
    ] = 0.0
    features: Annotated[Names | None, Column("The columns to learn from: age,town.")] = None
    exclude: Annotated[Names, Column("Columns not to learn from: name,street.")] = ()
    categorical: Annotated[Names, Column("Columns of numbers that are names of categories: district.")] = ()
    trust: Annotated[Names, Column("Columns to learn from although they look like the answer or like an id.")] = ()
    classes: Annotated[Names | None, Column("The classes: ill,well; for counts, the columns that count them.")] = None
    n_classes: Annotated[StrictInt | None, Column("How many classes there are.")] = None
    drop_unmatched: Annotated[
        StrictBool, Option("Leave out rows and groups without a partner in the other file, and say which.")
    ] = False
    drop_bad_groups: Annotated[
        StrictBool, Published("Leave out groups whose counts are impossible or cannot be read, and say which.")
    ] = False
    missing_members: Annotated[
        StrictBool,
        Published("Groups may count members that have no row; of these, no features are known."),
    ] = False
    disk: Annotated[
        Path | None,
        Where(
            "A folder to keep prepared rows in and to read them from, piece by piece, where later runs find them; "
            "without it, RUN-rows for Parquet of more than a tenth of the memory."
        ),
    ] = None
    training: Training = Training()

    @property
    def shares(self) -> tuple[dict[str, float], float] | None:
        """What ``class_shares`` say, as the estimator takes it."""
        if self.class_shares is None:
            return None
        return numbers_by_name(self.class_shares, "--class-shares", "ill=0.1,well=0.9"), self.class_shares_error

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as JSON can hold it; files by their full paths, so that it holds in any folder."""
        content = asdict(self)
        content["instances"] = str(self.instances.absolute())
        content["disk"] = None if self.disk is None else str(self.disk.absolute())
        for source in content["sources"]:
            source["file"] = str(source["file"].absolute())
        return content

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Plan:
        """Return the plan that :meth:`as_dict` has written."""
        return cls(**content)


def numbers_by_name(words: Iterable[str], option: str, example: str) -> dict[str, float]:
    """Return what words such as ``ill=0.1`` say.

    Examples
    --------
    >>> numbers_by_name(["ill=0.1", "well=0.9"], "--class-shares", "ill=0.1,well=0.9")
    {'ill': 0.1, 'well': 0.9}
    """
    numbers: dict[str, float] = {}
    for word in words:
        name, _, number = word.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = float("nan")
        if not name or name in numbers or not isfinite(value):
            raise ValueError(f"{option} must be like {example}, each name once, got {word!r}")
        numbers[name.strip()] = value
    return numbers


def options_of(kind: type) -> dict[str, Any]:
    """Return the types of those fields of a model that are options, by the names that people give them.

    Examples
    --------
    >>> list(options_of(Source))[:7]
    ['aggregate', 'group_in_groups', 'members', 'observed', 'size', 'group_weight', 'relation']
    """
    hints = get_type_hints(kind, include_extras=True)
    return {option.name or name: hint for name, hint in hints.items() if (option := option_of(hint)) is not None}


def option_of(hint: Any) -> Option | None:
    """Return what a field is for, if it is an option."""
    return next((one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Option)), None)


def plain_type(annotation: Any) -> type:
    """Return the type that people write for an option: that of its values, without None and single words.

    Examples
    --------
    >>> plain_type(Names | None), plain_type(StrictInt | Literal["auto"]), plain_type(Path)
    (<class 'tuple'>, <class 'int'>, <class 'pathlib.Path'>)
    """
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        kinds = [one for one in get_args(annotation) if one is not NoneType and get_origin(one) is not Literal]
        return plain_type(kinds[0])
    return get_origin(annotation) or annotation


def words_of(annotation: Any) -> list[str]:
    """Return the words that may stand in place of a value.

    Examples
    --------
    >>> words_of(StrictInt | Literal["auto"] | None), words_of(Path)
    (['auto'], [])
    """
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [word for one in get_args(annotation) for word in words_of(one)]
