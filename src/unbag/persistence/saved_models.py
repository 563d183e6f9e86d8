"""Save and load fitted classifiers: a JSON file that a schema validates, and a file of safetensors.

No part of a saved classifier is code.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
from pydantic_core import PydanticSerializationError, to_json

from unbag._utils.checks import check_device
from unbag._utils.files import WEIGHTS, read_regular, remove_drafts, write_atomic
from unbag.estimators import AggregateClassifier
from unbag.estimators.predictor import Predictor
from unbag.persistence.classifier_state import Arrays, Code, CodeError, describe, restore_fit, restore_parameters
from unbag.persistence.schema import FORMAT, ArrayFile, Content
from unbag.persistence.strict_json import compute_digest, parse_object

HEAD = "model.json"
MAX_JSON_BYTES = 2**26
MAX_ARRAY_BYTES = 2**32
MAX_HEADER_BYTES = 2**22
"""Maximum size of the list of arrays in their file, which bounds their number."""


def save(classifier: Predictor, folder: str | Path, *, overwrite: bool = False) -> None:
    """Save a fitted classifier so that the folder holds the earlier or the new one at every moment.

    The file of arrays is named by its digest; the JSON file that names it is written last. ``overwrite`` replaces an
    earlier classifier in the folder; other files stay.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; name a folder for the classifier")
    if folder.exists() and not overwrite and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; choose another folder, or replace its model by overwrite=True")
    content, arrays, code = describe(classifier)
    # safetensors accepts no tensors that share memory.
    tensors = {
        f"{o}:{n}": t.detach().cpu().contiguous().clone() for o, group in arrays.items() for n, t in group.items()
    }
    raw = safetensors.torch.save(tensors)
    digest = hashlib.sha256(raw).hexdigest()
    file = f"weights-{digest[:16]}.safetensors"
    content["arrays"] = {"file": file, "n_bytes": len(raw), "sha256": digest}
    try:
        plain = json.loads(to_json(content, inf_nan_mode="null", fallback=_to_plain))
    except PydanticSerializationError as error:
        raise TypeError(f"the classifier has a parameter that cannot be saved as JSON: {error}") from None
    try:
        head = json.dumps({"format": FORMAT, "sha256": compute_digest(plain), "content": plain}, indent=1).encode()
        for name, part, limit in ((HEAD, head, MAX_JSON_BYTES), (file, raw, MAX_ARRAY_BYTES)):
            if len(part) > limit:
                raise ValueError(f"{name} would have {len(part):,} bytes, expected at most {limit:,}")
        _restore(_parse_head(head), raw, code, "cpu")
    except ValueError as error:
        raise ValueError(f"the classifier is not saved, because it could not be loaded again: {error}") from error
    folder.mkdir(parents=True, exist_ok=True)
    _raise_if_not_replaceable(folder / HEAD)
    for name, part in ((file, raw), (HEAD, head)):
        remove_drafts(folder / name)
        write_atomic(folder / name, part)
    for path in folder.iterdir():
        if WEIGHTS.fullmatch(path.name) and path.name != file:
            path.unlink(missing_ok=True)


def load(
    folder: str | Path, *, model: Any = None, aggregate: Any = None, loss: Any = None, device: str = "cpu"
) -> AggregateClassifier:
    """Load a saved classifier; damaged, altered and hostile files raise ``ValueError``.

    No code in the folder runs, and only regular files are read. Their sizes are checked before
    they are read, and every entry before memory is taken for it. Whether the model can be trusted is not checked.

    Parameters
    ----------
    folder
        Folder in which the classifier was saved.
    model, aggregate, loss
        The argument of the same name with which the classifier was made, if it is a module, a function or a kind of
        observation that is not registered: code is not saved.
    device
        Device on which to predict.

    Examples
    --------
    >>> import tempfile
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> clf = AggregateClassifier(model="linear", random_state=0).fit(X, X[:, 0] > 0)
    >>> folder = Path(tempfile.mkdtemp()) / "model"
    >>> clf.save(folder)
    >>> bool((load(folder).predict_proba(X) == clf.predict_proba(X)).all())
    True
    """
    path = Path(folder) / HEAD
    try:
        content = _parse_head(read_regular(path, MAX_JSON_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"there is no saved classifier in {path.parent}: {path.name} is missing") from None
    except ValueError as error:
        raise ValueError(f"{path} is no classifier that this version of unbag can load: {error}") from error
    check_device(device)
    arrays = path.with_name(content.arrays.file)
    try:
        raw = read_regular(arrays, min(content.arrays.n_bytes, MAX_ARRAY_BYTES))
        return _restore(content, raw, {"model": model, "aggregate": aggregate, "loss": loss}, device)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} needs {arrays.name}, which is missing in the same folder") from None
    except CodeError as error:
        raise CodeError(f"{path}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}; save the classifier again") from error


def _to_plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{value!r} of {type(value).__name__}")


def _parse_head(raw: bytes) -> Content:
    head = parse_object(raw)
    if head.keys() != {"format", "sha256", "content"} or type(head["format"]) is not int:
        raise ValueError("it must have format, sha256 and content; save the classifier again")
    if head["format"] > FORMAT:
        raise ValueError(f"it has format {head['format']!r:.20}, which a later version has saved; upgrade unbag")
    if head["format"] < FORMAT:
        raise ValueError(
            "it was saved by unbag 0.2.0 or earlier; fit the classifier again and save it, or load it by unbag 0.2"
        )
    if head["sha256"] != compute_digest(head["content"]):
        raise ValueError("it was altered after it was saved, as its checksum shows; save the classifier again")
    return Content.parse(json.dumps(head["content"]))


def _restore(content: Content, raw: bytes, code: Code, device: str) -> AggregateClassifier:
    """Return the classifier of validated content and of the file of arrays."""
    try:
        classifier = restore_parameters(content, code, device)
        arrays = _parse_arrays(raw, content.arrays, may_be_infinite=code["model"] is not None)
        restore_fit(classifier, content, arrays, code["model"])
        if left := sorted(f"{owner}:{name}" for owner, group in arrays.items() for name in group):
            raise ValueError(f"no model has the array {left[0]}")
    except CodeError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        message = f"{type(error).__name__} {error}" if isinstance(error, LookupError) else str(error).partition("\n")[0]
        raise ValueError(ascii(message[:400])[1:-1]) from error
    return classifier


def _parse_arrays(raw: bytes, file: ArrayFile, *, may_be_infinite: bool) -> Arrays:
    """Return finite tensors by owner and name; buffers of a module of the caller may be infinite."""
    if hashlib.sha256(raw).hexdigest() != file.sha256:
        raise ValueError(f"{file.file} was altered after it was saved, as its checksum shows")
    if int.from_bytes(raw[:8], "little") > MAX_HEADER_BYTES:
        raise ValueError(f"the header of {file.file} has more than {MAX_HEADER_BYTES:,} bytes")
    try:
        tensors = safetensors.torch.load(raw)
    except Exception as error:  # the library raises errors of many types for damaged files
        raise ValueError(f"{file.file} is no file of safetensors: {error}") from error
    arrays: Arrays = {}
    for key, tensor in tensors.items():
        owner, _, name = key.partition(":")
        checked = tensor.is_floating_point() and not (may_be_infinite and name.startswith("module."))
        if checked and not bool(tensor.double().isfinite().all()):
            raise ValueError(f"the array {key[:100]} has NaN or infinity")
        arrays.setdefault(owner, {})[name] = tensor
    return arrays


def _raise_if_not_replaceable(path: Path) -> None:
    """Raise an error for a file that is no saved classifier, of this or an earlier version."""
    try:
        right = {"format", "sha256", "content"} <= {*parse_object(read_regular(path, MAX_JSON_BYTES))}
    except FileNotFoundError:
        return
    except ValueError:
        right = False
    if not right:
        raise FileExistsError(
            f"{path} is no saved classifier, or damaged, and is not replaced; choose another folder, or move the file "
            "elsewhere"
        )
