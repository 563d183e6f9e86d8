"""Folders of saved classifiers, altered by somebody who knows of the checksums."""

import hashlib
import json
import os
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from unbag.persistence.schema import FORMAT

BIAS = "mixture.0.0:module.output.bias"
Change = Callable[[Path], Any]


def arrays_in(folder: Path) -> Path:
    (found,) = folder.glob("weights-*.safetensors")
    return found


def read_content(folder: Path) -> Any:
    return json.loads((folder / "model.json").read_text())["content"]


def write_content(folder: Path, content: Any) -> None:
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps({"format": FORMAT, "sha256": digest, "content": content}))


def write_arrays(folder: Path, raw: bytes) -> None:
    digest = hashlib.sha256(raw).hexdigest()
    arrays_in(folder).unlink()
    file = f"weights-{digest[:16]}.safetensors"
    (folder / file).write_bytes(raw)
    put(folder, "arrays", {"file": file, "n_bytes": len(raw), "sha256": digest})


def put(folder: Path, place: str, value: Any) -> None:
    """Set one entry of the content, named by its keys; further keys of a new object are made."""
    content = read_content(folder)
    *path, last = place.split(".")
    at = content
    for key in path:
        at = at[int(key) if isinstance(at, list) else key]
    at[int(last) if isinstance(at, list) else last] = value
    write_content(folder, content)


def change_array(name: str, change: Callable[[Tensor], Tensor] | None) -> Change:
    """Return a function that replaces, adds or removes an array."""

    def alter(folder: Path) -> None:
        tensors = safetensors.torch.load(arrays_in(folder).read_bytes())
        tensor = tensors.pop(name, torch.zeros(1))
        write_arrays(folder, safetensors.torch.save(tensors | ({} if change is None else {name: change(tensor)})))

    return alter


def change_header(change: Callable[[Any], Any], *, length: int | None = None, more: bytes = b"") -> Change:
    """Return a function that alters the header of the arrays, or its length, and appends bytes."""

    def alter(folder: Path) -> None:
        raw = arrays_in(folder).read_bytes()
        end = 8 + int.from_bytes(raw[:8], "little")
        changed = change(json.loads(raw[8:end]))
        text = changed if isinstance(changed, bytes) else json.dumps(changed).encode()
        text += b" " * (-len(text) % 8)
        size = (len(text) if length is None else length).to_bytes(8, "little")
        write_arrays(folder, size + text + raw[end:] + more)

    return alter


def _entry(**entries: Any) -> Change:
    return change_header(lambda header: {**header, BIAS: {**header[BIAS], **entries}})


def _make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # paths of sockets are short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)


NOT_FILES: dict[str, Change] = {
    "a pipe": os.mkfifo,
    "a socket": _make_socket,
    "a folder": Path.mkdir,
    "a link to an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a link to a terminal": lambda path: path.symlink_to("/dev/tty"),
    "a link to a folder": lambda path: path.symlink_to("/"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a file of the kernel": lambda path: path.symlink_to("/proc/self/mem"),
}


def _text(new: str) -> Change:
    """Return a function that replaces a number in the text, whose checksum it leaves."""

    def alter(folder: Path) -> None:
        text = (folder / "model.json").read_text()
        assert '"n_features_in": 3' in text
        (folder / "model.json").write_text(text.replace('"n_features_in": 3', f'"n_features_in": {new}', 1))

    return alter


def _head(raw: bytes) -> Change:
    return lambda folder: (folder / "model.json").write_bytes(raw)


TEXTS: dict[str, Change] = {
    "a list nested deeply": _text("[" * 10**5 + "]" * 10**5),
    "objects nested deeply": _text('{"a":' * 10**5 + "1" + "}" * 10**5),
    "an infinite number": _text("1e999"),
    "NaN": _text("NaN"),
    "a number of 5000 digits": _text("9" * 5000),
    "half a character": _text(r'"\ud800"'),
    "another value than the checksum's": _text("4"),
    "bytes that are not ASCII": _head('{"format": 1, "é": 1}'.encode()),
    "two bytes a character": _head('{"format": 1}'.encode("utf-16")),
    "a million empty objects": _head(b"[" + b"{}," * 10**6 + b"{}]"),
    "a million keys": _head(b"{" + b",".join(b'"%d":1' % key for key in range(10**6)) + b"}"),
    "a list": _head(b"[]"),
    "nothing": _head(b""),
    "no checksum": _head(b'{"format": 6, "content": {}}'),
    "a format that is no number": _head(b'{"format": [1], "sha256": "", "content": {}}'),
    "pickled bytes": _head(b"\x80\x04N."),
}

WRONG: list[tuple[str, Any]] = [
    *(("extra", 1), ("versions", ["0.1.0"]), ("versions.unbag", 1), ("parameters", []), ("parameters.extra", 1)),
    *(("parameters.aggregate", wrong) for wrong in ("everything", None, [["label_proportions"]], {"pairs": [[[], 1]]})),
    ("parameters.aggregate", {"kind": "FromFold", "arguments": {}}),
    ("parameters.aggregate", {"kind": "count_of", "arguments": {"label": -1}}),
    ("parameters.aggregate", {"kind": "label_proportions", "arguments": {"more": 1}}),
    ("parameters.training", {"kind": "Path", "arguments": {}}),
    ("parameters.model", {"code": "eval"}),
    *(("arrays.file", wrong) for wrong in (None, "", "a\0b", "../../..", "weights.safetensors", "weights-" + "a" * 99)),
    *(("arrays.n_bytes", wrong) for wrong in (-1, 1, True, 2**70)),
    *(("n_features_in", wrong) for wrong in (0, True, 4, 3.0, 10**200)),
    *(("input_shape", wrong) for wrong in (3, [], [3.0], [-3], [3, 1], [3] + [1] * 100, [3, 2**62, 2**62], [10**8])),
    ("features", [{"name": "a", "kind": "code"}]),
    ("features", [{"name": "a", "kind": "number"}]),
    ("features", [{"name": "a", "kind": "array", "width": 2**60}]),
    ("feature_names", ["a"]),
    ("feature_names", ["a", "b", 3]),
    ("symmetry", "some"),
    ("error_rates", [None, None]),
    ("error_rates", [2.0]),
    ("diagnosis", [{"kind": "k", "message": "m", "fatal": 1}]),
    ("estimated_accuracy", 0.5),
    ("estimated_accuracy", {"value": 0.5, "low": "a"}),
    ("candidates", [1]),
    *(("class_order", wrong) for wrong in ([0, 1], [0, 1, 1], [0, 1, 3], [False, True, 2], [0.0, 1.0, 2.0])),
    ("class_order", [{}] * 10**5),
    ("classes.extra", 1),
    ("classes.names", ["a"]),
    *(("classes.names", ["a", "b", wrong]) for wrong in ("b", None, 3, ["c"], "longer than the dtype", "b\0")),
    *(("classes.dtype", wrong) for wrong in ("<U400000000", "<U999999999999", "<i8", "<M8[D]", "V1000", "f8,f8", 8)),
    ("classes", {"names": [1, 2, 10**30], "dtype": "<i8"}),
    ("classes", {"names": [1, 2, 3.5], "dtype": "<i8"}),
    ("classes", {"names": [0, 1, True], "dtype": "O"}),
    ("mixture.extra", 1),
    ("mixture.candidates", []),
    ("mixture.candidates.0.seconds", 10**200 * 10**200),
    ("mixture.candidates.0.models", [{"kind": "network", "values": {}}] * 5000),
    *(("mixture.candidates.0.orders", wrong) for wrong in ([], [0, 1, 2], [[0, 1, 2]], [[0, 1, 2], [0, 0, 2]])),
    *(("mixture.candidates.0.models.0.kind", wrong) for wrong in ("linear", "classifier", "", "os", 1)),
    *(("mixture.candidates.0.models.0.values", wrong) for wrong in ({}, [], {"model": "mlp"})),
    *(("mixture.candidates.0.models.0.values.model", wrong) for wrong in ("linear", "xgboost", None, ["mlp"])),
    *(("mixture.candidates.0.models.0.values.hidden", wrong) for wrong in (5, [10**9], [1] * 10**5, [-1], ["a"])),
    *(("mixture.candidates.0.models.0.values.input_shape", wrong) for wrong in ([4], [2**60], [], "3", [3, -1])),
    *(("mixture.candidates.0.models.0.values.n_outputs", wrong) for wrong in (2, 10**9, -1, "3")),
    ("bag_mixture", {"score": None, "candidates": []}),
]  # fmt: skip


ARRAYS: dict[str, Change] = {
    "NaN": change_array(BIAS, lambda t: t * float("nan")),
    "an infinite scale": change_array("classifier:factor", lambda t: t + float("inf")),
    "missing": change_array(BIAS, None),
    "more": change_array("mixture.0.0:module.more", lambda t: t),
    "of no model": change_array("mixture.0.7:module.output.bias", lambda t: t),
    "of no owner": change_array("more", lambda t: t),
    "another shape": change_array(BIAS, lambda t: t[:, None]),
    "another type": change_array(BIAS, lambda t: t.double()),
    "missing columns out of range": change_array("mixture.0.0:missing", lambda t: torch.tensor([99])),
    "a scale for one column": change_array("classifier:shift", lambda t: t[:1]),
    "negative weights": change_array("mixture:weights", lambda t: -t),
    "weights that do not add up": change_array("mixture:weights", lambda t: 2 * t),
    "a sharpness of zero": change_array("mixture:sharpness", lambda t: 0 * t),
    "a header of 2^63": change_header(dict, length=2**63),
    "a header beyond the end": change_header(dict, length=10**6),
    "a header that is a list": change_header(list),
    "a header that is not text": change_header(lambda header: b"\xff" * 64),
    "a header of five megabytes": change_header(lambda header: {**header, "x" * 5 * 2**20: header[BIAS]}),
    "an unknown type": _entry(dtype="PICKLE"),
    "a type that a terminal obeys": _entry(dtype="\x1b[31m"),
    "a shape of 2^64": _entry(shape=[2**62, 4]),
    "offsets beyond the end": _entry(data_offsets=[10**9, 10**9 + 12]),
    "bytes after the end": change_header(dict, more=b"12345678"),
    "no bytes": lambda folder: write_arrays(folder, b""),
    "pickled": lambda folder: write_arrays(folder, b"\x80\x04cos\nsystem\n(S'touch ran'\ntR."),
}

JUNK: list[Any] = [None, True, 0, 1, -1, 3, 10**6, 2**63, 10**30, 0.5, -2.5, 1e300, "", "a", "auto", "\x1b[31m", "O"]
JUNK += ["<i8", "<U9", "linear", "label_proportions", [], [0], [[]], ["a", "b", "c"], [2, 1, 0], {}, {"a": 1}]


def mutate(folder: Path, seed: int) -> None:
    """Alter one to three entries of the content, or bytes of the header of the arrays."""
    draw = random.Random(seed)
    n_changes = draw.randint(1, 3)
    if draw.random() < 0.3:
        raw = bytearray(arrays_in(folder).read_bytes())
        end = 8 + int.from_bytes(raw[:8], "little")
        for _ in range(n_changes):
            raw[draw.randrange(end)] = draw.choice([draw.randrange(256), ord(draw.choice('0123456789[]{},:"F'))])
        write_arrays(folder, bytes(raw))
        return
    content = read_content(folder)
    for _ in range(n_changes):
        places = list(_places(content))
        at, key = draw.choice(places)
        how = draw.choice(["junk", "junk", "remove", "copy", "nudge"])
        if how == "remove":
            del at[key]
        elif how == "copy":
            other, place = draw.choice(places)
            at[key] = json.loads(json.dumps(other[place]))
        elif how == "nudge" and isinstance(at[key], int | float):
            at[key] = at[key] * draw.choice([-1, 2, 10**9]) + draw.choice([0, 1, -1])
        else:
            at[key] = draw.choice(JUNK)
    write_content(folder, content)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])
