"""Folders of saved classifiers, altered by somebody who knows of the checksums."""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from unbag.saving import FORMAT

DEEP = 100_000


def weights_in(folder: Path) -> Path:
    (found,) = folder.glob("*.safetensors")
    return found


def read_content(folder: Path) -> Any:
    return json.loads((folder / "model.json").read_text())["content"]


def write_content(folder: Path, content: Any) -> None:
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps({"format": FORMAT, "sha256": digest, "content": content}))


def write_weights(folder: Path, raw: bytes, path: Path | None = None) -> None:
    """Replace the file of weights, or one of several."""
    digest = hashlib.sha256(raw).hexdigest()
    path = path or weights_in(folder)
    path.unlink()
    content = read_content(folder)
    (one,) = (one for one in content["weights"] if one["file"] == path.name)
    one.update(file=f"weights-{digest[:16]}.safetensors", sha256=digest)
    (folder / one["file"]).write_bytes(raw)
    write_content(folder, content)


def put(folder: Path, place: str, value: Any) -> None:
    """Set one entry of the content, named by its keys."""
    content = read_content(folder)
    *path, last = place.split(".")
    at = content
    for key in path:
        at = at[int(key) if isinstance(at, list) else key]
    at[int(last) if isinstance(at, list) else last] = value
    write_content(folder, content)


# Not files


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # paths of sockets are short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)


NOT_FILES: dict[str, Callable[[Path], None]] = {
    "a pipe": _pipe,
    "a socket": _socket,
    "a folder": Path.mkdir,
    "a link to an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a link to an empty device": lambda path: path.symlink_to("/dev/null"),
    "a link to a terminal": lambda path: path.symlink_to("/dev/tty"),
    "a link to a folder": lambda path: path.symlink_to("/"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a file of the kernel": lambda path: path.symlink_to("/proc/self/mem"),
}

# Texts, with every checksum in place that a text can have


def _text(old: str, new: str) -> Callable[[Path], None]:
    """Replace text after the checksum was made of what the new text would be parsed as, where it can be parsed."""

    def change(folder: Path) -> None:
        text = (folder / "model.json").read_text()
        assert old in text
        (folder / "model.json").write_text(text.replace(old, new, 1))

    return change


def _replace_head(text: Callable[[], bytes]) -> Callable[[Path], None]:
    return lambda folder: (folder / "model.json").write_bytes(text()) and None


TEXTS: dict[str, Callable[[Path], None]] = {
    "a list nested deeply": _text('"epochs": 2', f'"epochs": {"[" * DEEP}{"]" * DEEP}'),
    "tables nested deeply": _text('"epochs": 2', '"epochs": ' + '{"a":' * DEEP + "1" + "}" * DEEP),
    "an infinite number": _text('"learning_rate": 0.01', '"learning_rate": 1e999'),
    "NaN": _text('"learning_rate": 0.01', '"learning_rate": NaN'),
    "Infinity": _text('"learning_rate": 0.01', '"learning_rate": -Infinity'),
    "a number of 5000 digits": _text('"epochs": 2', f'"epochs": {"9" * 5000}'),
    "a key twice": _text('"epochs": 2', '"epochs": 2, "epochs": 2'),
    "half a character": _text('"scaling_": "standard"', r'"scaling_": "\ud800"'),
    "bytes that are not ASCII": _replace_head('{"format": 1, "é": 1}'.encode),
    "two bytes a character": _replace_head(lambda: '{"format": 1}'.encode("utf-16")),
    "a million empty tables": _replace_head(lambda: b"[" + b"{}," * 10**6 + b"{}]"),
    "a million keys": _replace_head(lambda: b"{" + b",".join(b'"%d":1' % key for key in range(10**6)) + b"}"),
    "a list": _replace_head(lambda: b"[]"),
    "a format that is no number": _text(f'"format": {FORMAT}', '"format": [1]'),
    "no checksum": _text('"sha256"', '"sha512"'),
}

# Entries of the content

WRONG: list[tuple[str, Any]] = [
    ("extra", 1),
    ("versions", ["0.1.0"]),
    ("versions.unbag", 1),
    ("own", "model"),
    ("own", ["device"]),
    ("own", [["model"]]),
    ("own", ["model"]),  # but one was saved
    ("settings", []),
    ("settings.extra", 1),
    ("settings.epochs", -1),
    ("settings.epochs", True),
    ("settings.epochs", 10**400),
    ("settings.epochs", [2]),
    ("settings.warm_up", "later"),
    ("settings.batch_size", 0),
    ("settings.batch_size", 1.5),
    ("settings.learning_rate", "fast"),
    ("settings.learning_rate", 10**400),
    ("settings.weight_decay", -1),
    ("settings.patience", -3),
    ("settings.method", "guess"),
    ("settings.method", "guess" * 10_000),
    ("settings.weights", {}),
    ("settings.scaling", "log"),
    ("settings.n_restarts", 0),
    ("settings.n_folds", 1),
    ("settings.n_folds", "many"),
    ("settings.n_folds", True),
    ("settings.ensemble", "yes"),
    ("settings.validation_fraction", 1.5),
    ("settings.n_classes", 1),
    ("settings.classes", {"a": 1}),
    ("settings.random_state", 2**40),
    ("settings.verbose", "loud"),
    ("settings.loss", "eval"),
    ("settings.loss", None),
    ("settings.model", "xgboost"),
    ("settings.model", None),
    ("settings.model", "\x1b[31m" * 10_000),
    ("settings.model", ["mlp"]),
    ("settings.model", "densenet"),
    ("settings.model", "logistic"),
    ("settings.model", "linear"),
    ("settings.aggregate", None),
    ("settings.aggregate", []),
    ("settings.aggregate", "everything"),
    ("settings.aggregate", [["label_proportions"]]),
    ("settings.aggregate", {"name": "FromFold", "settings": {}}),
    ("settings.aggregate", {"name": "CountOf", "settings": {"label": -1}}),
    ("settings.aggregate", {"name": "CountOf", "settings": {"label": True}}),
    ("settings.aggregate", {"name": "CountOf", "settings": [1]}),
    ("settings.aggregate", {"name": "OrdinalRank", "settings": {"relation": [1]}}),
    ("settings.aggregate", {"name": "LabelProportions", "settings": {"more": 1}}),
    ("settings.aggregate", {"name": "__class__", "settings": {}}),
    ("settings.aggregate", {"name": ["CountOf"], "settings": {}}),
    ("weights", "weights.safetensors"),
    ("weights", []),
    ("weights", [1]),
    ("weights.0.extra", 1),
    ("weights.0.model", "linear"),
    ("weights.0.model", None),
    ("weights.0.model", ["mlp"]),
    ("weights.0.n", 0),
    ("weights.0.n", True),
    ("weights.0.n", 3),
    ("weights.0.n", 2**62),
    ("weights.0.file", None),
    ("weights.0.file", ""),
    ("weights.0.file", "a\0b"),
    ("weights.0.file", "a" * 1000),
    ("weights.0.file", "../../.."),
    ("weights.0.sha256", 0),
    ("fitted", None),
    ("fitted.extra", 1),
    ("fitted.n_features_in_", 0),
    ("fitted.n_features_in_", True),
    ("fitted.n_features_in_", 4),
    ("fitted.preparation", 3),
    ("fitted.preparation", [3]),
    ("fitted.preparation", [{"name": "a", "kind": "code", "fill": 0, "marked": False, "values": [], "width": 0}]),
    ("fitted.preparation", [{"name": "a", "kind": "number", "fill": 0, "marked": False, "values": [], "width": 0}]),
    (
        "fitted.preparation",
        [{"name": "a", "kind": "array", "fill": 0, "marked": False, "values": [], "width": 2**60}],
    ),
    ("fitted.input_shape_", 3),
    ("fitted.input_shape_", []),
    ("fitted.input_shape_", [3.0]),
    ("fitted.input_shape_", [-3]),
    ("fitted.input_shape_", [3, 1]),
    ("fitted.input_shape_", [3] + [1] * 100),
    ("fitted.input_shape_", [3, 2**62, 2**62]),
    ("fitted.scaling_", "log"),
    ("fitted.scaling_", ["standard"]),
    ("fitted.symmetry_", "some"),
    ("fitted.history_", {}),
    ("fitted.history_", [1]),
    ("fitted.history_", [{"epoch": 0}]),
    ("fitted.history_.0.loss", {}),
    ("fitted.history_.0.loss", ["low"]),
    ("fitted.replicas_", 1),
    ("fitted.replicas_", [{}]),
    ("fitted.replicas_.0.best_epoch", -1),
    ("fitted.replicas_.0.score", "high"),
    ("fitted.best_epoch_", 1.0),
    ("fitted.n_iter_", -1),
    ("fitted.feature_statistics_.mean.0", 10**400),
    ("fitted.feature_statistics_.n", [1, 2]),
    ("fitted.model_weights_", None),
    ("fitted.model_weights_", [1.0]),  # of two models
    ("fitted.model_weights_", [0.5, 0.6]),
    ("fitted.model_weights_", [1.0, 0.0]),
    ("fitted.model_weights_", [2.0, -1.0]),
    ("fitted.model_weights_", [0.5, "half"]),
    ("fitted.model_folds_", 1),
    ("fitted.model_folds_", [0]),  # of two models
    ("fitted.model_folds_", [0, -1]),
    ("fitted.model_folds_", [0, 1]),  # without folds of groups
    ("fitted.folds_", [[0, 1]]),  # without folds of models
    ("fitted.folds_", [0, 1]),
    ("fitted.folds_", [[0, 0.5]]),
    ("fitted.folds_", [[0, -2]]),
    ("fitted.temperature_", 0),
    ("fitted.model_temperatures_", [0.0]),
    ("fitted.temperature_", 1e-300),
    ("fitted.temperature_", 1e300),
    ("fitted.temperature_", "hot"),
    ("fitted.candidates_", None),
    ("fitted.candidates_", [1]),
    ("fitted.candidates_", [{"model": "mlp", "score": 0}]),
    ("fitted.candidates_", [{"model": "mlp", "score": 0, "weight": 2}]),
    ("fitted.estimated_accuracy", 0.5),
    ("fitted.estimated_accuracy", {"value": 0.5, "low": 0.4}),
    ("fitted.estimated_accuracy", {"value": 1.5, "low": 0.4, "high": 0.6}),
    ("fitted.feature_names", "abc"),
    ("fitted.feature_names", ["a"]),
    ("fitted.feature_names", ["a", "b", 3]),
    ("fitted.diagnosis", [{"kind": "k", "message": "m", "fatal": 1}]),
    ("fitted.diagnosis", [{"kind": "k"}]),
    ("fitted.orders", []),
    ("fitted.orders", [0, 1, 2]),
    ("fitted.orders", [[0, 1, 2]]),  # of two models
    ("fitted.orders", [[0, 1, 2], [0, 0, 2]]),
    ("fitted.orders", [[0, 1, 2], [0, 1, 3]]),
    ("fitted.orders", [[0, 1, 2], [0, 1, -1]]),
    ("fitted.orders", [[0, 1, 2], [False, True, 2]]),
    ("fitted.orders", [[0, 1, 2], [0.0, 1.0, 2.0]]),
    ("fitted.orders", [[0, 1, 2]] * 10_000),
    ("fitted.classes", ["a", "b", "c"]),
    ("fitted.classes.extra", 1),
    ("fitted.classes.names", "abc"),
    ("fitted.classes.names", ["a"]),
    ("fitted.classes.names", ["a", "b", "c", "d"]),
    ("fitted.classes.names", ["a", "b", "b"]),
    ("fitted.classes.names", ["a", "b", None]),
    ("fitted.classes.names", ["a", "b", 3]),
    ("fitted.classes.names", ["a", "b", ["c"]]),
    ("fitted.classes.names", ["a", "b", "longer than the dtype allows"]),
    ("fitted.classes.names", ["a", "b", "b\0"]),
    ("fitted.classes.dtype", "<U400000000"),
    ("fitted.classes.dtype", "<U999999999999"),
    ("fitted.classes.dtype", "<i8"),
    ("fitted.classes.dtype", "<M8[D]"),
    ("fitted.classes.dtype", "V1000000000"),
    ("fitted.classes.dtype", "(100000,100000)f8"),
    ("fitted.classes.dtype", "f8,f8"),
    ("fitted.classes.dtype", "<b4"),
    ("fitted.classes.dtype", 8),
    ("fitted.classes", {"names": [1, 2, 300], "dtype": "|i1"}),
    ("fitted.classes", {"names": [1, 2, 10**30], "dtype": "<i8"}),
    ("fitted.classes", {"names": [0.5, 1.5, 1e300], "dtype": "<f2"}),
    ("fitted.classes", {"names": [1, 2, 3.5], "dtype": "<i8"}),
    ("fitted.classes", {"names": [0, 1, True], "dtype": "O"}),
]


def _rows_of(size: int) -> Callable[[Path], None]:
    """Say that rows are long, so that the model would be large."""

    def change(folder: Path) -> None:
        put(folder, "fitted.n_features_in_", size)
        put(folder, "fitted.input_shape_", [size])

    return change


def _many_names(folder: Path) -> None:
    put(folder, "fitted.classes.names", [f"c{number}" for number in range(10**6)])


def _many_models(folder: Path) -> None:
    shapes = {"0.shift": [3], "0.factor": [3], "1.output.weight": [3, 3], "1.output.bias": [3]}
    header, end, n = {}, 0, 5000
    for name in (f"{model}.{name}" for model in range(n) for name in shapes):
        shape = shapes[name.partition(".")[2]]
        start, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    put(folder, "settings.model", "linear")
    put(folder, "fitted.orders", [[0, 1, 2]] * n)
    put(folder, "fitted.model_weights_", [1 / n] * n)
    put(folder, "weights.0.model", "linear")
    put(folder, "weights.0.n", n)
    write_weights(folder, len(text).to_bytes(8, "little") + text + bytes(end))


LARGE: dict[str, Callable[[Path], None]] = {
    "rows of 2e8": _rows_of(2 * 10**8),
    "rows of 1e18": _rows_of(10**18),
    "a million names": _many_names,
    "five thousand models": _many_models,
}

# Weights


def change_tensor(name: str, value: torch.Tensor | None) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        tensors = safetensors.torch.load(weights_in(folder).read_bytes())
        if value is None:
            del tensors[name]
        else:
            tensors[name] = value
        write_weights(folder, safetensors.torch.save(tensors))

    return change


def read_header(folder: Path) -> tuple[Any, bytes]:
    raw = weights_in(folder).read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    return json.loads(raw[8:end]), raw[end:]


def _header(change: Callable[[Any], Any], *, length: int | None = None, more: bytes = b"") -> Callable[[Path], None]:
    def altered(folder: Path) -> None:
        header, data = read_header(folder)
        changed = change(header)
        text = changed if isinstance(changed, bytes) else json.dumps(header if changed is None else changed).encode()
        text += b" " * (-len(text) % 8)
        write_weights(folder, (len(text) if length is None else length).to_bytes(8, "little") + text + data + more)

    return altered


BIAS = "0.1.output.bias"


def _entry(**entries: Any) -> Callable[[Path], None]:
    return _header(lambda header: header[BIAS].update(entries))


def _bias(*values: float) -> torch.Tensor:
    return torch.tensor(values)


WEIGHTS: dict[str, Callable[[Path], None]] = {
    "NaN weights": change_tensor(BIAS, _bias(0, float("nan"), 0)),
    "infinite weights": change_tensor(BIAS, _bias(0, 0, float("-inf"))),
    "an infinite scale": change_tensor("0.0.factor", _bias(1, 1, float("inf"))),
    "a missing tensor": change_tensor(BIAS, None),
    "one tensor more": change_tensor("0.1.more", torch.zeros(1)),
    "a tensor of a third model": change_tensor("2.1.output.bias", torch.zeros(3)),
    "another shape": change_tensor(BIAS, torch.zeros(3, 1)),
    "no elements": change_tensor(BIAS, torch.zeros(0)),
    "another dtype": change_tensor(BIAS, torch.zeros(3, dtype=torch.float64)),
    "whole numbers": change_tensor(BIAS, torch.zeros(3, dtype=torch.int64)),
    "a scale for one column": change_tensor("0.0.shift", torch.zeros(1)),
    "a header of 2^63": _header(lambda header: None, length=2**63),
    "a header of 2^64 - 1": _header(lambda header: None, length=2**64 - 1),
    "a header beyond the end": _header(lambda header: None, length=10**6),
    "a header of nothing": _header(lambda header: None, length=0),
    "a header that is a list": _header(lambda header: []),
    "a header nested deeply": _header(lambda header: b"[" * 1000),
    "a header that is not text": _header(lambda header: b"\xff" * 64),
    "many empty tensors": _header(
        lambda header: {
            **header,
            **{f"x{n}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(9999)},
        }
    ),
    "an unknown dtype": _entry(dtype="PICKLE"),
    "a dtype that a terminal obeys": _entry(dtype="\x1b[31m"),
    "a name that a terminal obeys": change_tensor("\x1b[31m", torch.zeros(1)),
    "a dtype of half a byte": _entry(dtype="F4"),
    "an infinite shape": _entry(shape=[2**62, 4]),
    "a shape beyond 64 bits": _entry(shape=[2**70]),
    "a negative shape": _entry(shape=[-3]),
    "a shape with zeros": _entry(shape=[0, 2**62]),
    "a shape that is no list": _entry(shape=3),
    "offsets beyond the end": _entry(data_offsets=[10**9, 10**9 + 12]),
    "offsets that overlap": _entry(data_offsets=[0, 12]),
    "offsets backwards": _entry(data_offsets=[12, 0]),
    "negative offsets": _entry(data_offsets=[-12, 0]),
    "one offset": _entry(data_offsets=[0]),
    "bytes after the end": _header(lambda header: None, more=b"12345678"),
    "no bytes": lambda folder: write_weights(folder, b""),
    "three bytes": lambda folder: write_weights(folder, b"abc"),
}

# Any change

JUNK: list[Any] = [None, True, False, 0, 1, -1, 2, 3, 7, 10**6, 2**63, 10**30, 0.5, -2.5, 1e300]
JUNK += ["", "a", "auto", "\x1b[31m", "é" * 9, "none", "O", "<i8", "<U9", "linear", "label_proportions"]
JUNK += [[], [0], [[]], ["a", "b", "c"], [2, 1, 0], {}, {"a": 1}]


def mutate(folder: Path, seed: int) -> str:
    """Alter one to three entries of the content, or bytes of the header of the weights; say what was done."""
    draw = random.Random(seed)
    if draw.random() < 0.3:
        files = sorted(folder.glob("*.safetensors"))
        path = files[seed % len(files)]
        raw = bytearray(path.read_bytes())
        end = 8 + int.from_bytes(raw[:8], "little")
        done = []
        for _ in range(draw.randint(1, 3)):
            place = draw.randrange(end)
            raw[place] = draw.choice([draw.randrange(256), ord(draw.choice('0123456789[]{},:"F'))])
            done.append((place, raw[place]))
        write_weights(folder, bytes(raw), path)
        return f"bytes {done}"
    content = read_content(folder)
    done = []
    for _ in range(draw.randint(1, 3)):
        places = list(_places(content))
        at, key = draw.choice(places)
        how = draw.choice(["junk", "junk", "junk", "remove", "copy", "nudge"])
        if how == "remove":
            del at[key]
        elif how == "copy":
            other, place = draw.choice(places)
            at[key] = json.loads(json.dumps(other[place]))
        elif how == "nudge" and isinstance(at[key], int | float):
            at[key] = at[key] * draw.choice([-1, 2, 10**9]) + draw.choice([0, 1, -1])
        else:
            at[key] = draw.choice(JUNK)
        done.append((key, how))
    write_content(folder, content)
    return str(done)


def _places(value: Any) -> Any:
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])
