"""Strict JSON: parsed without ambiguity, and only where that takes little memory, for text of any origin."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

MEMORY_ALLOWANCE = 2**27
"""Bytes that the parsed values may take beyond twice the size of the text."""
MAX_KEYS = 10_000
"""Maximum number of entries of an object; long sequences are lists."""

# Bytes that Python takes for each of these characters: an empty list, a dict, half a string, half an entry, a number.
_BYTES = {"[": 64, "{": 128, '"': 30, ":": 60, ",": 36}


def parse_object(raw: bytes, encoding: str = "utf-8") -> dict[str, Any]:
    """Parse an object: no duplicate keys, no NaN, no numbers beyond float64, no surrogates, no deep nesting.

    Examples
    --------
    >>> parse_object(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ...
    ValueError: the key 'a' occurs twice
    """
    text = raw.decode(encoding)
    width = 4 if "\\u" in text else 1  # one wide character makes all of its string wide
    memory = width * len(text) + sum(text.count(character) * size for character, size in _BYTES.items())
    if memory > 2 * len(text) + MEMORY_ALLOWANCE:
        raise ValueError(f"its {len(text):,} bytes hold too many values")
    try:
        content = json.loads(
            text, object_pairs_hook=_make_object, parse_float=_parse_finite, parse_constant=_parse_finite
        )
        if "\\u" in text:
            json.dumps(content, ensure_ascii=False).encode()  # fails on a surrogate
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    return content


def compute_digest(content: Any) -> str:
    """Return the SHA-256 of parsed JSON, which white space and the order of keys do not change."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_KEYS:
        raise ValueError(f"an object has {len(pairs):,} keys, expected at most {MAX_KEYS:,}")
    entries = dict[str, Any]()
    for key, value in pairs:
        if key in entries:
            raise ValueError(f"the key {key[:60]!r} occurs twice")
        entries[key] = value
    return entries


def _parse_finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"the number {text[:60]} is not finite")
    return value
