"""Write the digests of cells that go beyond the paper, once, when their plan is made; those of the paper's are kept."""

from __future__ import annotations

import json
from pathlib import Path

from unbag_experiments.plan import select

if __name__ == "__main__":
    digests = {cell.key: cell.digest for cell in select() if cell.part.is_beyond}
    Path(__file__).with_name("beyond_digests.json").write_text(json.dumps(digests, indent=1) + "\n")
