"""Runs the cells of published counts that a folder of results lacks, as those of default fits are run."""

from __future__ import annotations

from functools import partial

from unbag_experiments.fits import runner
from unbag_experiments.published.cells import run
from unbag_experiments.published.plan import Cell

KIND = runner.Kind("published", Cell, run)

read = partial(runner.read, kind=KIND)
fill = partial(runner.fill, kind=KIND)
