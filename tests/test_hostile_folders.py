"""Loading folders that somebody has altered who knows of the checksums: refused in one sentence, at no cost."""

import json
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
from problems_of_groups import blobs
from saved_folders import ARRAYS, NOT_FILES, TEXTS, WRONG, arrays_in, change_array, mutate, put, write_arrays
from torch import nn

import unbag
from unbag import AggregateClassifier, CrossFitting
from unbag.persistence import run_folder
from unbag.persistence.strict_json import compute_digest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits, pipes and devices are those of Linux")

MIB = 2**20


@contextmanager
def bounded(memory: int, seconds: float = 20.0):
    """Limit further memory to some bytes, and the time of the processor, which a busy machine does not change."""
    import resource  # noqa: PLC0415 (not on every platform)

    def raise_timeout(number, frame):
        raise TimeoutError

    now = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGPROF, raise_timeout)
    resource.setrlimit(resource.RLIMIT_AS, (now + memory, before[1]))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.signal(signal.SIGPROF, handler)


def save_fit(folder: Path, **settings) -> tuple[Path, np.ndarray]:
    X, labels = blobs(60)
    AggregateClassifier(random_state=0, **settings).fit(X, np.array(["a", "b", "c"])[labels]).save(folder)
    return folder, X


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return save_fit(tmp_path_factory.mktemp("network") / "model", model="mlp", validation=CrossFitting(2))


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    return save_fit(tmp_path_factory.mktemp("mixture") / "model", validation=CrossFitting(2))


@pytest.fixture
def folder(network, tmp_path):
    return shutil.copytree(network[0], tmp_path / "model")


def assert_refused(folder, match=None, kind=ValueError, **code):
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file() and not path.is_symlink())
    with bounded(3 * size + 128 * MIB), pytest.raises(kind, match=match) as caught:
        unbag.load(folder, **code)
    message = str(caught.value)
    assert str(folder) in message
    assert len(message) < 1000
    assert message.isprintable()


@pytest.mark.parametrize("which", ["model.json", "weights-*"])
@pytest.mark.parametrize("kind", NOT_FILES)
def test_what_is_no_file_is_neither_read_nor_waited_for(folder, which, kind):
    (path,) = folder.glob(which)
    path.unlink()
    NOT_FILES[kind](path)
    missing = kind == "a link to nothing"
    expected = FileNotFoundError if missing else (ValueError, OSError)
    assert_refused(folder, "is missing" if missing else None, expected)


@pytest.mark.parametrize("case", TEXTS)
def test_texts(folder, case):
    TEXTS[case](folder)
    assert_refused(folder, "is no classifier that this version of unbag can load")


@pytest.mark.parametrize(("place", "value"), WRONG, ids=lambda value: repr(value)[:60])
def test_entries(folder, place, value):
    put(folder, place, value)
    assert_refused(folder)


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays(folder, case):
    ARRAYS[case](folder)
    assert_refused(folder)


def test_the_wrong_entry_is_named(folder):
    put(folder, "mixture.candidates.0.orders", [[0, 1, 2], [2, 1, 1]])
    assert_refused(folder, r"model\.json is no classifier .*: orders must have each number from 0 to 2 once")
    put(folder, "mixture.candidates.0.orders", [[0, 1, 2], [2, "x", 1]])
    assert_refused(folder, r"mixture\.candidates\.0\.orders\.1\.1: Input should be a valid integer, got 'x'")
    put(folder, "mixture.candidates.0.orders", [[0, 1, 2], [2, 1, 0]])
    ARRAYS["NaN"](folder)
    assert_refused(folder, r"the array mixture\.0\.0:module\.output\.bias has NaN or infinity")


@pytest.mark.parametrize(("which", "size"), [("model.json", 5 * 2**30), ("weights-*", 5 * 2**30)])
def test_sparse_files_are_refused_before_they_are_read(folder, which, size):
    (path,) = folder.glob(which)
    os.truncate(path, size)
    with bounded(16 * MIB, 1), pytest.raises(ValueError, match=r"has 5,368,709,120 bytes, expected at most"):
        unbag.load(folder)


@pytest.mark.parametrize("count", [1, 10**5, 10**6])
def test_many_values_take_little_memory(folder, count):
    put(folder, "classes.names", [f"c{number}" for number in range(count)])
    assert_refused(folder)
    put(folder, "features", [{}] * count)
    assert_refused(folder)


@pytest.mark.parametrize(
    "change",
    [{"files": ["a"]}, {"files": {"../a": None}}, {"plan": 1}, {"extra": 1}, {"files": None}, {}, None],
    ids=repr,
)
def test_records_of_runs(tmp_path, change):
    content = {"format": run_folder.FORMAT, "status": "finished", "plan": {}, "inputs": {}, "files": {}}
    content |= {"versions": {}, "date": "", **(change or {})}
    digest = compute_digest(content)
    if change is None:
        del content["plan"]
    (tmp_path / "run.json").write_text(json.dumps({**content, "sha256": digest}))
    if change == {}:
        assert run_folder.Run(tmp_path).read() == content
    else:
        with pytest.raises(
            run_folder.RunError, match=r"run\.json: the file was altered after it was written, is damaged, or is no run"
        ):
            run_folder.Run(tmp_path).read()


def test_links_to_files_are_followed(folder, network, tmp_path):
    for path in list(folder.iterdir()):
        path.rename(tmp_path / path.name)
        path.symlink_to(tmp_path / path.name)
    X = network[1]
    np.testing.assert_array_equal(unbag.load(folder).predict_proba(X), unbag.load(network[0]).predict_proba(X))


def holds(folder, X) -> bool:
    """Return whether an altered folder gives a classifier, which must then predict and can be saved."""
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
    classifier.save(folder.with_name("again"))
    assert unbag.load(folder.with_name("again")).get_params().keys() == classifier.get_params().keys()
    return True


@pytest.mark.parametrize("saved", ["network", "mixture"])
def test_any_change_is_refused_or_does_no_harm(saved, tmp_path, request):
    original, X = request.getfixturevalue(saved)
    held = 0
    for seed in range(100):
        folder = shutil.copytree(original, tmp_path / str(seed) / "model")
        mutate(folder, seed)
        held += holds(folder, X)
        shutil.rmtree(folder.parent)
    assert 2 < held < 95  # the changes are neither all harmless nor all noticed


@pytest.mark.parametrize(
    ("array", "change"),
    [
        ("base", lambda t: t[:2]),
        ("num_leaves", lambda t: t[:-1]),
        ("num_leaves", lambda t: t.float()),
        ("num_leaves", lambda t: t.flip(0) - 1),
        ("split_feature", lambda t: t - 7),
        ("split_feature", lambda t: t + 1),
        ("left_child", lambda t: t + 99_999),
        ("right_child", lambda t: t * 0),
        ("leaf_value", lambda t: t * torch.nan),
        ("threshold", lambda t: t[None]),
        ("decision_type", lambda t: t * 0 + 1),
        ("tree_sizes", lambda t: t),
        ("leaf_value", None),
    ],
)
def test_trees(mixture, tmp_path, array, change):
    folder = shutil.copytree(mixture[0], tmp_path / "model")
    number = [c["model"] for c in unbag.load(folder).candidates_].index("trees")
    change_array(f"mixture.{number}.1:{array}", change)(folder)
    assert_refused(folder, "is damaged: ")


class Masked(nn.Module):
    """A module of a caller, with a buffer that is infinite on purpose."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 3)
        self.register_buffer("mask", torch.tensor([0.0, 0.0, -torch.inf]))

    def forward(self, x):
        return self.linear(x.flatten(1)).clamp(-9, 9) + self.mask.clamp_min(-9)


def test_modules_of_a_caller(tmp_path):
    images, labels = np.random.default_rng(0).random((24, 8, 8)).astype(np.float32), np.arange(24) % 3
    classifier = AggregateClassifier(model=Masked, random_state=0).fit(images, labels)
    folder = tmp_path / "model"
    classifier.save(folder)
    again = unbag.load(folder, model=Masked)
    np.testing.assert_array_equal(again.predict_proba(images), classifier.predict_proba(images))
    raw = arrays_in(folder).read_bytes()
    change_array("mixture.0.0:module.linear.bias", lambda t: t * torch.nan)(folder)
    assert_refused(folder, "does not predict 3 numbers for a row of zeros", model=Masked)
    write_arrays(folder, raw)
    put(folder, "mixture.candidates.0.models.0.values.input_shape", [8, 10**9])
    assert_refused(folder, "are no network for rows of shape", model=Masked)
    put(folder, "mixture.candidates.0.models.0.values.input_shape", [8, 9])
    assert_refused(folder, "fails on rows of shape", model=Masked)
