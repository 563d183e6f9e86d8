"""Write the digests of all cells, once, when a plan is made: ``python tests/experiments/freeze.py``."""

from __future__ import annotations

import json
from pathlib import Path

from unbag.experiments.plan import select

if __name__ == "__main__":
    digests = {cell.key: cell.digest for cell in select()}
    Path(__file__).with_name("plan_digests.json").write_text(json.dumps(digests, indent=1) + "\n")
