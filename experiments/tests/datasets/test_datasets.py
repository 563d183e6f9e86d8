"""Every data set in every form it is kept in, and how it is found, downloaded and declared."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_datasets import cifar_batches, make, prepared, published

from unbag_experiments import datasets
from unbag_experiments.datasets import Content, Layout, Recipe, Remote, sets

PAPER = {
    *("musk1", "musk2", "elephant", "fox", "tiger"),
    *("msplice", "optdigits", "pendigits", "usps", "vehicle"),
    *("mnist", "kuzushiji-mnist", "fashion-mnist", "cifar10", "svhn"),
}
FORMS = [(name, form) for name in sorted(PAPER) for form in (prepared, published) if (name, form) != ("svhn", prepared)]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("UNBAG_DATA", str(tmp_path))
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path


def assert_holds(found: datasets.Dataset, content: Content) -> None:
    np.testing.assert_array_equal(found.X, content.X)
    np.testing.assert_array_equal(found.y, content.y)
    assert found.n_train == content.n_train
    if content.bags is None:
        assert found.bags is None
    else:
        np.testing.assert_array_equal(found.bags, content.bags)
        assert found.bags.dtype == np.int64
    assert found.X.dtype == (np.float32 if found.X.ndim == 2 else np.uint8)
    assert found.y.dtype == np.int64
    assert found.X.flags.c_contiguous
    assert found.X.flags.writeable


def test_the_paper_s_data_sets_are_all_there():
    assert set(datasets.NAMES) == PAPER
    assert {name.replace("-", "_") for name in PAPER} <= set(dir(datasets))
    with pytest.raises(AttributeError, match="no attribute 'cifar11'"):
        _ = datasets.cifar11


@pytest.mark.parametrize(("name", "form"), FORMS, ids=[f"{name}-{form.__name__}" for name, form in FORMS])
def test_every_form_gives_the_same_data(folder, name, form):
    content = make(name)
    form(name, content, folder)
    found = datasets.load(name)
    assert_holds(found, content)
    recipe = datasets.RECIPES[name]
    assert (found.name, found.classes, found.licence) == (name, recipe.classes, recipe.licence)
    assert recipe.home in found.source
    function = getattr(datasets, name.replace("-", "_"))
    assert_holds(function(), content)
    assert function.__name__ == name.replace("-", "_")
    assert recipe.licence in function.__doc__


def test_cifar10_is_read_from_unpacked_batches_too(folder):
    content = make("cifar10")
    (folder / "cifar-10-batches-bin").mkdir()
    for name, batch in cifar_batches(content).items():
        (folder / "cifar-10-batches-bin" / name).write_bytes(batch)
    assert_holds(datasets.cifar10(), content)


@pytest.mark.parametrize("name", ["musk1", "vehicle", "svhn"])
def test_files_may_lie_in_a_folder_named_as_the_data_set(folder, name):
    (folder / name).mkdir()
    content = make(name)
    published(name, content, folder / name)
    assert_holds(datasets.load(name), content)


def test_svhn_is_read_from_mosaics_that_are_padded_and_says_so(folder):
    content = make("svhn")
    flat = np.broadcast_to(content.X[:, :, :1, :1], content.X.shape)  # a picture of one colour stays so as a JPEG
    prepared("svhn", Content(flat, content.y, content.n_train), folder)
    found = datasets.svhn()
    np.testing.assert_allclose(found.X.astype(int), flat, atol=2)
    np.testing.assert_array_equal(found.y, content.y)
    assert found.n_train == 9
    assert "cut anew" in found.source
    published("svhn", content, folder)
    assert_holds(datasets.svhn(), content)  # which is taken where both are there
    assert "cut anew" not in datasets.svhn().source


def test_files_of_the_same_name_are_told_apart_by_their_folder(folder):
    for seed, name in enumerate(("mnist", "kuzushiji-mnist", "fashion-mnist")):
        published(name, make(name, seed), folder)
    for seed, name in enumerate(("mnist", "kuzushiji-mnist", "fashion-mnist")):
        assert_holds(datasets.load(name), make(name, seed))


def test_plain_files_may_be_compressed(folder):
    content = make("pendigits")
    published("pendigits", content, folder)
    for path in list(folder.iterdir()):
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert_holds(datasets.pendigits(), content)


def test_rows_of_a_bag_that_lie_apart_are_put_together(folder):
    content = make("musk1")
    published("musk1", content, folder)
    path = folder / "clean1.data"
    rows = path.read_text().splitlines()
    order = [0, 5, 1, 6, 2, 7, 3, 8, 4, *range(9, 14)]
    path.write_text("\n".join(rows[row] for row in order))
    assert_holds(datasets.musk1(), content)


def test_a_name_that_is_none_is_refused():
    with pytest.raises(ValueError, match=r"name must be one of 'cifar10', .*, got 'minst'"):
        datasets.load("minst")


@pytest.mark.parametrize("name", ["musk1", "musk2", "elephant", "fox", "tiger", "usps"])
def test_what_cannot_be_downloaded_is_asked_for_by_the_names_of_its_files(folder, name):
    with pytest.raises(FileNotFoundError) as error:
        datasets.load(name)
    recipe = datasets.RECIPES[name]
    assert f"{name} is not in {folder}. Put there {name}.npz, or {name}/{name}.npz, or " in str(error.value)
    assert " and ".join(recipe.layouts[-1].files) in str(error.value)
    assert recipe.home in str(error.value)
    assert "only" not in str(error.value)


def test_half_of_a_pair_is_not_enough(folder):
    published("usps", make("usps"), folder)
    (folder / "zip.test.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"Of these only zip\.train is there"):
        datasets.usps()


def test_a_folder_that_does_not_exist_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("UNBAG_DATA", str(tmp_path / "typo"))
    with pytest.raises(FileNotFoundError, match=r"UNBAG_DATA names the folder .*typo, which does not exist"):
        datasets.mnist()


def test_without_unbag_data_the_cache_is_used(monkeypatch, tmp_path):
    monkeypatch.delenv("UNBAG_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "unbag").mkdir()
    published("vehicle", make("vehicle"), tmp_path / "unbag")
    assert len(datasets.vehicle().X) == 14
    for elsewhere in ("relative", ""):
        monkeypatch.setenv("XDG_CACHE_HOME", elsewhere)
        assert datasets.base.data_folder() == tmp_path / "home" / ".cache" / "unbag"


# Downloading


@pytest.mark.parametrize("recipe", [one for one in datasets.RECIPES.values() if one.remotes], ids=lambda one: one.name)
def test_what_is_downloaded_is_what_is_read(recipe):
    offered = [remote.file.removesuffix(".gz") for remote in recipe.remotes]
    assert offered in [[file.removesuffix(".gz") for file in layout.files] for layout in recipe.layouts]
    assert f"{recipe.name}/" in recipe._places
    for remote in recipe.remotes:
        assert len(bytes.fromhex(remote.sha256)) == 32
        assert all(url.startswith("http") and url.endswith(f"/{remote.file}") for url in remote.urls)
    assert len({remote.sha256 for remote in recipe.remotes}) == len(recipe.remotes)


def test_a_data_set_is_downloaded_once_and_then_read(folder, monkeypatch, tmp_path_factory):
    made = tmp_path_factory.mktemp("made")
    content = make("msplice")
    published("msplice", content, made)
    file = (made / "splice.data").read_bytes()
    remote = Remote("splice.data", (f"file://localhost{made / 'splice.data'}",), hashlib.sha256(file).hexdigest())
    recipe = replace(datasets.RECIPES["msplice"], remotes=(remote,))
    monkeypatch.setitem(datasets.RECIPES, "msplice", recipe)
    assert_holds(datasets.load("msplice"), content)
    (made / "splice.data").unlink()
    assert_holds(datasets.load("msplice"), content)
    assert [path.name for path in (folder / "msplice").iterdir()] == ["splice.data"]


# Declaring


def test_a_new_module_is_a_new_data_set(monkeypatch, tmp_path, folder):
    (tmp_path / "coins.py").write_text(
        "from unbag_experiments.datasets.base import Layout, Recipe\n"
        "from unbag_experiments.datasets.readers import read_labelled\n"
        "def read(paths):\n"
        "    return read_labelled(paths[0], 3, ('heads', 'tails'))\n"
        "DATASETS = (Recipe('coins', 'coins', (2,), ('heads', 'tails'), 'nobody', 'nowhere', 'any',\n"
        "                   (Layout(('coins.txt',), read),)),)\n"
    )
    (folder / "coins.txt").write_text("1 2 tails\n3 4 heads\n")
    monkeypatch.setattr(sets, "__path__", [*sets.__path__, str(tmp_path)])
    found = datasets._find_recipes()
    assert set(found) == {*datasets.NAMES, "coins"}
    assert_holds(found["coins"].load(), Content(np.array([[1, 2], [3, 4]]), np.array([1, 0])))


TABLE = Content(np.arange(8.0).reshape(4, 2), np.array([0, 1, 1, 0]))
BAGS = replace(TABLE, y=np.array([0, 1]), bags=np.array([0, 0, 1, 1]))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (replace(TABLE, X=np.zeros((4, 3))), r"rows of shape \(2,\), got 4 of shape \(3,\)"),
        (replace(TABLE, X=np.zeros((0, 2)), y=np.zeros(0, int)), r"rows of shape \(2,\), got 0 of shape \(2,\)"),
        (replace(TABLE, y=np.array([0, 1])), "a label for each of 4 rows, got 2 labels"),
        (replace(BAGS, y=TABLE.y), "a label for each of 2 bags, got 4 labels"),
        (replace(TABLE, y=np.array([0, 1, 2, 0])), "labels from 0 to 1, got 0 to 2"),
        (replace(TABLE, y=np.array([0, -1, 1, 0])), "labels from 0 to 1, got -1 to 1"),
        (replace(TABLE, classes=("yes", "no")), r"the classes \('no', 'yes'\), got \('yes', 'no'\)"),
        (replace(TABLE, X=np.array([[0, 0], [0, 0], [0, np.nan], [np.inf, 0]])), "finite numbers, got others in row 2"),
        *(
            (replace(BAGS, bags=np.array(bags)), "a bag for every row, numbered from 0")
            for bags in ([0, 1, 0, 1], [1, 1, 2, 2], [0, 0, 2, 2], [-1, -1, 0, 0], [0, 0, 1])
        ),
    ],
)
def test_what_does_not_fit_the_declaration_is_refused(folder, content, problem):
    (folder / "a.txt").write_text("")
    layouts = (Layout(("a.txt",), lambda _: content),)
    recipe = Recipe("a", "a", (2,), ("no", "yes"), "nobody", "nowhere", "any", layouts)
    with pytest.raises(ValueError, match=f"a needs {problem}.*; this is what .*a.txt holds"):
        recipe.load()


def test_a_data_set_says_what_it_is(folder):
    published("tiger", make("tiger"), folder)
    assert repr(datasets.tiger()) == "Dataset tiger: 14 rows of 230 in 4 bags, 2 classes"
    published("mnist", make("mnist"), folder)
    assert repr(datasets.mnist()) == "Dataset mnist: 14 rows of 1 x 28 x 28, 10 classes"
