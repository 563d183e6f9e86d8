"""Weights of saved classifiers: loaded only if they are those of the model that the settings make."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from math import prod
from pathlib import Path
from typing import Any, cast

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from unbag._utils.checks import describe
from unbag._utils.files import read_regular
from unbag._utils.random_state import RandomState
from unbag.data.scaling import Scaling, scaling_shape
from unbag.families import Model, Network, Trees, is_network
from unbag.predictor import Predictor
from unbag.saved_trees import read_trees, trees_as_bytes
from unbag.training.architectures import build
from unbag.training.replicas import named_tensors

# What an object of torch.nn.Module takes, beside its tensors.
MODULE_BYTES = 4096

# A model of the caller's own is tried on two rows; of images, no tensor in the file tells the size.
LARGEST_ROW = 2**25


def weights_as_bytes(models: Sequence[Model]) -> tuple[str, bytes]:
    """Return what models have learned as a file, and how its name ends.

    Parameters and buffers of networks are a file of safetensors, trees one in LightGBM's text format.
    """
    if all(isinstance(model, Trees) for model in models):
        return "txt", trees_as_bytes(cast(Sequence[Trees], models))
    if not all(isinstance(model, Network) for model in models):
        raise TypeError(
            "a classifier of scikit-learn cannot be saved without pickle, whose files can run code; networks and "
            "model='trees' can be saved: fit one of these, or save the classifier by other means, at your own risk"
        )
    named = {
        f"{place}.{name}": tensor.detach().cpu().contiguous().clone()
        for place, model in enumerate(cast(Sequence[Network], models))
        for name, tensor in named_tensors(model).items()
    }
    return "safetensors", safetensors.torch.save(named)


def read_models(folder: Path, files: Sequence[dict[str, Any]], classifier: Predictor, spare: int) -> list[Model]:
    """Return models with the weights of files; nothing is allocated for a model that they do not fit.

    ``files`` says of each its name, its checksum, and of which models and how many it holds the weights. The classifier
    has everything but its models; they are put on its device, and may take ``spare`` bytes beside their tensors, and
    beside as many as the files have.
    """
    models: list[Model] = []
    for one in files:
        path = folder / Path(one["file"]).name
        model = classifier.model if one["model"] is None else one["model"]
        if is_network(model):
            nets = _read_networks(path, {**one, "model": model}, classifier, spare)
            spare -= max(0, MODULE_BYTES * sum(len(list(net.modules())) for net in nets) - path.stat().st_size)
            models += nets
        else:
            content = _read_checked(path, one["sha256"])
            models += read_trees(path, content, one["n"], prod(classifier.input_shape_), len(classifier.classes_))
    return models


def _read_networks(path: Path, file: dict[str, Any], classifier: Predictor, spare: int) -> list[Network]:
    model, n_models, input_shape = file["model"], file["n"], classifier.input_shape_
    try:
        make_net = _make_net(model, input_shape, len(classifier.classes_))
        net = make_net()
    except (OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"the classifier in {path.parent} reads rows of shape {input_shape} and has {len(classifier.classes_)} "
            f"classes, for which its model cannot be made: {_shown(error)}"
        ) from error
    content = _read_checked(path, file["sha256"])
    if (2 + len(list(net.modules()))) * MODULE_BYTES * n_models > spare + len(content):
        raise ValueError(
            f"{path} has {len(content)} bytes, and its {n_models} models would take far more memory than that; save a "
            "classifier of fewer models"
        )
    dtype = torch.get_default_dtype() if classifier.scaling_ == "none" else torch.float32
    shift = torch.empty(scaling_shape(input_shape), dtype=dtype, device="meta")
    scaling = {"0.shift": shift, "0.factor": shift}
    one = scaling | {f"1.{name}": tensor for name, tensor in named_tensors(net).items()}
    tensors = _decode(path, content, {f"{place}.{name}": one[name] for place in range(n_models) for name in one})
    del content
    finite = one if isinstance(model, str) else [*scaling, *(f"1.{name}" for name, _ in net.named_parameters())]
    for place in range(n_models):
        for name in finite:
            _check_values(path, f"{place}.{name}", tensors[f"{place}.{name}"])
    models = []
    for place in range(n_models):
        net = make_net()
        own = {name: tensors.pop(f"{place}.1.{name}") for name in named_tensors(net)}
        if isinstance(model, str):
            net.load_state_dict(own, assign=True)  # it has no memory to copy to
        else:
            with torch.no_grad():
                for name, tensor in named_tensors(net).items():
                    tensor.copy_(own[name])
        scaled = Scaling(tensors.pop(f"{place}.0.shift"), tensors.pop(f"{place}.0.factor"))
        models.append(Network(scaled, net).eval().to(classifier.device))
    return models


def _make_net(model: Any, input_shape: tuple[int, ...], n_classes: int) -> Callable[[], nn.Module]:
    """Return what makes a model: of one with a name the shapes alone, without memory for its tensors."""
    if not isinstance(model, str) and prod(input_shape) > LARGEST_ROW:
        raise ValueError(f"rows of shape {input_shape} are too large to try a model of your own on")

    def on_meta(function: Callable[[], Any]) -> Any:
        with torch.device("meta") if isinstance(model, str) else nullcontext(), RandomState(0).in_place():
            return function()

    make = on_meta(lambda: build(model, input_shape, n_classes))
    return lambda: on_meta(make)


def _read_checked(path: Path, digest: str) -> bytes:
    try:
        content = read_regular(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"the weights of the classifier in {path.parent} are missing: {path.name}") from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError(f"{path} is truncated, or was altered after it was saved: it does not fit its checksum")
    return content


def _decode(path: Path, content: bytes, expected: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a file, which must be as expected in name, dtype and shape."""
    length = int.from_bytes(content[:8], "little")
    # A name, with every character escaped, a dtype, numbers of up to 20 digits, and what stands between them.
    most = sum(6 * len(name) + 21 * tensor.ndim + 128 for name, tensor in expected.items())
    if length > min(len(content) - 8, most):
        raise ValueError(
            f"{path} is no file of safetensors for this model: its header would have {length} bytes, but the file has "
            f"{len(content)}, and the header of {len(expected)} tensors at most {most}; save the classifier again"
        )
    try:
        tensors = safetensors.torch.load(content)
    except (SafetensorError, KeyError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no file of safetensors: {_shown(error)}; save the classifier again") from error
    if differ := sorted(name for name in {*expected, *tensors} if not _is_as(expected.get(name), tensors.get(name))):
        first = differ[0]
        raise ValueError(
            f"the saved weights are of another model; they differ in {', '.join(map(_shown, differ[:3]))}: "
            f"{_shown(first)} must be {_told(expected.get(first))}, got {_told(tensors.get(first))} in {path}"
        )
    return tensors


def _is_as(expected: Tensor | None, actual: Tensor | None) -> bool:
    if expected is None or actual is None:
        return False
    return (expected.dtype, expected.shape) == (actual.dtype, actual.shape)


def _check_values(path: Path, name: str, tensor: Tensor) -> None:
    """Refuse weights with which a model says nothing, and would call every row by the first class."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return
    parts = (part if part.is_complex() else part.double() for part in tensor.flatten().split(2**20))
    if not all(bool(part.isfinite().all()) for part in parts):
        raise ValueError(f"the tensor {name} of {path} holds NaN or infinite values; fit the classifier again")
    if name.endswith("running_var") and bool((tensor < 0).any()):
        raise ValueError(f"the tensor {name} of {path} holds negative variances; fit the classifier again")


def _told(tensor: Tensor | None) -> str:
    return "nothing" if tensor is None else describe(tensor)


def _shown(text: object) -> str:
    """Return the start of a text that may come from the file, without what a terminal would obey."""
    return ascii(str(text).partition("\n")[0][:200])[1:-1]  # torch adds its own stack on further lines
