"""Recorded results as JSON that can be read and compared line by line."""

import json
import re
from pathlib import Path
from typing import Any


def write_json(file: Path, content: Any) -> None:
    """Write JSON with one entry on a line, and each list of numbers on one line."""
    text = re.sub(r'\[[^\[\]{}"]+\]', lambda found: " ".join(found[0].split()), json.dumps(content, indent=1))
    file.write_text(text + "\n", encoding="utf-8")
