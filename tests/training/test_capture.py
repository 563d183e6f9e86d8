"""What captured steps need that can be tested without a GPU."""

from __future__ import annotations

import gc
import weakref

import pytest

from unbag.training.capture import gc_disabled


class _Run:
    """What a run is to the garbage collector: a cycle."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def _as_it_was():
    yield
    gc.enable()


def _allocate() -> None:
    """Allocate as much as makes the garbage collector run several times."""
    kept = [[] for _ in range(200_000)]
    del kept


def test_a_run_that_is_over_stays_until_the_capture_is_done() -> None:
    over = weakref.ref(_Run())
    with gc_disabled():
        _allocate()
        assert over() is not None
    _allocate()
    gc.collect()
    assert over() is None


def test_without_it_the_run_would_go_away() -> None:
    over = weakref.ref(_Run())
    _allocate()
    assert over() is None


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_left_as_it_was_also_after_an_error(on: bool) -> None:
    (gc.enable if on else gc.disable)()
    seen = []

    def fail() -> None:
        with gc_disabled():
            seen.append(gc.isenabled())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert (seen, gc.isenabled()) == ([False], on)
