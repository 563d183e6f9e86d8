"""The plan: every figure of the paper has its cell, with the settings of the appendix, in order of importance."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from unbag_experiments import datasets, golden, plan
from unbag_experiments.baselines import METHODS
from unbag_experiments.paper import PAPER
from unbag_experiments.plan import FIRST, PARTS, STATISTICS, Cell, Choice, Work, select


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
    for part in PARTS:
        if part.methods is None:
            for problem in part.problems:
                fitting = {name for name, one in METHODS.items() if problem in one.problems and not one.named_only}
                cells = select(tables=[part.table], problems=[problem])
                assert {cell.method for cell in cells} == fitting - set(part.without)


def test_all_methods_of_a_part_are_trained_and_looked_at_alike():
    alike = ("epochs", "batch_size", "score_every", "score_from", "patience", "precision")
    for part in PARTS:
        for problem in part.problems:
            cells = [cell for cell in part.cells(part.datasets) if cell.problem == problem]
            found = {
                tuple(getattr(METHODS[one.method].settings(one.settings), name) for name in alike) for one in cells
            }
            assert len(found) == 1
            assert len({str(one.choices) for one in cells}) == 1
            assert len({one.seeds() for one in cells}) == 1


def test_nothing_is_chosen_during_the_warm_up_and_patience_is_the_same_after_it():
    for one in select():
        settings = METHODS[one.method].settings(one.settings)
        assert one.settings.score_from >= one.settings.warm_up
        assert settings.patient_from == one.settings.score_from


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
    assert settings.patience == (10 if model == "densenet" else None)
    assert {choice.changes.get("batch_size", settings.batch_size) for choice in given.choices} == (
        {128, 512, 4096} if model == "logistic" else {128}
    )
    assert (settings.precision == "bfloat16") == (model == "densenet") == given.one_by_one


@pytest.mark.parametrize("dataset", ["msplice", "optdigits", "pendigits", "usps", "vehicle"])
def test_all_tables_have_the_same_nine_choices(dataset):
    for table, problem in (("similarity_uci", "pairwise_similarity"), ("llp_uci", "label_proportions")):
        found = cell(table, problem, dataset).choices
        assert list(found) == [
            Choice(scaling, changes, dropout)
            for changes, dropout in (({}, 0.0), ({"weight_decay": 1e-4}, 0.0), ({}, 0.2))
            for scaling in ("none", "table", "standard")
        ]


def test_images_are_scaled_in_one_way_and_bags_in_two():
    assert cell("similarity_benchmark", dataset="mnist").choices == (Choice("table"),)
    assert {one.scaling for one in cell("mil", "multiple_instance", "fox").choices} == {"none", "standard"}


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
    stages = [one.cell.part.stage for one in ordered]
    assert stages == sorted(stages)
    names = list(dict.fromkeys("mil" if one.cell.data == "bags" else one.cell.model for one in ordered))
    assert names == ["mlp", "mil", "lenet", "densenet"]
    coloured = [one for one in ordered if one.cell.part.stage == 4]
    turns = [(one.cell.method in FIRST, one.seeds[0]) for one in coloured]
    assert list(dict.fromkeys(turns)) == [(True, 0), (True, 1), (False, 0), (False, 1)]
    assert {one.cell.dataset for one in coloured} == {"cifar10", "svhn"}


def test_the_largest_size_is_the_cell_of_the_main_table():
    largest = cell("similarity_sizes", dataset="cifar10", n_groups=120_000)
    assert largest.same_as == cell("similarity_benchmark", dataset="cifar10", n_groups=120_000)
    assert largest.same_as in select(tables=["similarity_benchmark"])
    assert largest.same_as.digest == largest.digest
    assert cell("similarity_sizes", dataset="cifar10", n_groups=10_000).same_as is None


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


def test_trials_have_fresh_seeds_and_no_more_than_are_planned():
    folds = cell("mil", "multiple_instance", "fox", protocol="ten_fold")
    assert folds.seeds() == range(1000, 1010)
    assert [len(folds.seeds(trials)) for trials in (3, 12)] == [3, 10]
    assert cell().seeds() == range(1000, 1010)
    assert cell("mil", "multiple_instance", "fox").seeds() == range(1000, 1005)
    assert cell("ordinal", "ordinal_rank", "digits").seeds() == range(1000, 1005)
    assert STATISTICS["least_trials"] <= min(part.trials for part in PARTS)


def test_a_digest_is_of_all_that_determines_trials_and_of_nothing_else():
    given = cell()
    others = [
        cell(dataset="vehicle"),
        cell(method="siamese"),
        cell(n_groups=5),
        cell(epochs=3),
        cell("triplet_uci", "triplet_comparison"),
        cell("similarity_noinit", dataset="usps"),
    ]
    assert len({one.digest for one in (given, *others)}) == 7
    assert cell().digest == given.digest


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": {**cell().part.settings, "score_every": 2}},
        {"choices": cell().choices[:3]},
        {"trials": 11},
        {"model": "linear"},
        {"group_size": 3},
    ],
)
def test_every_entry_of_a_part_is_in_the_digest_of_its_cells_alone(changes, monkeypatch):
    before = {one.key: one.digest for one in select()}
    changed = tuple(replace(part, **changes) if part.table == "similarity_uci" else part for part in PARTS)
    monkeypatch.setattr(plan, "PARTS", changed)
    plan._digest.cache_clear()
    after = {one.key: one.digest for one in select()}
    plan._digest.cache_clear()
    assert {key for key in before if before[key] != after[key]} == {
        key for key in before if key.startswith("similarity_uci")
    }


def test_a_new_part_changes_no_digest(monkeypatch):
    before = {one.key: one.digest for one in select()}
    larger = replace(cell("llp_uci", "label_proportions").part, table="llp_uci_16", group_size=16)
    monkeypatch.setattr(plan, "PARTS", (*PARTS, larger))
    monkeypatch.setattr(plan, "TABLES", (*plan.TABLES, "llp_uci_16"))
    plan._digest.cache_clear()
    after = {one.key: one.digest for one in select()}
    plan._digest.cache_clear()
    assert before.items() < after.items()
    assert not set(before.values()) & {after[key] for key in after.keys() - before.keys()}


def test_the_plan_is_frozen():
    """Trials of a digest that changes are lost: a change of the plan is a new plan, with seeds of its own."""
    for name, beyond in (("plan_digests.json", False), ("beyond_digests.json", True)):
        stored = json.loads((Path(__file__).parent / name).read_text())
        assert {one.key: one.digest for one in select() if one.part.is_beyond == beyond} == stored


def test_what_goes_beyond_the_paper_has_seeds_and_methods_of_its_own():
    beyond = [one for one in select() if one.part.is_beyond]
    assert {one.seeds()[0] for one in beyond} == {2000}
    named = {name for name, one in METHODS.items() if one.named_only}
    assert named == {"easy_llp", "llp_vat", "mixbag", "self_attention"}
    assert {one.table for one in select(methods=sorted(named))} == {one.table for one in beyond}
    for one in beyond:
        if one.problem == "label_proportions":  # as many rows in a step, and in all groups, as with groups of 6
            assert one.settings.batch_size * one.part.group_size == 768
            assert one.n_groups is None or 0 <= 180_000 - one.n_groups * one.part.group_size < one.part.group_size


@pytest.mark.parametrize("given", [cell(), cell(method="contrastive"), cell("llp_uci", "label_proportions")])
def test_the_code_of_trials_gives_the_golden_numbers(given):
    golden._check.cache_clear()
    golden.check(given)
    assert golden.digest(given) is not None


def test_every_kind_of_cell_has_golden_numbers():
    assert {golden.kind(one) for one in select()} == set(golden.known())


def test_numbers_of_new_kinds_are_added_and_known_ones_stay(monkeypatch, tmp_path):
    names = [golden.kind(one) for one in select()]
    some = {name: [1.5] for name in names if not name.startswith("mlp, ordinal_rank")}
    monkeypatch.setattr(golden, "known", lambda: some)
    monkeypatch.setattr(golden, "compute", lambda cell: [2.5])
    golden.add_missing(tmp_path / "golden.json")
    found = json.loads((tmp_path / "golden.json").read_text())
    assert found.keys() == set(names)
    assert {name for name, numbers in found.items() if numbers == [2.5]} == set(names) - some.keys() != set()


def test_a_method_that_the_plan_does_not_have_needs_none(monkeypatch):
    monkeypatch.setitem(METHODS, "mine", METHODS["contrastive"])
    golden.check(cell(method="mine"))
    assert golden.digest(cell(method="mine")) is None


def test_what_no_table_has_is_refused():
    with pytest.raises(ValueError, match="the plan has no table mil of pairwise_similarity under the protocol paper"):
        _ = cell("mil").settings
