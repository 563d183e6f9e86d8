"""JSON from files that anybody may have written: parsed only where that takes little memory."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from typing import Any

SPARE = 2**27
"""How many bytes the parsed content may take beyond twice the text."""

# What Python takes for each of these marks: an empty list, a dictionary, half a string, half an entry, a number. They
# also occur inside strings, where they only make the estimate larger.
_BYTES = {"[": 64, "{": 128, '"': 30, ":": 60, ",": 36}


def parse_json(text: str) -> tuple[Any, int]:
    """Return what a text holds, and how many bytes of the allowance are left; refuse what is not strictly JSON.

    Refused are also keys that occur twice, numbers beyond those of float64, nesting that Python cannot follow and
    halves of characters that no file can hold. The allowance is twice the text and 128 MiB: together with the text
    itself, no more than three times the file and a constant.

    Examples
    --------
    >>> parse_json('{"a": [1, 2]}')[0]
    {'a': [1, 2]}
    >>> parse_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ...
    ValueError: the key 'a' occurs twice
    """
    left = 2 * len(text) + SPARE - _memory_of(text)
    if left < 0:
        raise ValueError(f"its {len(text)} bytes hold so many values that parsing them takes far more memory than that")
    try:
        content = json.loads(text, object_pairs_hook=_distinct, parse_float=_finite, parse_constant=_finite)
        if "\\u" in text:
            json.dumps(content, ensure_ascii=False).encode()  # fails on half a character
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return content, left


def canonical_digest(content: Any) -> str:
    """Return the checksum of what a JSON file holds, whatever its white space and the order of its keys.

    Examples
    --------
    >>> canonical_digest({"b": 1, "a": 2}) == canonical_digest({"a": 2, "b": 1})
    True
    """
    try:
        text = json.dumps(content, sort_keys=True)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    digest = hashlib.sha256()
    for start in range(0, len(text), 2**20):  # not a second copy of all of it
        digest.update(text[start : start + 2**20].encode())
    return digest.hexdigest()


def _memory_of(text: str) -> int:
    """Estimate from above how many bytes the parsed content takes."""
    letter = 4 if "\\u" in text else 1  # one wide character makes all of its string wide
    return letter * len(text) + sum(text.count(mark) * size for mark, size in _BYTES.items())


def _finite(number: str) -> float:
    if not math.isfinite(value := float(number)):
        raise ValueError(f"the number {number[:60]} is not finite")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {twice[:60]!r} occurs twice")
    return entries
