"""JSON that anybody may have written: parsed only where that takes little memory, and without ambiguity."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from typing import Any

MEMORY_ALLOWANCE = 2**27
"""Bytes that the parsed values may take beyond twice the size of the text."""
MAX_KEYS = 1000
"""Entries of one object at most; lists hold what there may be many of."""
MAX_DIGITS = 300
"""Digits of a whole number at most, which float64 can hold."""

# Bytes that Python takes for each of these characters: an empty list, a dict, half a string, half an entry, a number.
_BYTES = {"[": 64, "{": 128, '"': 30, ":": 60, ",": 36}


def parse_json(text: str) -> Any:
    """Parse strict JSON, and refuse text that would take far more memory than its size.

    Duplicate keys, numbers beyond float64, NaN, deep nesting and surrogate characters are refused, too.

    Examples
    --------
    >>> parse_json('{"a": [1, 2]}')
    {'a': [1, 2]}
    >>> parse_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ...
    ValueError: the key 'a' occurs twice
    """
    width = 4 if "\\u" in text else 1  # one wide character makes all of its string wide
    memory = width * len(text) + sum(text.count(character) * size for character, size in _BYTES.items())
    if memory > 2 * len(text) + MEMORY_ALLOWANCE:
        raise ValueError(f"its {len(text):,} bytes hold more values than fit into the memory that its size allows")
    try:
        content = json.loads(
            text, object_pairs_hook=_make_object, parse_int=_parse_int, parse_float=_parse_float, parse_constant=_refuse
        )
        if "\\u" in text:
            json.dumps(content, ensure_ascii=False).encode()  # fails on a surrogate
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return content


def compute_digest(content: Any) -> str:
    """Return the SHA-256 of parsed JSON, which white space and the order of keys do not change.

    Examples
    --------
    >>> compute_digest({"b": 1, "a": 2}) == compute_digest({"a": 2, "b": 1})
    True
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        key = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {key[:60]!r} occurs twice")
    if len(entries) > MAX_KEYS:
        raise ValueError(f"an object has {len(entries):,} keys, expected at most {MAX_KEYS:,}")
    return entries


def _parse_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"the number {digits[:20]}... has {len(digits):,} digits, expected at most {MAX_DIGITS}")
    return int(digits)


def _parse_float(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"the number {text[:60]} is not finite")
    return value


def _refuse(name: str) -> None:
    raise ValueError(f"the number {name} is not finite")
