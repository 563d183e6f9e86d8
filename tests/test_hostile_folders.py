"""Loading folders that somebody has altered who knows of the checksums: refused in one sentence, at no cost."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from hostile_folders import (
    LARGE,
    NOT_FILES,
    TEXTS,
    WEIGHTS,
    WRONG,
    change_tensor,
    mutate,
    put,
    read_content,
    weights_in,
)
from problems_of_groups import FAST, blobs, fit_all_candidates
from torch import nn

import unbag
from unbag import AggregateClassifier

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits, pipes and devices are those of Linux")

MIB = 2**20


@contextmanager
def bounded(memory: int, seconds: float = 20.0):
    """Limit memory to what the process has now and ``memory`` bytes, and the time of the processor to ``seconds``.

    Time of the processor does not depend on how busy the machine is.
    """
    import resource  # noqa: PLC0415 (not on every platform)

    def late(number, frame):
        raise TimeoutError

    now = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGPROF, late)
    resource.setrlimit(resource.RLIMIT_AS, (now + memory, before[1]))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.signal(signal.SIGPROF, handler)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    X, labels = blobs()
    folder = tmp_path_factory.mktemp("original") / "model"
    settings = {**FAST, "epochs": 2, "n_restarts": 2, "ensemble": True, "scaling": "standard"}
    classifier = AggregateClassifier(**settings).fit(X, np.array(["a", "b", "c"])[labels])
    classifier.save(folder)
    return folder, X


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original[0], tmp_path / "model")


def refused(folder, match=None, kind=ValueError, **own):
    size = sum(one.stat().st_size for one in folder.iterdir() if one.is_file() and not one.is_symlink())
    with bounded(3 * size + 128 * MIB), pytest.raises(kind, match=match) as caught:
        unbag.load(folder, **own)
    said = str(caught.value)
    assert str(folder) in said
    assert len(said) < 1000
    assert said.isprintable()


@pytest.mark.parametrize("which", ["model.json", "*.safetensors"])
@pytest.mark.parametrize("kind", NOT_FILES)
def test_what_is_no_file_is_neither_read_nor_waited_for(folder, which, kind):
    (path,) = folder.glob(which)
    path.unlink()
    NOT_FILES[kind](path)
    missing = kind == "a link to nothing"
    refused(
        folder, "is missing|are missing" if missing else None, FileNotFoundError if missing else (ValueError, OSError)
    )


@pytest.mark.parametrize("case", TEXTS)
def test_texts(folder, case):
    TEXTS[case](folder)
    refused(folder, "is truncated, or no saved classifier|was altered")


@pytest.mark.parametrize(("place", "value"), WRONG, ids=lambda value: repr(value)[:60])
def test_entries(folder, place, value):
    put(folder, place, value)
    refused(
        folder,
        rf"{place.split('.')[-1]}|orders must be|names must be|of another model|weights.model must be|folds_ must be",
    )


@pytest.mark.parametrize("case", LARGE)
def test_sizes(folder, case):
    LARGE[case](folder)
    refused(folder)


def test_a_sparse_file_of_five_gigabytes_is_refused_before_it_is_read(folder):
    os.truncate(folder / "model.json", 5 * 2**30)
    with (
        bounded(16 * MIB, 1),
        pytest.raises(ValueError, match=r"model\.json has 5,368,709,120 bytes, expected at most"),
    ):
        unbag.load(folder)


@pytest.mark.parametrize("case", WEIGHTS)
def test_weights(folder, case):
    WEIGHTS[case](folder)
    refused(folder)


def test_what_is_refused_is_named(folder):
    head = folder / "model.json"
    put(folder, "fitted.orders", [[0, 1, 2], [2, 1, 1]])
    refused(folder, rf"{head} is .*: orders must be lists with each number from 0 to 2 once, got \[2, 1, 1\]; save it")
    put(folder, "fitted.orders", [[0, 1, 2], [2, 1, 0]])
    WEIGHTS["NaN weights"](folder)
    refused(folder, r"the tensor 0\.1\.output\.bias of .*safetensors holds NaN or infinite values; fit the classifier")


def test_no_path_and_no_device_is_taken_from_a_folder(folder, tmp_path):
    put(folder, "settings.checkpoint", str(tmp_path / "elsewhere"))
    put(folder, "settings.device", "cuda:7")
    classifier = unbag.load(folder)
    assert (classifier.checkpoint, classifier.device) == (None, "cpu")


def test_links_to_files_are_followed(folder, original, tmp_path):
    for path in list(folder.iterdir()):
        path.rename(tmp_path / path.name)
        path.symlink_to(tmp_path / path.name)
    X = original[1]
    np.testing.assert_array_equal(unbag.load(folder).predict_proba(X), unbag.load(original[0]).predict_proba(X))


def test_saving_removes_no_file_that_a_folder_only_names(folder, original):
    (folder / "mine.txt").write_text("kept")
    put(folder, "weights.0.file", "mine.txt")
    unbag.load(original[0]).save(folder, overwrite=True)
    assert (folder / "mine.txt").read_text() == "kept"


def test_large_classifiers_take_three_times_their_files(tmp_path):
    """A legitimate model of 24 MB, in a process that may take no more than three times as much and 64 MiB."""
    X = np.random.default_rng(0).normal(size=(30, 20_000)).astype(np.float32)
    settings = {**FAST, "epochs": 1, "scaling": "standard"}
    classifier = AggregateClassifier(**settings).fit(X, X[:, 0] > 0)
    classifier.save(tmp_path / "model")
    size = weights_in(tmp_path / "model").stat().st_size
    assert size > 20 * MIB
    with bounded(3 * size + 64 * MIB):
        again = unbag.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))


def holds(folder, X) -> bool:
    """Whether an altered folder gives a classifier, which must then work, or is refused."""
    with bounded(128 * MIB):
        try:
            classifier = unbag.load(folder)
        except (ValueError, FileNotFoundError):
            return False
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        probs, found = classifier.predict_proba(X), classifier.predict(X)
    assert probs.shape == (len(X), len(classifier.classes_))
    assert np.isfinite(probs).all()
    assert {*found.tolist()} <= {*classifier.classes_.tolist()}
    assert classifier.checkpoint is None
    classifier.save(folder.with_name("again"))
    assert unbag.load(folder.with_name("again")).get_params().keys() == classifier.get_params().keys()
    return True


def test_any_change_is_refused_or_does_no_harm(original, tmp_path):
    held = [holds(_mutated(original[0], tmp_path / str(seed), seed), original[1]) for seed in range(100)]
    assert 5 < sum(held) < 90  # the changes are neither all harmless nor all noticed


def _mutated(original, folder, seed):
    shutil.copytree(original, folder / "model")
    mutate(folder / "model", seed)
    return folder / "model"


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    X, labels = blobs()
    folder = tmp_path_factory.mktemp("mixture") / "model"
    fit_all_candidates(X, np.array(["a", "b", "c"])[labels]).save(folder)
    return folder, X


def swap_models(folder: Path) -> None:
    linear, mlp, _ = read_content(folder)["weights"]
    put(folder, "weights.0.model", mlp["model"])
    put(folder, "weights.1.model", linear["model"])


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("weights.0.model", "mlp", "weights.model must be different"),
        ("weights.0.model", "lenet", "weights.model must be one of"),
        ("weights.0.n", 1, "orders must be a list with one entry for each of 5 models"),
        ("fitted.model_folds_.0", 7, None),  # a fold that no group was left out by
        ("fitted.folds_.0.0", 2, "folds_ must be numbers of folds that a model has left out"),
        ("fitted.folds_", None, "folds_ must be null where model_folds_ is"),
        ("fitted.estimated_accuracy.high", None, "estimated_accuracy must be numbers from 0 to 1"),
        ("fitted.candidates_.1.weight", "much", "candidates_ must be"),
    ],
)
def test_entries_of_mixtures(mixture, tmp_path, place, value, said):
    folder = shutil.copytree(mixture[0], tmp_path / "model")
    put(folder, place, value)
    if said is None:
        assert holds(folder, mixture[1])
    else:
        refused(folder, said)


def test_any_change_of_a_mixture_is_refused_or_does_no_harm(mixture, tmp_path):
    held = [holds(_mutated(mixture[0], tmp_path / str(seed), seed), mixture[1]) for seed in range(60)]
    assert 3 < sum(held) < 55


def test_files_of_a_mixture_are_those_of_its_models(mixture, tmp_path):
    folder = shutil.copytree(mixture[0], tmp_path / "model")
    swap_models(folder)
    refused(folder, "the saved weights are of another model")
    shutil.rmtree(folder)
    shutil.copytree(mixture[0], folder)
    (trees,) = folder.glob("*.txt")
    trees.write_text(trees.read_text().replace("leaf_value=", "leaf_value=1", 1))
    refused(folder, "was altered after it was saved")
    trees.unlink()
    refused(folder, "are missing", FileNotFoundError)


class Masked(nn.Module):
    """A model of one's own, with a buffer that is infinite on purpose."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 3)
        self.register_buffer("mask", torch.tensor([0.0, 0.0, -torch.inf]))

    def forward(self, x):
        return self.linear(x.flatten(1)).clamp(-9, 9) + self.mask.clamp_min(-9)


def test_models_of_ones_own(tmp_path):
    random = np.random.default_rng(0)
    images, labels = random.random((24, 8, 8)).astype(np.float32), np.arange(24) % 3
    classifier = AggregateClassifier(**{**FAST, "model": Masked, "epochs": 1}).fit(images, labels)
    folder = tmp_path / "model"
    classifier.save(folder)
    again = unbag.load(folder, model=Masked)
    np.testing.assert_array_equal(again.predict_proba(images), classifier.predict_proba(images))
    change_tensor("0.1.linear.bias", torch.full((3,), torch.nan))(folder)
    refused(folder, r"the tensor 0\.1\.linear\.bias of .* holds NaN", model=Masked)
    for shape, said in (([8, 10**9], "too large to try a model of your own on"), ([8, 9], "fails on rows of shape")):
        put(folder, "fitted.input_shape_", shape)
        refused(folder, said, model=Masked)
    put(folder, "own", ["model", "loss"])
    refused(folder, "settings.loss must be null", model=Masked)
