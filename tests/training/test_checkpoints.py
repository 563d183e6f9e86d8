"""Checkpoints: a run that is interrupted anywhere, or killed, ends as if nothing had happened."""

import hashlib
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save as save_tensors
from torch import nn
from training_problems import assert_identical, bags, drawn, network, observe, pairs_problem, table

from unbag import FromFold, Groups
from unbag._utils.files import FolderInUse, write_atomic
from unbag.objectives.losses import cross_entropy
from unbag.training import Checkpoint, Observations, Settings, TimeBudgetExceeded, held_out_likelihood, train
from unbag.training.checkpoint import pack

SETTINGS = Settings(epochs=4, warm_up=2, remember_from=2, batch_size=5, learning_rate=0.01)


class Interrupted(Exception):
    """Stands for whatever ends a process."""


class Allowance:
    """How many forward passes may run, which does not identify a run."""

    _derived_attributes = ("left",)
    left = math.inf


FUSE = Allowance()


class Fuse(nn.Module):
    """Lets so many forward passes of training through, and then ends the run in the middle of a step."""

    def forward(self, x):
        if self.training:
            FUSE.left -= 1
            if FUSE.left < 0:
                raise Interrupted
        return x


def pairs(*extra, k=3, seeds=(0,), **changes):
    X, seen = pairs_problem(k)
    settings = replace(SETTINGS, **changes)
    make_model = partial(network, k, Fuse, *extra)
    return {"make_model": make_model, "X": X, "observations": [seen], "settings": settings, "seeds": seeds}


def several_sets_of_unequal_sizes():
    X, labels = table(40, 2)
    own = [bags(labels, seed).take(torch.arange(10)) for seed in (0, 1)]
    labelled = observe("LabelProportions", labels, Groups.from_tuples([[3], [9]], 40), 2, weight=0.5)
    return pairs(k=2, seeds=[0, 1]) | {"X": X, "observations": [own, labelled]}


def chosen_by_score(**changes):
    X, labels = table(40, 3)
    seen = observe("PairwiseSimilarity", labels, drawn(40, 30, 2), 3)
    learned, held_out = seen.split(0.3, torch.Generator().manual_seed(0))
    changed = pairs(seeds=[0, 1, 2], learning_rate=0.1, **changes)
    return changed | {"X": X, "observations": [learned], "score": held_out_likelihood(X, [held_out])}


RUNS = {
    "likelihood": pairs(warm_up=4),
    "memory": pairs(),
    "replicas": pairs(seeds=[3, 1, 2]),
    "several sets": several_sets_of_unequal_sizes(),
    "score": chosen_by_score(),
    "patience": chosen_by_score(epochs=12, warm_up=0, patience=2),
    "dropout": pairs(nn.Dropout),
    "dropout of replicas": pairs(nn.Dropout, seeds=[0, 1]),
    "running statistics": pairs(partial(nn.BatchNorm1d, 6), nn.Dropout),
}


def undisturbed(run):
    FUSE.left = 10**9
    return train(**run)


# ------------------------------------------------------------------------------------------------ interruptions


@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_interrupted_in_the_middle_of_steps_it_ends_the_same(run, every, tmp_path):
    expected = undisturbed(run)
    # So many forward passes get through each time that every attempt reaches another save, if only just.
    allowed = (every + 1) * len(run["observations"]) * len(run["seeds"])
    for attempt in range(100):
        FUSE.left = allowed
        torch.manual_seed(attempt)  # what else draws random numbers must not matter
        try:
            trained = train(**run, checkpoint=Checkpoint(tmp_path, every))
            break
        except Interrupted:
            continue
    assert attempt > 0
    assert_identical(trained, expected)


@pytest.mark.parametrize("name", ["memory", "patience", "running statistics"])
def test_a_run_that_is_over_is_not_trained_again(name, tmp_path):
    run = RUNS[name]
    FUSE.left = 10**9
    first = train(**run, checkpoint=Checkpoint(tmp_path, 10**6))
    FUSE.left = 0
    assert_identical(train(**run, checkpoint=Checkpoint(tmp_path)), first)


@pytest.mark.parametrize("name", ["score", "running statistics"])
def test_a_run_whose_time_is_up_stops_after_a_step_and_goes_on(name, tmp_path):
    run = RUNS[name]
    expected = undisturbed(run)
    for _ in range(3):
        with pytest.raises(TimeBudgetExceeded, match="time is up after 0 epochs; the run is saved in"):
            train(**run, checkpoint=Checkpoint(tmp_path, until=time.monotonic() - 1))
    assert_identical(train(**run, checkpoint=Checkpoint(tmp_path)), expected)


def test_a_run_of_slow_steps_is_saved_by_the_clock(tmp_path):
    often = Checkpoint(tmp_path / "often", every=10**6, seconds=0.0)
    seldom = Checkpoint(tmp_path / "seldom", every=10**6, seconds=3600.0)
    assert [often.due(), seldom.due()] == [True, False]


# ---------------------------------------------------------------------------------------- disks that do not take


@contextmanager
def small_files(size):
    """Let files grow to so many bytes only, so that a write fails for real and half-way."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def no_rights():
    """Be somebody for whom the rights of a folder count."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def interrupted_once(folder):
    """Leave a run in a folder, and return what is saved of it."""
    FUSE.left = 6
    with pytest.raises(Interrupted):
        train(**RUNS["memory"], checkpoint=Checkpoint(folder, 1))
    FUSE.left = 10**9
    return Checkpoint(folder).file.read_bytes()


def assert_went_on(folder, kept, caplog, reason):
    """Check that the last good checkpoint is there, and that the end of the run was reached from it and without."""
    assert Checkpoint(folder).file.read_bytes() == kept
    assert sorted(os.listdir(folder)) == [".lock", "checkpoint.safetensors"]
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert f"the run could not be saved in {folder}: " in caplog.text
    assert reason in caplog.text
    assert "the last checkpoint there stays" in caplog.text


def test_a_file_that_cannot_be_written_to_its_end_leaves_the_last_checkpoint(tmp_path, caplog):
    kept = interrupted_once(tmp_path)
    with small_files(len(kept) // 2):
        trained = train(**RUNS["memory"], checkpoint=Checkpoint(tmp_path, 1))
    assert_went_on(tmp_path, kept, caplog, "File too large")
    assert_identical(trained, undisturbed(RUNS["memory"]))
    assert_identical(train(**RUNS["memory"], checkpoint=Checkpoint(tmp_path, 1)), trained)


@pytest.mark.parametrize("draft", [False, True], ids=["clean", "with a draft"])
def test_a_read_only_folder_leaves_the_last_checkpoint(caplog, draft):
    with tempfile.TemporaryDirectory() as outer:
        os.chmod(outer, 0o777)  # for whoever runs the test
        with no_rights():
            folder = Path(outer) / "run"
            kept = interrupted_once(folder)
            left = folder / f".checkpoint.safetensors.{32 * '0'}.part"
            if draft:
                left.write_bytes(b"half")
            folder.chmod(0o555)
            trained = train(**RUNS["memory"], checkpoint=Checkpoint(folder, 1))
            folder.chmod(0o755)
            left.unlink(missing_ok=True)
        assert_went_on(folder, kept, caplog, "Permission denied")
    assert_identical(trained, undisturbed(RUNS["memory"]))


# ---------------------------------------------------------------------------------------------- what is refused


@pytest.fixture
def saved(tmp_path):
    """Return the folder of a run that was interrupted."""
    interrupted_once(tmp_path)
    return tmp_path


def test_any_flipped_bit_and_any_missing_end_is_refused(saved):
    checkpoint, chance = Checkpoint(saved), random.Random(0)
    whole = checkpoint.file.read_bytes()
    for number in range(120):
        damaged = bytearray(whole)
        if number < 100:
            damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        else:
            del damaged[chance.randrange(len(whole)) :]
        checkpoint.file.write_bytes(damaged)
        with pytest.raises(ValueError, match="or damaged"):
            checkpoint.load()
    checkpoint.file.write_bytes(whole)
    assert checkpoint.load() is not None


def write_with_digest(file, content):
    """Write a file whose digest is right, whatever else is wrong with it."""
    file.write_bytes(content + hashlib.sha256(content).digest())


def test_files_of_other_kinds_are_refused(saved):
    file = Checkpoint(saved).file
    for content in (b"garbage", b"\x80\x04pickle" * 100, b"{}" + bytes(1000)):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="is no checkpoint of this version of unbag, or damaged"):
            Checkpoint(saved).load()
    for metadata in (None, {"other": "x"}, {"unbag": "not JSON"}, {"unbag": "[1, 2]"}):
        write_with_digest(file, save_tensors({"x": torch.zeros(1)}, metadata))
        with pytest.raises(ValueError, match="is no checkpoint of this version of unbag, or damaged"):
            Checkpoint(saved).load()


@pytest.mark.parametrize("version", [5, "6"])
def test_other_formats_are_refused(saved, version):
    write_with_digest(Checkpoint(saved).file, pack({"format": version, "state": {}}))
    with pytest.raises(ValueError, match=r"damaged: its format is .* and not 6; remove it to start again"):
        train(**RUNS["memory"], checkpoint=Checkpoint(saved))


def another(**changes):
    (seen,) = RUNS["memory"]["observations"]
    return {"observations": [replace(seen, **changes)]}


def doubled():
    model = network(3, Fuse)
    with torch.no_grad():
        model[0].weight.mul_(2)
    return model


def squares(outputs, groups, z):
    return groups.sum(outputs.square().sum(1))


def doubled_cross_entropy(logits):
    return 2 * cross_entropy(logits)


SEEN = RUNS["memory"]["observations"][0]
OTHERS = {
    "settings": {"settings": replace(RUNS["memory"]["settings"], epochs=5)},
    "seeds": {"seeds": [1]},
    "rows": {"X": RUNS["memory"]["X"] + 1e-6},
    "groups": another(groups=drawn(15, 20, 2, seed=9)),
    "z": another(z=1 - SEEN.z),
    "weight": another(weight=2.0),
    "more groups": {"observations": [SEEN, SEEN]},
    "sizes": {"make_model": partial(nn.Linear, 4, 3)},
    "activation": {"make_model": partial(network, 3, Fuse, nn.ReLU)},
    "score": {"score": held_out_likelihood(RUNS["memory"]["X"], [SEEN])},
    "objective": {"objective": squares},
    "loss": {"settings": replace(RUNS["memory"]["settings"], loss=doubled_cross_entropy)},
    "weights": {"make_model": doubled},
}
NAMES = {"groups": "observations", "z": "observations", "weight": "observations", "more groups": "observations"}
NAMES |= {"sizes": "model", "activation": "model", "weights": "model", "loss": "settings.loss"}
NAMES |= {"settings": "settings.epochs: 4; of this run: 5;"}


@pytest.mark.parametrize("name", OTHERS)
def test_checkpoints_of_other_runs_are_refused(saved, name):
    with pytest.raises(ValueError, match="is of another run") as refused:
        train(**RUNS["memory"] | OTHERS[name], checkpoint=Checkpoint(saved))
    assert str(saved) in str(refused.value)
    assert f"another run: its {NAMES.get(name, name)}" in str(refused.value)
    assert "use a separate folder for each run, or remove the checkpoint to start again" in str(refused.value)
    FUSE.left = 10**9  # and nothing was spoilt
    assert_identical(train(**RUNS["memory"], checkpoint=Checkpoint(saved)), undisturbed(RUNS["memory"]))


def test_a_run_with_functions_that_have_no_name_needs_one_of_its_own(tmp_path):
    def run():
        X, labels = table(20, 3)
        fold = FromFold(0, lambda state, label: (state + label) % 2, lambda state: state)
        groups = Groups.from_sizes([2] * 10)
        seen = Observations(fold, groups, fold.observe(labels, groups, 3), 3)
        settings = replace(SETTINGS, loss=lambda logits: 2 * cross_entropy(logits), warm_up=0)
        return RUNS["memory"] | {"X": X, "observations": [seen], "settings": settings}

    first, second = run(), run()
    FUSE.left = 3
    with pytest.raises(TypeError, match=r"the settings.loss cannot be recognised .* give Checkpoint a run_id"):
        train(**first, checkpoint=Checkpoint(tmp_path, 1))
    FUSE.left = 3
    with pytest.raises(Interrupted):
        train(**first, checkpoint=Checkpoint(tmp_path, 1, run_id="parity"))
    FUSE.left = 10**9
    with pytest.raises(ValueError, match="is of another run: its run_id: 'parity'; of this run: 'other'"):
        train(**second, checkpoint=Checkpoint(tmp_path, 1, run_id="other"))
    found = train(**second, checkpoint=Checkpoint(tmp_path, 1, run_id="parity"))
    assert_identical(found, undisturbed(first))


def test_a_folder_that_another_run_writes_to_is_refused_at_once(tmp_path):
    program = f"""
import pathlib
from unbag._utils.files import locked
with locked(pathlib.Path({str(tmp_path)!r})):
    print("locked", flush=True)
    input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(FolderInUse, match=r"another process is writing to .*; wait until it is done"):
            train(**RUNS["memory"], checkpoint=Checkpoint(tmp_path))
        other.kill()
    assert_identical(train(**RUNS["memory"], checkpoint=Checkpoint(tmp_path)), undisturbed(RUNS["memory"]))


@pytest.mark.parametrize("every", [0, -1, 1.5, True, "2", None])
def test_wrong_intervals_are_refused(tmp_path, every):
    with pytest.raises(ValueError, match="every must be a whole number of steps, at least 1; got "):
        Checkpoint(tmp_path, every)


# ----------------------------------------------------------------------------------------------------- the files


def test_leftovers_of_killed_writers_are_removed(saved):
    names = ("notes.txt", ".checkpoint.safetensors.swp", f".other.{32 * 'a'}.part", ".checkpoint.safetensors.mine.part")
    others = [saved / name for name in names]
    drafts = [saved / f".checkpoint.safetensors.{32 * digit}.part" for digit in "1f"]
    for file in (*others, *drafts):
        file.write_bytes(b"half")
    Checkpoint(saved).load()
    assert sorted(saved.iterdir()) == sorted([*others, saved / ".lock", Checkpoint(saved).file])


def test_a_file_is_replaced_whole_and_readable_by_whom_the_umask_allows(tmp_path):
    file = tmp_path / "file"
    before = os.umask(0o022)
    try:
        write_atomic(file, b"first")
        write_atomic(file, b"second")
    finally:
        os.umask(before)
    assert file.read_bytes() == b"second"
    assert file.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [file]
