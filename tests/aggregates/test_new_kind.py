"""A new kind of observation, learner or noise is one file: all that the package does with kinds it does with these."""

import json
import re
import sys

import numpy as np
import pytest
import torch
from table_files import blobs, call, write

import unbag
from unbag import Groups, diagnose
from unbag.aggregates.registry import AGGREGATES, find_kind, make_aggregate
from unbag.aggregates.symmetry import symmetry_of
from unbag.learners import MODELS, register_learner, register_model
from unbag.learners.base import LEARNERS, map_rows
from unbag.noise import KINDS, Noise, register_noise
from unbag.testing import check_aggregate

NEW_KIND = '''
from unbag import FromFold
from unbag.aggregates import Wording, register_aggregate


@register_aggregate
class SomePositive(FromFold):
    """Whether at least so many members are positive."""

    outcome = "yes_no"
    wording = Wording("Crowds", "whether some of its rows are positive", "crowd", "crowds", "some", "hardly any")

    def __init__(self, count=2):
        self.count = count
        super().__init__(0, lambda met, label: min(met + (label == 1), count), lambda met: met == count)
'''
ARGUMENTS = {"at_least": "(2)", "count_of": "(1)"}
FAST = {"model": "linear", "validation": unbag.CrossFitting(2), "random_state": 0}
ROUGH = pytest.mark.filterwarnings("ignore:.* held-out groups show the accuracy")
QUICK = ["--model", "linear", "--n-folds", 2]


@pytest.fixture
def kind(tmp_path, monkeypatch):
    """Make a file with a new kind of observation in the current folder, and return the class."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one])
    write(tmp_path / "crowds_of_ours.py", NEW_KIND)
    yield find_kind("crowds_of_ours:SomePositive")
    AGGREGATES.pop("some_positive", None)
    sys.modules.pop("crowds_of_ours", None)


def observed(folder, least=2):
    """Write observations of people.csv, and return the labels of its rows, and what was observed."""
    y = blobs(folder)
    z = (y.reshape(40, 4).sum(1) >= least).astype(int)
    write(folder / "crowds.csv", "group,observed\n" + "".join(f"g{g},{answer}\n" for g, answer in enumerate(z)))
    return y, z


@ROUGH
def test_in_python(kind, tmp_path):
    y, z = observed(tmp_path)
    X = np.stack([y + np.random.default_rng(0).normal(size=len(y)) / 10], 1)
    check_aggregate(kind(), n_classes=2, sizes=(1, 2, 4))
    groups = Groups.from_sizes([4] * 40)
    assert diagnose(kind(), groups, z, 2) == []
    (finding,) = diagnose(kind(), Groups.from_sizes([400] * 4), [0, 1, 0, 1], 2)
    assert finding.kind == "little_information"
    classifier = unbag.AggregateClassifier(kind(), n_classes=2, **FAST).fit(X, z, groups=groups)
    assert classifier.score(X, y) > 0.95
    likely = classifier.predict_groups(X, groups)
    np.testing.assert_allclose(likely, classifier.predict_groups(X, groups, z=[1] * 40))
    assert ((likely > 0.5) == z).all()
    assert classifier.predict_groups(X, Groups.from_tuples([[0]])) == [0]  # one member is never two
    classifier.save(tmp_path / "model")
    assert repr(unbag.load(tmp_path / "model").aggregate) == "SomePositive(count=2)"
    named = unbag.AggregateClassifier("some_positive", n_classes=2, **FAST).fit(X, z, groups=groups)
    np.testing.assert_array_equal(named.predict_proba(X), classifier.predict_proba(X))


def test_on_the_command_line(kind, tmp_path):
    observed(tmp_path)
    files = ["people.csv", "crowds.csv"]
    given = ["--aggregate", "crowds_of_ours:SomePositive(2)"]
    checked = call("check", *files, *given, "--n-classes", 2)
    assert checked.exit_code == 0, checked.output
    assert "aggregate    crowds_of_ours:SomePositive(2)" in checked.stdout
    write(tmp_path / "fit.toml", 'aggregate = "crowds_of_ours:SomePositive(2)"\nn_classes = 2\n')
    fitted = call("fit", *files, "--config", "fit.toml", "--out", "run", *QUICK)
    assert fitted.exit_code == 0, fitted.output
    assert call("predict", "run", "people.csv", "--out", "predicted.csv").exit_code == 0
    told = call("disaggregate", "run", *files, *given, "--out", "labels.csv")
    assert told.stdout == "160 lines written to labels.csv\n", told.output
    reported = call("report", "run", "--out", "page.html")
    assert reported.exit_code == 0, reported.output
    page = (tmp_path / "page.html").read_text()
    assert "The observation of each crowd is whether some of its rows are positive." in page
    assert "predicted probability of “hardly any”" not in page
    assert "predicted probability of “some”" in page
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["sets"][0]["kind"] == "some_positive"


def test_nothing_is_imported_or_made_because_a_folder_says_so(kind, tmp_path):
    observed(tmp_path)
    files = ["people.csv", "crowds.csv"]
    given = ["--aggregate", "crowds_of_ours:SomePositive", "--n-classes", 2]
    assert call("fit", *files, *given, "--out", "run", *QUICK).exit_code == 0
    write(tmp_path / "crowds_of_ours.py", "raise SystemExit('this ran')")
    del sys.modules["crowds_of_ours"], AGGREGATES["some_positive"]
    assert call("predict", "run", "people.csv", "--out", "predicted.csv").exit_code == 0
    refused = call("disaggregate", "run", *files, "--out", "labels.csv")
    assert refused.exit_code == 2
    assert "fitted to crowds_of_ours:SomePositive, which is your own code; name it with --aggregate" in refused.stderr
    assert "crowds_of_ours" not in sys.modules
    with pytest.raises(
        ValueError, match="'some_positive', which is not registered; import the module that does it, or"
    ):
        unbag.load("run/model")


@pytest.mark.parametrize(
    ("written", "aggregate"),
    [
        ("at_least(2)", unbag.AtLeast(2)),
        ("at_least( 3 , low )", unbag.AtLeast(3, label=0)),
        ("at_least(label = low, count=3)", unbag.AtLeast(3, label=0)),
        ("count_of(high)", unbag.CountOf(1)),
        ("label_proportions(exact, max_states=9)", unbag.LabelProportions("exact", 9)),
        ("ordinal_rank(>=)", unbag.OrdinalRank(">=")),
        ("unbag:OrdinalRank", unbag.OrdinalRank()),
    ],
)
def test_what_is_written_makes_an_aggregate(written, aggregate):
    assert repr(make_aggregate(written, ["low", "high"])) == repr(aggregate)


def test_a_relation_is_told_in_one_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blobs(tmp_path)
    checked = call("check", "people.csv", "ranks.csv", "--aggregate", "ordinal_rank(>)", "--n-classes", 2)
    assert checked.exit_code == 2
    assert "contains the relation; use the option --relation instead" in checked.output


WRITTEN = {
    "at_least(2, label=high)": ("few", lambda n: int(n < 2), unbag.AtLeast(2, label=1)),
    "count_of(1)": ("how many", lambda n: n, unbag.CountOf(1)),
    "majority": ("majority", lambda n: ["low", "high"][n > 2], unbag.Majority()),
}


@pytest.mark.parametrize("written", WRITTEN)
def test_observations_of_one_class_on_the_command_line(written, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    column, answer, aggregate = WRITTEN[written]
    numbers = blobs(tmp_path).reshape(40, 4).sum(1).tolist()
    lines = (tmp_path / "people.csv").read_text().splitlines()
    write(tmp_path / "people.csv", "".join(f"{line.rsplit(',', 1)[0]}\n" for line in lines))  # no labels
    rows = "".join(f"g{g},{answer(n)}\n" for g, n in enumerate(numbers))
    write(tmp_path / "seen.csv", f"group,{column}\n{rows}")
    options = ["--n-classes", 2] if "(1)" in written else ["--classes", "low,high"]
    files = ["people.csv", "seen.csv"]
    checked = call("check", *files, "--aggregate", written, *options, "--json")
    assert checked.exit_code == 0, checked.output
    assert json.loads(checked.stdout)["understood"]["observations"][0]["aggregate"] == written
    fitted = call("fit", *files, "--aggregate", written, *options, "--out", "run", *QUICK, "--json")
    assert fitted.exit_code == 0, fitted.output
    (seen,) = json.loads(fitted.stdout)["summary"]["sets"]
    assert (seen["kind"], seen["aggregate"]) == (aggregate.name, repr(aggregate))
    assert repr(unbag.load("run/model").aggregate) == repr(aggregate)
    assert call("disaggregate", "run", *files, "--out", "labels.parquet").exit_code == 0
    assert call("report", "run", "--out", "page.html").exit_code == 0
    assert aggregate.wording.observed in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("written", "column", "answer", "words"),
    [
        ("count_of(1)", "count", "5", r"the size of the group; this does not hold for group 0 .id .g0..: .* 4 members"),
        ("count_of(1)", "count", "some", r"seen\.csv, row 1, column count: what was observed must be a number"),
        ("count_of(7)", "count", "1", r"label of 'count_of\(7\)' must be one of the classes 0, 1, got '7'"),
        ("count_of", "count", "1", r"'count_of' does not fit count_of\(label\): missing a required argument: 'label'"),
        ("at_least(2, 1, 1)", "z", "1", r"does not fit at_least\(count, label=1\): too many positional arguments"),
        ("at_least(2, label=0, label=1)", "z", "1", "has an argument twice"),
        ("at_least(0)", "z", "1", "count must be a whole number of at least 1, got 0"),
        ("at_least(5)", "z", "1", r"is 1, which is not possible for group 0 .id .g0.. of size 4; possible are 0"),
        ("at_least(2)", "healthy", "1", "call it enough if it is: enough members are of the class, or few if"),
        ("majority", "majority", "high", "column majority: the observation must be one of the classes '0', '1', got"),
        ("median(2)", "z", "1", r"there is no aggregate 'median\(2\)'; choose one of label_proportions, .*, majority"),
        ("no_such_module:Kind", "z", "1", "'no_such_module:Kind' could not be imported: No module named"),
        ("unbag:Groups", "z", "1", "Groups in unbag is no subclass of unbag.Aggregate"),
        (
            "crowds_of_ours:SomePositive",
            "not_many",
            "1",
            "may mean the contrary of what SomePositive observes; call it",
        ),
    ],
)
@pytest.mark.usefixtures("kind")
def test_what_does_not_fit_is_told(written, column, answer, words, tmp_path):
    blobs(tmp_path)
    rows = "".join(f"g{g},{answer if g == 0 else g % 2}\n" for g in range(40))
    write(tmp_path / "seen.csv", f"group,{column}\n{rows}")
    checked = call("check", "people.csv", "seen.csv", "--aggregate", written, "--n-classes", 2, width=400)
    assert checked.exit_code == 2
    assert re.search(words, " ".join(checked.output.split())), checked.output


def test_a_further_file_has_arguments_too(kind, tmp_path):
    observed(tmp_path)
    also = ["--also", "at_least(count=2,label=1)=crowds.csv", "--also", "crowds_of_ours:SomePositive=crowds.csv"]
    checked = call("check", "people.csv", "counts.csv", *also, "--json")
    seen = json.loads(checked.stdout)["understood"]["observations"]
    assert [one["aggregate"] for one in seen[1:]] == ["at_least(count=2,label=1)", "crowds_of_ours:SomePositive"]


TUPLES = """
from unbag import FromFold, LabelProportions


class Four(FromFold):
    size = 4

    def __init__(self, scale=1):
        super().__init__(0, lambda total, label: total + label, lambda total: scale * total)


class TwoCounted(LabelProportions):
    size = 2
"""


def test_tuples_of_any_size(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    write(tmp_path / "tuples_of_ours.py", TUPLES)
    ids, y = np.arange(160).reshape(40, 4), blobs(tmp_path).reshape(40, 4)
    rows = [f"p{a},p{b},p{c},p{d},{sum(own) / 2}\n" for (a, b, c, d), own in zip(ids, y, strict=True)]
    write(tmp_path / "fours.csv", "id_1,id_2,id_3,id_4,seen\n" + "".join(rows))
    rows = [f"p{a},p{b},{2 - c - d},{c + d}\n" for (a, b, *_), (c, d, *_) in zip(ids, y, strict=True)]
    write(tmp_path / "twos.csv", "a,b,0,1\n" + "".join([*rows, rows[0]]))
    for file, written, size in (("fours.csv", "Four(0.5)", 4), ("twos.csv", "TwoCounted", 2)):
        checked = call("check", "people.csv", file, "-a", f"tuples_of_ours:{written}", "--n-classes", 2, "--json")
        assert checked.exit_code == 0, checked.output
        found = json.loads(checked.stdout)
        assert len(found["understood"]["observations"][0]["members"]) == size
        again = [one["message"] for one in found["problems"] if one["severity"] == "warning"]
        assert again == (["1 row repeats an earlier one, and counts once more"] if size == 2 else [])
    del sys.modules["tuples_of_ours"]


@ROUGH
def test_classes_that_ones_own_function_leaves_unnamed():
    same = unbag.FromFunction(lambda labels: labels[0] == labels[1])
    pairs = Groups.from_tuples(np.arange(100).reshape(50, 2))
    y = np.random.default_rng(0).integers(0, 3, 100)
    X = np.stack([y, -y], 1) + np.random.default_rng(1).normal(size=(100, 2)) / 10
    z = same.observe(y, pairs, 3)
    classifier = unbag.AggregateClassifier(same, n_classes=3, **FAST).fit(X, z, groups=pairs)
    assert "unnamed_classes" in [finding.kind for finding in classifier.diagnosis_]
    likely = classifier.predict_groups(X, pairs)
    by_kind = unbag.PairwiseSimilarity().expect(torch.from_numpy(classifier.predict_log_proba(X)), pairs)
    np.testing.assert_allclose(likely, by_kind)


def test_what_kinds_leave_unnamed_is_computed():
    made = {name: make_aggregate(f"{name}{ARGUMENTS.get(name, '')}", ["0", "1"]) for name in AGGREGATES}
    found = {name: symmetry_of(aggregate, 2) for name, aggregate in made.items()}
    found |= {name: symmetry_of(made[name], 3) for name in ("pairwise_similarity", "ordinal_triplet")}
    unnamed = {name: symmetry for name, symmetry in found.items() if symmetry != "none"}
    assert unnamed == {"pairwise_similarity": "any", "triplet_comparison": "any", "ordinal_triplet": "reversal"}


class Middle:
    """Rows are of class 1 where their first column is above a number."""

    kind = "middle"

    def __init__(self, border, sharpness):
        self.border, self.sharpness = border, sharpness

    def outputs(self, X):
        logit = map_rows(lambda part: self.sharpness * (part[:, :1] - self.border), X)
        return torch.cat([torch.zeros_like(logit), logit], 1)

    def state(self):
        return {"sharpness": self.sharpness}, {"border": self.border}

    @classmethod
    def from_state(cls, values, tensors, model=None):
        return cls(tensors.pop("border"), values["sharpness"])


class Middles:
    """A path of borders that become sharper."""

    name = "middles"

    def prepare(self, problem, seed):
        return self

    def path(self, problem, start, seed):
        for sharpness in (1.0, 4.0, 16.0):
            yield Middle(problem.X[:, 0].mean(), sharpness)


class Logistic(Noise):
    """Noise with the logistic distribution."""

    code, name = 77, "logistic"

    @staticmethod
    def log_density(x, scale):
        return torch.nn.functional.logsigmoid(x / scale) + torch.nn.functional.logsigmoid(-x / scale) - scale.log()

    @staticmethod
    def variance(scale):
        return (scale * torch.pi).square() / 3

    def sample(self, shape, generator=None):
        return self.scale * torch.rand(shape, generator=generator, dtype=torch.float64).logit()


@pytest.fixture
def registered():
    yield register_model(Middle), register_learner(Middles), register_noise(Logistic)
    del MODELS["middle"], LEARNERS["middles"], KINDS["logistic"]


@pytest.mark.usefixtures("registered")
@pytest.mark.filterwarnings("ignore::unbag.UnbagWarning")
def test_a_learner_and_a_noise_of_ones_own(tmp_path):
    y = np.random.default_rng(0).integers(0, 2, 160)
    X = np.stack([y + np.random.default_rng(1).normal(size=160) / 10, np.zeros(160)], 1)[:, :1]
    groups = Groups.from_sizes([4] * 40)
    kind = unbag.PublishedCounts(noise="logistic:0.3", seed=1)
    classifier = unbag.AggregateClassifier(kind, "middles", validation=unbag.CrossFitting(2), random_state=0)
    classifier.fit(X, kind.observe(y, groups, 2), groups=groups)
    assert classifier.score(X, y) == 1
    assert [c["model"] for c in classifier.candidates_] == ["middles"]
    classifier.save(tmp_path / "model")
    again = unbag.load(tmp_path / "model")
    assert repr(again.aggregate) == repr(kind)
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))
    del MODELS["middle"]
    with pytest.raises(ValueError, match="models of kind 'middle' are not registered; import the module that does it"):
        unbag.load(tmp_path / "model")
    register_model(Middle)
    with pytest.raises(ValueError, match="must have a unique name and code, got 'logistic' and 77"):
        register_noise(type("Other", (Logistic,), {}))
