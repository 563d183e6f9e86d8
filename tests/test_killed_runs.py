"""Runs that are killed for real, by SIGKILL, during writes and at random moments, end as if they had not been."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_runs_that_are_killed_end_in_the_same_bits(tmp_path):
    script = Path(__file__).parent / "helpers" / "killed_runs.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["different"] == []
    assert report["kills"] == {"training": 16, "checkpoint": 4, "command": 4}
    assert report["drafts"] >= 9  # three of the four places of a write leave one
    assert report["epochs"] == sorted(report["epochs"])
    assert report["epochs"][0] < 2 < report["epochs"][-1] < 30  # from the warm-up into the remembered weights
