"""What training leaves behind: runs of single replicas are put together as if they had been one."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest

from unbag.training.trained import Trained, side_by_side


def trained(name, losses, scores=None):
    scored = [None] * len(losses) if scores is None else [[score] for score in scores]
    history = [
        {"epoch": epoch, "phase": "likelihood", "loss": [loss], "score": score, "seconds": 1.0}
        for epoch, (loss, score) in enumerate(zip(losses, scored, strict=True))
    ]
    best = len(losses) - 1 if scores is None else int(np.argmax(scores))
    return Trained([name], history, [best], None if scores is None else [scores[best]])


@pytest.mark.parametrize("shorter_first", [True, False])
def test_a_run_that_is_not_scored_has_nan_beside_one_that_is(shorter_first):
    """Whichever of them is the longer."""
    with_scores = trained("a", [3.0, 2.0], [-5.0, -6.0])
    without = trained("b", [9.0, 8.0, 7.0] if shorter_first else [9.0])
    both = side_by_side([with_scores, without])
    assert both.models == ["a", "b"]
    np.testing.assert_equal(both.best_score, [-5.0, nan])
    expected = [[-5.0, nan], [-6.0, nan], [-6.0, nan]] if shorter_first else [[-5.0, nan], [-6.0, nan]]
    np.testing.assert_equal([entry["score"] for entry in both.history], expected)
    losses = [[3.0, 9.0], [2.0, 8.0], [2.0, 7.0]] if shorter_first else [[3.0, 9.0], [2.0, 9.0]]
    assert [entry["loss"] for entry in both.history] == losses


def test_runs_of_which_none_is_scored_have_no_scores():
    both = side_by_side([trained("a", [3.0, 2.0]), trained("b", [9.0])])
    assert both.best_score is None
    assert [entry["score"] for entry in both.history] == [None, None]
    assert [entry["seconds"] for entry in both.history] == [2.0, 1.0]
