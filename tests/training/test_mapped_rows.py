"""Rows in memory-mapped files: read as they are, refused when they change, visited by blocks, learned from."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

import unbag
from unbag.training import Limits, MappedRows, Observations, Settings, train
from unbag.training.batches import draw_order
from unbag.training.checkpoint import identify
from unbag.training.group_subsets import excerpt

ROWS = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
GROUPS = unbag.Groups.from_sizes([2] * 30)
SEEN = Observations(unbag.LabelProportions(), GROUPS, [[1, 1], [2, 0], [0, 2]] * 10, 2)


@pytest.fixture
def shards(tmp_path):
    np.save(tmp_path / "a.npy", ROWS[:10])
    save_file({"patches": ROWS[10:25]}, tmp_path / "b.safetensors")
    np.save(tmp_path / "c.npy", ROWS[25:])
    return tmp_path


class InMemory:
    """The same rows, and blocks, without files."""

    def __init__(self, like):
        self.rows, self.rows_of_block = like.gather(torch.arange(len(like))), like.rows_of_block
        self.device, self.dtype = self.rows.device, self.rows.dtype

    def __len__(self):
        return len(self.rows)

    def gather(self, rows):
        return self.rows[rows]


@given(numbers=st.lists(st.integers(0, 59), max_size=80))
def test_rows_of_any_numbers_are_those_of_the_arrays(numbers, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp() / "shards"
    if not folder.exists():
        folder.mkdir()
        for place, part in enumerate(np.split(ROWS, [7, 8, 40])):
            np.save(folder / f"{place}.npy", part)
    found = MappedRows(folder).gather(torch.tensor(numbers, dtype=torch.int64))
    assert np.array_equal(found.numpy(), ROWS[numbers])


class FewRows(MappedRows):
    """Rows in blocks of three, of one file at a time."""

    max_open, released_bytes, block_bytes = 1, 1, 36


def test_shards_are_one_table_in_the_order_of_their_names(shards):
    rows = FewRows(shards)
    assert (rows.shape, rows.sizes, rows.dtype) == ((60, 3), [10, 15, 35], torch.float32)
    assert np.array_equal(torch.cat(list(rows.split(7))).numpy(), ROWS)
    np.save(shards / "c.npy", ROWS[25:].astype(np.float16))  # is read as float32, too
    assert np.allclose(torch.cat(list(MappedRows(shards).split(7))).numpy(), ROWS, atol=1e-2)


def test_files_that_are_not_alike_or_hold_no_rows_are_named(shards, tmp_path):
    np.save(shards / "d.npy", ROWS[:, :2])
    with pytest.raises(ValueError, match=r"d\.npy holds rows of float32 and shape \(2,\), but a.npy rows of .*\(3,\)"):
        MappedRows(shards)
    (shards / "d.npy").write_bytes((shards / "a.npy").read_bytes()[:-4])
    with pytest.raises(ValueError, match=r"d\.npy cannot be read as .*greater than file size"):
        MappedRows(shards)
    (shards / "d.npy").write_bytes(b"no array")
    with pytest.raises(ValueError, match=r"d\.npy cannot be read as"):
        MappedRows(shards)
    np.save(shards / "d.npy", np.asfortranarray(ROWS))
    with pytest.raises(ValueError, match="stored by columns"):
        MappedRows(shards)
    save_file({"a": ROWS, "b": ROWS}, shards / "d.safetensors")
    with pytest.raises(ValueError, match="holds 2 arrays"):
        MappedRows(shards / "d.safetensors")
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="there are no rows"):
        MappedRows(tmp_path / "none")


def test_a_file_that_changes_or_goes_away_between_two_epochs_is_named(shards):
    rows = MappedRows(shards)
    rows.gather(torch.arange(60))
    np.save(shards / "c.npy", ROWS[24:])
    with pytest.raises(RuntimeError, match=r"c\.npy has changed since it was first read"):
        rows.gather(torch.tensor([30]))
    (shards / "a.npy").unlink()
    with pytest.raises(FileNotFoundError, match=r"there is no file .*a\.npy"):
        rows.gather(torch.tensor([0]))


def test_a_checkpoint_knows_rows_by_their_files(shards):
    rows = MappedRows(shards)
    known = identify(rows, "rows")
    assert known == identify(MappedRows(shards), "rows") == identify(copy.deepcopy(rows), "rows")
    np.save(shards / "c.npy", ROWS[24:])
    assert known != identify(MappedRows(shards), "rows")


@given(seed=st.integers(0, 99), block=st.lists(st.integers(0, 9), min_size=1, max_size=50))
def test_an_order_by_blocks_ends_some_blocks_before_it_begins_others(seed, block):
    order = draw_order(len(block), torch.Generator().manual_seed(seed), torch.tensor(block), blocks_at_once=3)
    assert order.sort().values.tolist() == list(range(len(block)))
    visited = [block[group] for group in order.tolist()]
    last = {one: len(visited) - visited[::-1].index(one) for one in set(visited)}
    open_at_once = [
        len({one for one in visited[:place] if last[one] > place} | {visited[place]}) for place in range(len(visited))
    ]
    assert max(open_at_once) <= 3


def test_an_order_by_few_blocks_is_that_of_rows_in_memory():
    orders = [draw_order(30, torch.Generator().manual_seed(5), block) for block in (None, torch.arange(30) // 2)]
    assert torch.equal(*orders)


@pytest.mark.parametrize("sizes", [[2] * 30, [1, 3] * 15])
def test_training_from_disk_has_the_bits_of_training_from_memory_in_the_same_order(sizes, shards):
    groups = unbag.Groups.from_sizes(sizes)
    seen = Observations(unbag.LabelProportions(), groups, [[size - 1, 1] for size in sizes], 2)
    rows = FewRows(shards)
    settings, limits = Settings(epochs=3, batch_size=4), Limits(blocks_at_once=4)
    by_blocks, from_disk, plain = (
        train(lambda: torch.nn.Linear(3, 2), source, [seen], settings, seeds=[1, 2], limits=limits).models
        for source in (InMemory(rows), rows, torch.from_numpy(ROWS))
    )
    for one, other in zip(by_blocks, from_disk, strict=True):
        assert torch.equal(one.weight, other.weight)
    assert not torch.equal(by_blocks[0].weight, plain[0].weight)


def fit(X, training="short", **settings):
    training = unbag.NetworkTraining(epochs=2) if training == "short" else training
    classifier = unbag.AggregateClassifier(model="linear", training=training, random_state=0).set_params(**settings)
    return classifier.fit(X, SEEN.z, groups=GROUPS)


@pytest.mark.filterwarnings("ignore::unbag.UnbagWarning")
def test_a_classifier_learns_and_predicts_from_disk_as_from_memory(shards):
    rows = MappedRows(shards)
    one, other = fit(ROWS), fit(rows)
    assert np.array_equal(one.predict_proba(ROWS), other.predict_proba(rows))
    assert np.array_equal(one.disaggregate(ROWS, SEEN.z, GROUPS), other.disaggregate(rows, SEEN.z, GROUPS))
    assert one.estimated_accuracy_ == other.estimated_accuracy_
    assert not other.check_shift(rows)


@pytest.mark.filterwarnings("ignore::unbag.UnbagWarning")
def test_what_needs_rows_in_memory_is_refused(shards):
    with pytest.raises(ValueError, match="model='trees' needs rows in memory"):
        fit(MappedRows(shards), training=None, model="trees")


def test_an_excerpt_has_whole_groups(shards):
    table, (some,) = excerpt(MappedRows(shards), [SEEN], max_numbers=33)
    assert (table.shape, len(some.groups), some.groups.sizes.tolist()) == ((10, 3), 5, [2] * 5)
    first = some.groups.take(torch.tensor([0])).gather(table)
    assert first.tolist() in ROWS.reshape(30, 2, 3).tolist()
    assert len(some.z) == 5
