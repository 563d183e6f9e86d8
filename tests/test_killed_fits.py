"""Fits that are killed for real, by SIGKILL, and end as if they had not been."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fits_that_are_killed_end_in_the_same_bits(tmp_path):
    script = Path(__file__).parent / "helpers" / "killed_fits.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), "1"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report == {"checkpoint": 4, "command": 4, "different": 0}
