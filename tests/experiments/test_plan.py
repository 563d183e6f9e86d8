"""The plan: every figure of the paper has its cell, with the settings of the appendix, in order of importance."""

from __future__ import annotations

import pytest

from unbag import datasets
from unbag.baselines import METHODS
from unbag.experiments.paper import PAPER
from unbag.experiments.plan import FIRST, PATIENCE, SIZES, TABLES, Cell, Work, select


def cell(table="similarity_uci", problem="pairwise_similarity", dataset="usps", method="uum", **more):
    return Cell(table, problem, dataset, method, **more)


def test_every_figure_of_the_paper_has_exactly_one_cell():
    for figure in PAPER:
        same = [
            cell
            for cell in select(
                tables=[figure.table], names=[figure.dataset], methods=[figure.method], protocols=["paper"]
            )
            if figure.n_groups in (None, cell.n_groups)
        ]
        assert [cell.problem for cell in same] == [figure.problem]


def test_the_papers_figures_are_as_printed():
    by_name = {(one.table, one.dataset, one.method, one.n_groups): one for one in PAPER}
    assert len(by_name) == len(PAPER) == 170
    musk2 = by_name["mil", "musk2", "log_likelihood", None]
    assert (musk2.mean, musk2.uum_significantly) == (80.20, "better")
    assert by_name["triplet_sizes", "cifar10", "triplet", 60_000].mean == 7.21


def test_every_fitting_method_is_in_every_table_of_its_problem():
    for table in TABLES.values():
        if table.methods is None:
            for problem in table.problems:
                fitting = {name for name, method in METHODS.items() if problem in method.problems}
                cells = select(tables=[table.name], problems=[problem])
                assert {cell.method for cell in cells} == fitting - set(table.without)


def test_no_two_cells_share_a_name():
    cells = select()
    assert len({cell.key for cell in cells}) == len(cells)


@pytest.mark.parametrize(
    ("given", "model", "epochs", "warm_up", "remember_from"),
    [
        (cell(), "mlp", 200, 100, 100),
        (cell("triplet_uci", "triplet_comparison"), "mlp", 200, 100, 100),
        (cell("llp_uci", "label_proportions"), "mlp", 200, 0, 0),
        (cell("similarity_benchmark", dataset="mnist"), "lenet", 100, 20, 20),
        (cell("triplet_benchmark", "triplet_comparison", "cifar10"), "densenet", 100, 20, 20),
        (cell("llp_benchmark", "label_proportions", "svhn"), "densenet", 100, 0, 0),
        (cell("similarity_sizes", dataset="cifar10", n_groups=10_000), "densenet", 100, 20, 20),
        (cell("similarity_noinit", dataset="mnist"), "lenet", 100, 0, 30),
        (cell("similarity_noinit", dataset="cifar10"), "densenet", 100, 0, 50),
        (cell("mil", "multiple_instance", "fox"), "logistic", 3500, 0, None),
        (cell("ordinal", "ordinal_rank", "diabetes"), "mlp", 200, 100, 100),
    ],
)
def test_settings_are_those_of_the_appendix(given, model, epochs, warm_up, remember_from):
    settings = given.settings
    assert given.model == model
    assert (settings.epochs, settings.warm_up, settings.remember_from) == (epochs, warm_up, remember_from)
    assert settings.learning_rate == (0.2 if model == "logistic" else 1e-3)
    assert settings.weight_decay == 0
    assert settings.patience == (PATIENCE if model == "densenet" and given.table != "similarity_noinit" else None)
    assert {choice.changes.get("batch_size", settings.batch_size) for choice in given.choices} == (
        {128, 512, 4096} if model == "logistic" else {128}
    )
    assert (settings.precision == "bfloat16") == settings.compiled == (model == "densenet") == given.one_by_one


def test_scaling_is_open_for_tables_and_bags():
    scalings = {
        one.model: [choice.scaling for choice in one.choices]
        for one in (cell(), cell("similarity_benchmark", dataset="mnist"), cell("mil", "multiple_instance", "fox"))
    }
    assert scalings == {
        "mlp": ["none", "table", "standard"] * 2,
        "lenet": ["table"],
        "logistic": ["none", "standard"] * 3,
    }
    assert [choice.changes for choice in cell().choices] == [{}] * 3 + [{"weight_decay": 1e-4}] * 3


def test_indicators_are_left_as_they_are_and_dropped_instead():
    choices = cell(dataset="msplice").choices
    assert {choice.scaling for choice in choices} == {"none"}
    assert [choice.dropout for choice in choices] == [0.0, 0.0, 0.2]


def test_the_batch_size_is_open_where_there_are_bags_enough():
    sizes = {
        protocol: sorted(
            {one.changes["batch_size"] for one in cell("mil", "multiple_instance", protocol=protocol).choices}
        )
        for protocol in ("paper", "copies_together", "ten_fold")
    }
    assert sizes == {"paper": [128, 512, 4096], "copies_together": [128, 512, 4096], "ten_fold": [128]}


def test_fewer_epochs_keep_the_shares_of_the_phases():
    settings = cell(epochs=20).settings
    assert (settings.epochs, settings.warm_up, settings.remember_from) == (20, 10, 10)
    assert cell("mil", "multiple_instance", "fox", epochs=7).settings.remember_from is None


def test_the_most_important_comes_first():
    work = [Work(cell, (seed,)) for cell in select() for seed in (range(2) if cell.one_by_one else [0])]
    ordered = Work.in_order(work)
    assert sorted(map(repr, ordered)) == sorted(map(repr, work))
    places: dict[str, list[int]] = {}
    for place, one in enumerate(ordered):
        cell = one.cell
        if cell.dataset == "svhn":
            name = "svhn"
        elif cell.protocol != "paper":
            name = "honest"
        elif cell.table in ("ordinal", "similarity_noinit"):
            name = cell.table
        elif cell.table.endswith("_sizes"):
            name = "sizes"
        else:
            kind = {"mlp": "UCI", "logistic": "MIL", "lenet": "MNIST", "densenet": "CIFAR"}[cell.model]
            later = cell.method not in FIRST or one.seeds[0] > 0
            name = f"{kind} later" if later else kind
        places.setdefault(name, []).append(place)
    order = ["UCI", "MIL", "MNIST", "CIFAR"]
    order += [f"{kind} later" for kind in order] + ["honest", "ordinal", "similarity_noinit", "sizes", "svhn"]
    assert list(places) == order
    assert all(where == list(range(where[0], where[-1] + 1)) for where in places.values())


def test_the_largest_size_is_the_cell_of_the_main_table():
    largest = cell("similarity_sizes", dataset="cifar10", n_groups=SIZES[-1])
    assert largest.same_as == cell("similarity_benchmark", dataset="cifar10", n_groups=120_000)
    assert largest.same_as in select(tables=["similarity_benchmark"])
    assert cell("similarity_sizes", dataset="cifar10", n_groups=SIZES[0]).same_as is None


def test_the_ceiling_of_triplets_is_that_of_pairs():
    [ceiling] = select(tables=["triplet_uci"], names=["vehicle"], methods=["supervised"])
    assert [ceiling.same_as] == select(tables=["similarity_uci"], names=["vehicle"], methods=["supervised"])
    [of_pairs] = select(tables=["similarity_uci"], names=["vehicle"], methods=["supervised"])
    assert of_pairs.same_as is None


@pytest.mark.parametrize(
    ("option", "argument"),
    [
        ("table", "tables"),
        ("dataset", "names"),
        ("method", "methods"),
        ("problem", "problems"),
        ("protocol", "protocols"),
    ],
)
def test_unknown_names_are_refused_with_the_known_ones(option, argument):
    with pytest.raises(ValueError, match=f"{option} must be one of '.*', got 'mnits'"):
        select(**{argument: ["mnits"]})


def test_options_that_exclude_each_other_are_refused():
    with pytest.raises(ValueError, match="no cell"):
        select(tables=["mil"], names=["vehicle"])


def test_a_new_data_set_runs_in_the_table_that_is_named(monkeypatch):
    monkeypatch.setattr(datasets, "NAMES", (*datasets.NAMES, "iris"))
    cells = select(tables=["llp_uci"], names=["iris"], methods=["uum"])
    assert [(cell.dataset, cell.model) for cell in cells] == [("iris", "mlp")]
    with pytest.raises(ValueError, match="no cell"):
        select(names=["iris"])


def test_a_new_method_appears_in_all_tables_of_its_problems(monkeypatch):
    monkeypatch.setitem(METHODS, "mine", METHODS["contrastive"])
    tables = {cell.table for cell in select(methods=["mine"])}
    assert tables == {"similarity_uci", "similarity_benchmark", "similarity_sizes"}


def test_a_cross_validation_has_ten_trials():
    folds = cell("mil", "multiple_instance", "fox", protocol="ten_fold")
    assert [len(folds.seeds(trials)) for trials in (None, 3, 12)] == [10, 3, 10]
    assert [len(cell().seeds(trials)) for trials in (None, 3, 12)] == [5, 3, 12]
