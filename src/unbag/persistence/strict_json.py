"""JSON of any origin: parsed only where that takes little memory, and a digest of what it contains."""

import hashlib
import json
from typing import Any

from pydantic_core import from_json

MEMORY_ALLOWANCE = 2**27
"""Bytes that the parsed values may take beyond twice the size of the text."""

# Bytes that Python takes for each of these characters: an empty list, a dict, half a string, half an entry, a number.
_BYTES = {b"[": 64, b"{": 128, b'"': 30, b":": 60, b",": 36, b"\\u": 3}


def parse_object(raw: bytes) -> dict[str, Any]:
    """Parse an object without NaN, infinity, surrogates and deep nesting.

    Of an entry that occurs twice, the last value counts.
    """
    if sum(raw.count(characters) * size for characters, size in _BYTES.items()) > len(raw) + MEMORY_ALLOWANCE:
        raise ValueError(f"its {len(raw):,} bytes hold too many values")
    content = from_json(raw, allow_inf_nan=False)
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    return content


def compute_digest(content: Any) -> str:
    """Return the SHA-256 of parsed JSON, which white space and the order of entries do not change."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
