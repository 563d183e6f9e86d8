"""Batches: every group once an epoch, each membership with its own row, its own memory and its own observation."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from unbag import Groups, LabelProportions
from unbag.training import Observations
from unbag.training.batches import Batches

K = 3


def seen_in(sizes, seed):
    """Return counts of groups whose rows are drawn at random."""
    generator = torch.Generator().manual_seed(seed)
    members = torch.randint(50, (sum(sizes),), generator=generator)
    labels = torch.randint(K, (50,), generator=generator)
    groups = Groups.from_offsets(torch.tensor([0, *sizes]).cumsum(0), members)
    return Observations(LabelProportions(), groups, LabelProportions().observe(labels, groups, K), K)


@st.composite
def plans(draw):
    """Draw sets of observations, shared or one for each replica, of equal or unequal sizes; replicas; steps."""
    n_replicas = draw(st.integers(1, 3))
    n_sets = 1 if draw(st.booleans()) else n_replicas
    if draw(st.booleans()):
        size = draw(st.integers(1, 4))
        sizes = [[size] * draw(st.integers(1, 9)) for _ in range(n_sets)]
    else:
        sizes = [draw(st.lists(st.integers(1, 4), min_size=1, max_size=9)) for _ in range(n_sets)]
    return [seen_in(own, seed) for seed, own in enumerate(sizes)], n_replicas, draw(st.integers(1, 12))


def epoch_of(batches, n_replicas, n_steps):
    generators = [torch.Generator().manual_seed(seed) for seed in range(n_replicas)]
    batches.shuffle(generators)
    return batches.order, [batches.batch(step) for step in range(n_steps)]


@given(plans())
def test_an_epoch_is_every_group_of_every_replica_with_all_that_belongs_to_it(plan):
    observations, n_replicas, n_steps = plan
    batches = Batches(observations, n_replicas, n_steps)
    order, steps = epoch_of(batches, n_replicas, n_steps)
    # Run on its own row number, and on the replica's number, a model would say which row it was given.
    visited = [[] for _ in range(n_replicas)]
    memory = [{} for _ in range(n_replicas)]
    for batch in steps:
        if batch is None:
            continue
        replica = torch.arange(n_replicas)[:, None].expand_as(batch.rows)
        told = batch.select_members(torch.stack([replica, batch.rows], -1).flatten(0, 1)).long()
        sizes = batch.segments.sizes.tolist()
        for members, numbers, z in zip(told.split(sizes), batch.memory.split(sizes), batch.z, strict=True):
            assert len(members[:, 0].unique()) == 1
            place = int(members[0, 0])
            group = int(order[place, len(visited[place])])
            own = observations[place % len(observations)]
            assert members[:, 1].tolist() == own.groups.take(torch.tensor([group])).members.tolist()
            assert z.tolist() == own.checked[group].tolist()
            visited[place].append(group)
            memory[place][group] = numbers.tolist()
    for place, groups in enumerate(visited):  # where there are fewer than another replica has, some come again
        n_groups = len(observations[place % len(observations)].groups)
        assert sorted(groups[:n_groups]) == list(range(n_groups))
    # Memberships of all replicas have a place of their own, and there are no others.
    taken = sorted(number for own in memory for numbers in own.values() for number in numbers)
    assert taken == list(range(batches.n_memberships))


@given(plans())
def test_a_group_keeps_its_place_in_the_memory(plan):
    observations, n_replicas, n_steps = plan
    batches = Batches(observations, n_replicas, n_steps)
    generators = [torch.Generator().manual_seed(seed) for seed in range(n_replicas)]
    places = []
    for _ in range(2):
        batches.shuffle(generators)
        order, found = batches.order, {}
        for step in range(n_steps):
            if (batch := batches.batch(step)) is None:
                continue
            bounds = [order.shape[1] * s // n_steps for s in (step, step + 1)]
            keys = [(r, g) for r in range(n_replicas) for g in order[r, slice(*bounds)].tolist()]
            numbers = batch.memory.split(batch.segments.sizes.tolist())
            found |= {key: own.tolist() for key, own in zip(keys, numbers, strict=True)}
        places.append(found)
    both = places[0].keys() & places[1].keys()
    assert both
    assert all(places[0][key] == places[1][key] for key in both)


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 3))
def test_batch_sizes_differ_by_one_at_most(n_groups, n_steps, n_replicas):
    batches = Batches([seen_in([1] * n_groups, 0)], n_replicas, n_steps)
    _, steps = epoch_of(batches, n_replicas, n_steps)
    sizes = [0 if batch is None else batch.rows.shape[1] for batch in steps]
    assert sum(sizes) == n_groups
    assert max(sizes) - min(sizes) <= 1


def test_a_small_set_is_spread_over_the_steps_of_a_large_one():
    batches = Batches([seen_in([2, 2, 2], 0)], n_replicas=2, n_steps=10)
    _, steps = epoch_of(batches, 2, 10)
    assert [batch is not None for batch in steps].count(True) == 3
    gaps = torch.tensor([step for step, batch in enumerate(steps) if batch is not None]).diff()
    assert set(gaps.tolist()) <= {3, 4}


@given(plans())
def test_a_step_by_its_number_on_the_device_is_the_same_step(plan):
    observations, n_replicas, n_steps = plan
    batches = Batches(observations, n_replicas, n_steps)
    if batches.groups.uniform_size is None:
        return
    _, steps = epoch_of(batches, n_replicas, n_steps)
    for step, batch in enumerate(steps):
        same = batches.batch_at(torch.tensor(step), batches.size(step))
        assert (same is None) == (batch is None)
        if batch is not None:
            for name in ("rows", "memory", "z"):
                assert torch.equal(getattr(same, name), getattr(batch, name))
            assert torch.equal(same.segments.offsets, batch.segments.offsets)


def test_a_new_epoch_is_laid_out_where_the_last_one_was():
    batches = Batches([seen_in([2] * 6, 0)], 1, 2)
    _, (first, _) = epoch_of(batches, 1, 2)
    rows = first.rows.clone()
    batches.set_order(batches.order.flip(1))
    assert torch.equal(batches.batch(1).rows.view(-1, 2).flip(0), rows.view(-1, 2))
    assert first.rows.data_ptr() == batches.batch(0).rows.data_ptr()
