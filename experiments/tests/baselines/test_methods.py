"""The interface of all methods: what they say of themselves, how they train, prepare and predict."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from baseline_runs import QUICK, task

from unbag import Groups
from unbag.training import Settings
from unbag_experiments.baselines import METHODS, Judged, Method, accuracy
from unbag_experiments.baselines.attention import Attention
from unbag_experiments.baselines.contrastive import Contrastive
from unbag_experiments.baselines.minimax_feature import minimax
from unbag_experiments.baselines.siamese import Siamese
from unbag_experiments.baselines.triplet import Triplet
from unbag_experiments.baselines.tuple_2_1 import Tuple21

PROBLEMS = {
    "pairwise_similarity",
    "triplet_comparison",
    "label_proportions",
    "multiple_instance",
    "ordinal_rank",
    "ordinal_triplet",
}
IN_PAPER = {
    "pairwise_similarity": {"uum", "log_likelihood", "siamese", "contrastive"},
    "triplet_comparison": {"uum", "log_likelihood", "triplet", "tuple_2_1"},
    "label_proportions": {"uum", "log_likelihood", "rot"},
    "multiple_instance": {"uum", "log_likelihood", "minimax_feature"},
}
EMBEDDINGS = ["siamese", "contrastive", "triplet", "tuple_2_1"]
GIVEN = Settings(epochs=50, warm_up=20, remember_from=30)


# ------------------------------------------------------------------------------------------------ who is there


def test_finds_the_methods_of_the_paper_and_those_beside_them():
    for problem, names in IN_PAPER.items():
        assert {name for name, one in METHODS.items() if one.in_paper and problem in one.problems} == names
    assert {name for name, one in METHODS.items() if not one.in_paper} == {
        *("mean_proportion", "attention", "supervised"),
        *("easy_llp", "llp_vat", "mixbag", "self_attention"),
    }


@pytest.mark.parametrize("name", METHODS)
def test_says_what_it_is(name):
    method = METHODS[name]
    assert method.name == name
    assert method.title
    assert method.source
    assert method.problems
    assert set(method.problems) <= PROBLEMS


def test_the_name_of_an_objective_tells_its_constants():  # by which a saved run is recognised
    assert repr(Siamese(margin=2.0).objective) != repr(Siamese(margin=3.0).objective)
    assert " at 0x" not in repr(Siamese().objective)


# ---------------------------------------------------------------------------------------------------- settings


def test_uum_trains_as_the_experiment_says():
    assert METHODS["uum"].settings(GIVEN) == GIVEN


def test_the_likelihood_is_a_warm_up_to_the_end():
    settings = METHODS["log_likelihood"].settings(GIVEN)
    assert {settings.phase(epoch) for epoch in range(50)} == {"likelihood"}


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.objective is not None])
def test_others_remember_nothing(name):
    settings = METHODS[name].settings(GIVEN)
    assert (settings.warm_up, settings.remember_from, settings.epochs) == (0, None, 50)


def test_embeddings_are_looked_at_as_often_as_others():
    assert Contrastive().settings(replace(GIVEN, score_every=3)).score_every == 3


def test_attention_trains_by_a_rate_of_its_own_and_no_longer_than_it_needs():
    settings = Attention(learning_rate=0.01, weight_decay=0.1).settings(replace(GIVEN, learning_rate=0.2, epochs=3500))
    assert (settings.learning_rate, settings.weight_decay, settings.epochs) == (0.01, 0.1, 3500)
    assert Attention().settings(replace(GIVEN, epochs=20)).epochs == 20


# ------------------------------------------------------------------------------------------------------ models


@pytest.mark.parametrize("name", METHODS)
def test_models_have_as_many_outputs_as_the_method_says(name):
    method = METHODS[name]
    model = method.make_model("mlp", (7,), 2 if "multiple_instance" in method.problems else 3)
    outputs = method.n_outputs(2 if "multiple_instance" in method.problems else 3)
    assert model(torch.zeros(4, 7)).shape == (4, outputs)


@pytest.mark.parametrize("kind", [Siamese, Contrastive, Triplet, Tuple21])
def test_embeddings_are_as_wide_as_asked_for(kind):
    assert kind(width=8).make_model("linear", (5,), 3)(torch.zeros(2, 5)).shape == (2, 8)
    assert kind().n_outputs(3) == 3
    with pytest.raises(ValueError, match="width must be at least 2, or None for one output per class; got 1"):
        kind(width=1)
    with pytest.raises(TypeError, match="width must be a whole number, or None for one output per class"):
        kind(width=2.5)


@pytest.mark.parametrize(
    ("kind", "constant"),
    [(Siamese, "margin"), (Contrastive, "margin"), (Triplet, "margin"), (Tuple21, "regulariser")],
)
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_refuses_constants_without_meaning(kind, constant, value):
    with pytest.raises(ValueError, match=f"{constant} must be a positive number"):
        kind(**{constant: value})


def test_attention_refuses_a_rate_without_meaning():
    with pytest.raises(ValueError, match="learning_rate must be a positive number, got 0"):
        Attention(learning_rate=0)


# -------------------------------------------------------------------------------------------------- preparation


def test_the_ceiling_is_told_the_labels_of_training_rows_and_of_no_others():
    given = task("pairwise_similarity")
    own = METHODS["supervised"].prepare(given)
    assert own.observations.groups.members.tolist() == given.train_rows.tolist()
    assert own.observations.z.argmax(1).tolist() == given.labels[given.train_rows].tolist()
    assert own.observations.z.sum(1).eq(1).all()
    assert own.validation is given.validation
    assert own.test is given.test
    assert own.permuted


def test_the_ceiling_needs_labels():
    with pytest.raises(ValueError, match="the supervised ceiling needs"):
        METHODS["supervised"].prepare(task("multiple_instance"))


def test_minimax_rows_are_those_of_the_bags():
    given = task("multiple_instance")
    own = METHODS["minimax_feature"].prepare(given)
    for judged, rows in ((given.validation, own.validation), (given.test, own.test)):
        assert rows.bags is None
        assert rows.truth is judged.truth
        for place, bag in zip(rows.rows.tolist(), judged.rows.split(judged.bags.sizes.tolist()), strict=True):
            members = given.X[bag]
            assert own.X[place].tolist() == [*members.min(0).values.tolist(), *members.max(0).values.tolist()]
    groups = given.observations.groups
    assert own.train_rows.tolist() == own.observations.groups.members.tolist()
    for place, (bag, label) in enumerate(
        zip(groups.members.split(groups.sizes.tolist()), given.observations.z.tolist(), strict=True)
    ):
        row = int(own.observations.groups.members[place])
        assert own.X[row, 3:].tolist() == given.X[bag].max(0).values.tolist()
        assert own.observations.z[place].tolist() == [1 - label, label]
    rows = torch.cat([own.train_rows, own.validation.rows, own.test.rows])
    assert rows.sort().values.tolist() == list(range(len(own.X)))


def test_minimax_of_one_member_is_that_member_twice():
    row = torch.tensor([[3.0, -2.0]])
    assert minimax(row, Groups.from_sizes([1])).tolist() == [[3.0, -2.0, 3.0, -2.0]]


def test_minimax_needs_bags():
    given = task("multiple_instance")
    rows = Judged(torch.tensor([0]), torch.tensor([1]))
    with pytest.raises(ValueError, match="must have bags, not single rows"):
        METHODS["minimax_feature"].prepare(replace(given, test=rows))


PREPARING = ("supervised", "minimax_feature", "easy_llp", "mixbag")


@pytest.mark.parametrize("name", [name for name in METHODS if name not in PREPARING])
def test_others_take_the_task_as_it_is(name):
    given = task("pairwise_similarity")
    assert METHODS[name].prepare(given) is given


# --------------------------------------------------------------------------------------------------- prediction


def test_a_row_is_of_the_class_with_the_largest_output():
    given = task("pairwise_similarity")
    outputs = torch.tensor([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    assert Method().predict(outputs, given.test, given).tolist() == [1, 0]


def test_a_bag_is_positive_where_that_is_more_likely_than_not():
    given = task("multiple_instance")
    outputs = torch.randn(len(given.test.rows), 2, generator=torch.Generator().manual_seed(0))
    found = METHODS["uum"].predict(outputs, given.test, given)
    bags = outputs.double().softmax(1).split(given.test.bags.sizes.tolist())
    assert found.tolist() == [int(1 - float(bag[:, 0].prod()) > 0.5) for bag in bags]
    assert 0 < found.sum() < len(found)


def test_attention_weighs_the_members_of_a_bag_and_takes_a_row_for_a_bag_of_one():
    given = task("multiple_instance")
    outputs = torch.tensor([[0.0, -3.0], [2.0, 1.0], [0.0, 1.0]])
    bags = Judged(torch.arange(3), torch.tensor([1, 0]), Groups.from_sizes([2, 1]))
    rows = Judged(torch.arange(3), torch.tensor([0, 1, 1]))
    assert METHODS["attention"].predict(outputs, bags, given).tolist() == [1, 1]
    assert METHODS["attention"].predict(outputs - 1, bags, given).tolist() == [0, 0]
    assert METHODS["attention"].predict(outputs, rows, given).tolist() == [0, 1, 1]


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_clusters_are_classes_without_names(name):
    given = task("pairwise_similarity")
    truth = given.test.truth
    noise = torch.randn(len(truth), 4, generator=torch.Generator().manual_seed(0))
    outputs = 0.1 * noise + 3 * torch.eye(4)[truth]
    found = METHODS[name].predict(outputs, given.test, given)
    assert accuracy(found, truth, permuted=True) == 1.0
    assert torch.equal(found, METHODS[name].predict(outputs, given.test, given))


def test_triplets_are_clustered_by_direction():
    given = task("triplet_comparison")
    truth = given.test.truth
    length = torch.linspace(0.01, 100, len(truth))[:, None]
    found = METHODS["triplet"].predict(length * torch.eye(3)[truth], given.test, given)
    assert accuracy(found, truth, permuted=True) == 1.0


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_a_collapsed_embedding_is_one_class(name):
    given = task("pairwise_similarity")
    assert METHODS[name].predict(torch.ones(len(given.test.rows), 3), given.test, given).unique().tolist() == [0]


@pytest.mark.parametrize("name", METHODS)
def test_a_model_that_diverged_does_not_end_the_others(name):
    given = task(METHODS[name].problems[0])
    own = METHODS[name].prepare(given)
    outputs = torch.full((len(own.test.rows), METHODS[name].n_outputs(own.n_classes)), math.nan)
    found = METHODS[name].predict(outputs, own.test, own)
    assert found.shape == own.test.truth.shape
    assert 0 <= accuracy(found, own.test.truth, own.permuted) <= 1


def test_quick_settings_pass_through_every_phase():  # so that the runs of all methods in these tests do
    assert len({QUICK.phase(epoch) for epoch in range(QUICK.epochs)}) == 2
