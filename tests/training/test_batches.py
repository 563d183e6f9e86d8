"""Batches: every group once an epoch, each membership with its own row, its own memory and its own observation."""

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
    lengths = [len(s.groups) for s in observations]
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
            own = observations[place % len(observations)]
            before = place * len(own.groups) if len(observations) == 1 else sum(lengths[:place])
            group = int(order[place, len(visited[place])]) - before
            assert members[:, 1].tolist() == own.groups.take(torch.tensor([group])).members.tolist()
            assert z.tolist() == own.checked[group].tolist()
            visited[place].append(group)
            memory[place][group] = numbers.tolist()
    for place, groups in enumerate(visited):  # where there are fewer than another replica has, some come again
        n_groups = len(observations[place % len(observations)].groups)
        assert sorted(groups[:n_groups]) == list(range(n_groups))
    # Memberships of all replicas have a place of their own, and there are no others.
    taken = sorted(number for own in memory for numbers in own.values() for number in numbers)
    assert taken == list(range(len(batches.groups.members)))
