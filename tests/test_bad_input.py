"""Bad input is refused before any work, with a message that says which group or row, what came and what to do."""

import numpy as np
import pytest
import torch

import unbag
from unbag import Groups, ImpossibleObservation, MultipleInstance, OrdinalRank, PairwiseSimilarity, TripletComparison

INF, NAN = float("inf"), float("nan")
NO = [0, -INF]  # logits of a row that cannot be positive

PAIRS = Groups.from_ids(["a", "b", "a", "b"])
BAGS = Groups.from_ids(["a", "b", "b", "a", "b"])  # of 2 and 3 members


def zeros(rows: int, k: int = 2, **places: list[float]) -> torch.Tensor:
    """Return logits of zero, except for the rows given as ``row_3=[...]``."""
    logits = torch.zeros(rows, k)
    for place, values in places.items():
        logits[int(place.removeprefix("row_"))] = torch.tensor(values)
    return logits


def pairs(logits=None, groups=PAIRS, z=(1, 0), **options):
    logits = zeros(4, 3) if logits is None else logits
    return PairwiseSimilarity().log_likelihood(logits, groups, z if isinstance(z, torch.Tensor) else list(z), **options)


def proportions(z, groups=BAGS, k=2, **settings):
    return unbag.LabelProportions(**settings).log_likelihood(torch.zeros(groups.n_rows, k), groups, z)


def fold(
    z=(1, 0), start=0, step=lambda state, label: state + label, finish=lambda state: state, logits=None, **options
):
    logits = zeros(5) if logits is None else logits
    return unbag.FromFold(start, step, finish).log_likelihood(logits, BAGS, torch.tensor(z), **options)


def from_function(g, groups, z, k=2):
    return unbag.FromFunction(g).log_likelihood(torch.zeros(groups.n_rows, k), groups, z)


def observe(labels, n_classes=3):
    return PairwiseSimilarity().observe(labels, PAIRS, n_classes)


WRONG_VALUES = {
    # Observations
    r"z must have one entry per group, shape \(2,\); got shape \(3,\)": lambda: pairs(z=(1, 0, 1)),
    r"one entry per group, shape \(2,\); got shape \(2, 2\)": lambda: pairs(z=((1, 0), (0, 1))),
    r"z must be 0 or 1; this does not hold for group 1 \(id 'b'\): z\[1\] is 2": lambda: pairs(z=(1, 2)),
    r"z must be 0 or 1; this does not hold for group 0 \(id 'a'\): z\[0\] is -1": lambda: pairs(z=(-1, 1)),
    r"this does not hold for groups 0 \(id 'a'\), 1 \(id 'b'\): z\[0\] is 7": lambda: pairs(z=(7, -7)),
    # Groups
    r"PairwiseSimilarity needs groups of 2.*group 1 \(id 'b'\): group 1 has 3": lambda: pairs(zeros(5), BAGS),
    "OrdinalRank needs groups of 2 members": lambda: OrdinalRank().observe([0, 1, 0, 1, 0], BAGS, 2),
    r"TripletComparison needs groups of 3 members; this does not hold for groups 0 .*, 1 .*: group 0 has 2": lambda: (
        TripletComparison().log_likelihood(zeros(4), PAIRS, [1, 0])
    ),
    r"OrdinalTriplet needs groups of 3 members; this does not hold for group 0 \(id 'a'\): group 0 has 2": lambda: (
        unbag.OrdinalTriplet().posterior(zeros(5), BAGS, [1, 0])
    ),
    "logits has 6 rows, but the groups were made for 4": lambda: pairs(zeros(6)),
    "logits has 3 rows, but the groups were made for 4": lambda: pairs(zeros(3)),
    "row number 3 is out of range for logits of 3 rows; see group 1": lambda: pairs(
        zeros(3), Groups.from_tuples([[0, 1], [2, 3]])
    ),
    # Logits and devices
    "distribution over classes, but there is NaN in row 2;": lambda: pairs(zeros(4, row_2=[0, NAN])),
    "NaN in rows 0, 3; .*diverged": lambda: pairs(zeros(4, row_0=[NAN, NAN], row_3=[0, NAN])),
    r"there is \+inf in row 1;": lambda: pairs(zeros(4, row_1=[0, INF])),
    "there is -inf for every class in row 3;": lambda: pairs(zeros(4, row_3=[-INF, -INF])),
    r"at least 2 classes, got .*\(4, 1\); for one logit .*torch.cat": lambda: pairs(zeros(4, 1)),
    r"MultipleInstance has two classes, negative and positive, but n_classes is 3; .*AtLeast\(1, label\)": lambda: (
        MultipleInstance().log_likelihood(zeros(5, 3), BAGS, [1, 0])
    ),
    "logits is on meta, but the groups are on cpu; move one": lambda: pairs(zeros(4).to("meta")),
    r"z is on meta, but the groups .*\.to\('cpu'\)": lambda: pairs(z=torch.ones(2, device="meta")),
    # Labels
    "labels must be from 0 to 2; this does not hold for row 2: row 2 has 3": lambda: observe([0, 1, 3, 0]),
    "from 0 to 2; this does not hold for rows 1, 2: row 1 has -1": lambda: observe([0, -1, 3, 0]),
    "labels has 3 rows, but the groups were made for 4": lambda: observe([0, 1, 2]),
    "labels has 5 rows, but the groups were made for 4": lambda: observe([0, 1, 2, 0, 1]),
    "row number 2 is out of range for labels of 2 rows; see group 1": lambda: PairwiseSimilarity().observe(
        [0, 1], Groups.from_tuples([[0, 1], [0, 2]]), 2
    ),
    "labels is on meta, but the groups are on cpu": lambda: observe(torch.zeros(4, device="meta")),
    "n_classes must be a whole number of at least 2, got 1": lambda: observe([0, 0, 0, 0], n_classes=1),
    "n_classes must be a whole number .*got 2.0": lambda: observe([0, 0, 0, 0], n_classes=2.0),
    "n_classes must be a whole number .*got True": lambda: observe([0, 0, 0, 0], n_classes=True),
    "two classes.*n_classes is 3": lambda: MultipleInstance().observe([0] * 5, BAGS, 3),
    # Settings
    "relation must be one of <, >, <=, >=; got '=='": lambda: OrdinalRank("=="),
    "impossible must be one of '-inf', 'raise', got 'ignore'": lambda: pairs(impossible="ignore"),
    # Proportions; the bags have 2 and 3 members
    r"group 1 \(id 'b'\) has 3 members, and its row sums to 4": lambda: proportions([[1, 1], [2, 2]]),
    r"must not be negative; .*group 0 .*z\[0\] is \[3, -1\]": lambda: proportions([[3, -1], [2, 1]]),
    r"counts must be whole numbers.*group 1 .*\[1.5, 1.5\]": lambda: proportions([[2, 0], [1.5, 1.5]]),
    r"add up to one.*group 1 .*sums to 0\.9": lambda: proportions([[0.5, 0.5], [0.5, 0.4]]),
    r"group 1 \(id 'b'\) has 3 members.*\[1.5, 1.5\]": lambda: proportions([[0.5, 0.5], [0.5, 0.5]]),
    r"not be negative.*group 0 .*\[1.5, -0.5\]": lambda: proportions([[1.5, -0.5], [1.0, 0.0]]),
    r"shape \(2, 2\); got shape \(2, 3\)": lambda: proportions([[1, 1, 0], [2, 1, 0]]),
    r"one row per group.*shape \(2, 2\); got shape \(1, 2\)": lambda: proportions([[1, 1]]),
    r"one column per class, shape \(2, 2\); got shape \(2,\)": lambda: proportions([1, 1]),
    r"must be finite.*group 1 \(id 'b'\)": lambda: proportions([[1.0, 0.0], [NAN, 1.0]]),
    r"must be finite.*group 1 ": lambda: proportions([[1.0, 0.0], [INF, 1.0]]),
    "method must be .*got 'fast'": lambda: proportions([[1, 1], [2, 1]], method="fast"),
    "max_states must be .*got 0": lambda: proportions([[1, 1], [2, 1]], max_states=0),
    r"method='exact' .*max_states.*count vectors.*group 0.*method='auto'": lambda: proportions(
        [[40] * 10], Groups.from_sizes([400]), k=10, method="exact"
    ),
    # Folds and functions
    r"z\[0\] is 3, which is not possible for group 0 \(id 'a'\) of size 2": lambda: fold((3, 0)),
    r"z\[1\] is 4, which is not possible for group 1 .*possible are 0, 1, 2, 3": lambda: fold((2, 4)),
    r"z must have one entry per group, 2 in all; got shape \(3,\)": lambda: fold((0, 0, 0)),
    r"not possible for group 0 \(id 'a'\) of size 2": lambda: from_function(sum, BAGS, [3, 0]),
    r"group 1 of 40 members and 10 classes has 10\^40 label vectors, more than .*FromFold": lambda: from_function(
        max, Groups.from_sizes([1, 40]), [0, 0], k=10
    ),
}
WRONG_TYPES = {
    r"z must be 0 or 1.*got torch.float32; convert it with z.long\(\)": lambda: pairs(z=(1.0, 0.0)),
    "z cannot be made into a tensor: .*pass numbers": lambda: pairs(z=("same", "other")),
    "z cannot be made into a tensor": lambda: pairs(z=(None, 1)),
    "z cannot be made into a tensor.*lists of equal length": lambda: pairs(z=((1,), (1, 0))),
    r"groups must be unbag.Groups, got list; .*from_ids\(ids\)": lambda: pairs(groups=[0, 1, 0, 1]),
    "groups must be unbag.Groups, got nd": lambda: MultipleInstance().observe([0, 1], np.zeros(2), 2),
    r"tensor of shape \(rows, classes\), got torch.float32 of shape \(4,\)": lambda: pairs(torch.zeros(4)),
    "logits must be a floating-point tensor.*got torch.int64": lambda: pairs(zeros(4).long()),
    "logits must be a floating-point tensor.*got ndarray": lambda: pairs(zeros(4).numpy()),
    "labels must be whole numbers, one per row; got torch.float32": lambda: observe([0.0, 1.0, 2.0, 0.0]),
    r"whole numbers, one per row; got .* of shape \(4, 1\)": lambda: observe([[0], [1], [2], [0]]),
    "counts or proportions, got torch.bool": lambda: proportions([[True, True], [True, True]]),
    r"step\(\(\), 0\) returned \[0\], which cannot be a state because it is not hashable; return a number": lambda: (
        fold((0, 0), start=(), step=lambda state, label: [*state, label])
    ),
}
IMPOSSIBLE = {
    r"the observations of group 0 \(id 'a'\): z\[0\] = 1 has probability zero; look for logits of -inf": lambda: pairs(
        zeros(4, row_0=[0, -INF], row_2=[-INF, 0]), impossible="raise"
    ),
    # The observation as it was handed in, not the number that a fold knows it by.
    r"group 1 \(id 'b'\): z\[1\] = 10 has probability zero": lambda: fold(
        (0, 10), finish=lambda state: 10 * state, logits=zeros(5, row_1=NO, row_2=NO, row_4=NO), impossible="raise"
    ),
}
REFUSED = {ValueError: WRONG_VALUES, TypeError: WRONG_TYPES, ImpossibleObservation: IMPOSSIBLE}


@pytest.mark.parametrize(("error", "message"), [(error, message) for error in REFUSED for message in REFUSED[error]])
def test_bad_input_is_refused(error, message):
    with pytest.raises(error, match=message):
        REFUSED[error][message]()


def test_an_aggregate_without_a_likelihood_says_what_it_lacks():
    class Unfinished(MultipleInstance):
        infer = unbag.Aggregate.infer

    with pytest.raises(TypeError, match="Unfinished must define log_prob or infer"):
        Unfinished().posterior(zeros(5), BAGS, [1, 0])


def test_an_impossible_observation_is_minus_infinity_unless_asked():
    logits = zeros(4, row_0=[0, -INF], row_2=[-INF, 0])
    assert pairs(logits).tolist() == [-INF, pytest.approx(np.log(0.5))]


class Column:
    """What columns of pandas, polars and pyarrow have in common; theirs are often read-only."""

    def to_numpy(self) -> np.ndarray:
        values = np.array([1, 0])
        values.flags.writeable = False
        return values


@pytest.mark.parametrize("z", [[1, 0], (1, 0), np.array([0, 1])[::-1], np.array([True, False]), Column()])
def test_columns_arrays_and_lists_are_read(z):
    likelihoods = PairwiseSimilarity().log_likelihood(zeros(4), PAIRS, z).exp()
    assert likelihoods.tolist() == pytest.approx([0.5, 0.5])
    assert observe([0, 1, 2, 0], n_classes=np.array([0, 2]).max() + 1).tolist() == [0, 0]
