"""Digests of Python objects: functions by their code, closures and globals, all else by its content.

A digest is the same in every process, so that a run that goes on can be compared with the one that was saved. Code of
installed packages is told by its name and their version; all other code is followed to what it reads.
"""

from __future__ import annotations

import copyreg
import hashlib
import importlib
import importlib.util
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unbag.training.introspection import (
    Names,
    derived_attributes,
    installed_package,
    is_authored,
    is_found_by_name,
    names_read,
    without_line,
)

PLAIN = (type(None), bool, int, float, complex, str, bytes, range, type(Ellipsis), type(NotImplemented))
DESCRIPTORS = (
    MethodDescriptorType,
    WrapperDescriptorType,
    ClassMethodDescriptorType,
    GetSetDescriptorType,
    MemberDescriptorType,
)
WRAPPERS: dict[type, tuple[str, ...]] = {
    MethodType: ("__func__", "__self__"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
    cached_property: ("func",),
}
READ_BY_NAME = {"eval", "exec", "compile", "globals", "__import__"}
"""Builtins that reach what no code object names."""


class Unidentifiable(TypeError):
    """An object cannot be told from others that do something else."""


def digest(value: Any, name: str = "this") -> str:
    """Return a digest by which an object can be told from any that holds or does something else.

    Parameters
    ----------
    value
        Numbers, text, containers, arrays, tensors, modules, functions, classes, and objects that pickle can take apart.
        A class may name in ``_derived_attributes`` what follows from the other attributes and is not looked at.
    name
        What the caller calls it, for error messages.

    Examples
    --------
    >>> digest(lambda x: x + 1) == digest(lambda x: x + 1) != digest(lambda x: x + 2)
    True
    """
    writer = _Writer(name)
    try:
        writer.write(value)
    except RecursionError as error:
        raise writer.refusal("it is nested too deeply") from error
    return writer.hexdigest()


class _Writer:
    """Feeds objects to a hash; one that was met before is referred to by the number of its first visit."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._path: list[str] = []
        self._hash = hashlib.sha256()
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no address is used twice
        self._modules: set[tuple[str, frozenset[str]]] = set()

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def refusal(self, why: str) -> Unidentifiable:
        where = f" ({' of '.join(reversed(self._path[-4:]))})" if self._path else ""
        return Unidentifiable(
            f"{self._name}{where} cannot be told from another one, so that no checkpoint is known to be of the same "
            f"run: {why}; give a name where there is one, a function that reads plain values, or a dataclass, or leave "
            "checkpoint= out"
        )

    def write(self, value: Any) -> None:
        if type(value) in PLAIN:
            self._emit(type(value).__name__, f"{value:x}" if type(value) is int else repr(value))
        elif type(value) is tuple:
            self._items("tuple", value)
        elif type(value) in (set, frozenset):
            self._emit(type(value).__name__, *sorted(digest(one, self._name) for one in value))
        elif isinstance(value, CodeType):
            self._code(value)
        elif isinstance(value, ModuleType):
            self._module(value, None)
        elif id(value) in self._numbers:
            self._emit("met", str(self._numbers[id(value)]))
        else:
            self._numbers[id(value)] = len(self._numbers)
            self._kept.append(value)
            self._object(value)

    def _object(self, value: Any) -> None:
        if type(value) is list:
            self._items("list", value)
        elif type(value) is dict:
            self._items("dict", (part for item in value.items() for part in item))
        elif isinstance(value, Tensor):
            self._tensor(value)
        elif isinstance(value, nn.Module):  # some of them, such as those with weight norm, refuse to be pickled
            self.write(type(value))
            self._state(type(value), vars(value))
        elif isinstance(value, np.ndarray | np.generic):
            self._array(np.asarray(value))
        elif isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, BuiltinFunctionType | MethodWrapperType):
            owner = value.__self__
            self._emit("builtin", value.__qualname__, *([owner.__name__] if isinstance(owner, ModuleType) else []))
            self.write(None if isinstance(owner, ModuleType) else owner)
        elif isinstance(value, DESCRIPTORS):
            self._emit("descriptor", value.__name__)
            self.write(value.__objclass__)
        elif wrapper := next((kind for kind in WRAPPERS if isinstance(value, kind)), None):
            self._items(wrapper.__name__, (getattr(value, name) for name in WRAPPERS[wrapper]))
        elif isinstance(value, type):
            self._class(value)
        else:
            self._parts(value)

    def _emit(self, kind: str, *texts: str) -> None:
        contents = [text.encode("utf-8", "surrogatepass") for text in (kind, str(len(texts)), *texts)]
        self._hash.update(b"".join([len(content).to_bytes(8, "little") + content for content in contents]))

    def _items(self, kind: str, values: Iterable[Any]) -> None:
        values = list(values)
        self._emit(kind, str(len(values)))
        for value in values:
            self.write(value)

    def _named(self, kind: str, values: dict[str, Any]) -> None:
        """Write values by their names; in which order they were set says nothing."""
        self._emit(kind, *sorted(values))
        for name in sorted(values):
            with self._inside(name):
                self.write(values[name])

    @contextmanager
    def _inside(self, name: str) -> Iterator[None]:
        self._path.append(name)
        yield
        self._path.pop()

    def _tensor(self, value: Tensor) -> None:
        self._emit("tensor", str(value.dtype), str(tuple(value.shape)), str(value.requires_grad))
        self.write(type(value))
        try:
            content = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        except (RuntimeError, NotImplementedError) as error:
            raise self.refusal(f"it holds a tensor whose content cannot be read: {error}") from error
        self._hash.update(content.data)

    def _array(self, value: np.ndarray) -> None:
        self._emit("array", repr(value.dtype), str(value.shape))
        if value.dtype.hasobject:
            self.write(value.tolist())
        else:
            self._hash.update(np.ascontiguousarray(value).tobytes())

    def _code(self, code: CodeType) -> None:
        """Write what a code object does: not where it stands, nor what it is called."""
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        content, constants = without_line(code)
        self._items("code", (content, code.co_exceptiontable, counts, code.co_names, code.co_varnames))
        self._items("cells", (code.co_freevars, code.co_cellvars))
        self._items("constants", constants)

    def _function(self, function: FunctionType) -> None:
        library = installed_package(function.__globals__.get("__name__"))
        self._emit("function", *([library, function.__module__ or "", function.__qualname__] if library else []))
        with self._inside(function.__qualname__):
            self._code(function.__code__)
            self._items("defaults", function.__defaults__ or ())
            self._named("keyword defaults", function.__kwdefaults__ or {})
            names = names_read(function.__code__)
            for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
                with self._inside(name):
                    self._cell(cell, names.attributes)
            if not library:
                self._named("attributes", function.__dict__)
                self._globals(function, names)

    def _cell(self, cell: CellType, attributes: set[str]) -> None:
        try:
            value = cell.cell_contents
        except ValueError:  # it is filled later
            self._emit("empty cell")
        else:
            self._write_read(value, attributes)

    def _globals(self, function: FunctionType, names: Names) -> None:
        """Write the globals that a function reads, and what it imports."""
        known = function.__globals__
        for name in sorted(names.globals):
            self._emit("global", name)
            with self._inside(name):
                if name in known:
                    self._write_read(known[name], names.attributes)
                elif name in READ_BY_NAME:
                    raise self.refusal(f"{name} reads what no code names")
        for name, level in sorted(names.imports):
            with self._inside(f"import {name}"):
                try:
                    full = importlib.util.resolve_name("." * level + name, known.get("__package__"))
                    self._module(importlib.import_module(full), names.attributes)
                except ImportError as error:
                    raise self.refusal(str(error)) from error

    def _write_read(self, value: Any, attributes: set[str]) -> None:
        """Write what a function reads; of a module, those attributes that the function names."""
        if isinstance(value, ModuleType):
            self._module(value, attributes)
        else:
            self.write(value)

    def _module(self, module: ModuleType, attributes: set[str] | None) -> None:
        """Write a module by what is read of it; one of a package by its name and version."""
        library = installed_package(module.__name__)
        self._emit("module", module.__name__, library or "")
        if library:
            return
        if attributes is None:
            raise self.refusal(f"nobody knows what is read of the module {module.__name__}")
        if (key := (module.__name__, frozenset(attributes))) in self._modules:
            return
        self._modules.add(key)
        for name in sorted(attributes & vars(module).keys()):
            self._emit("attribute", name)
            with self._inside(name):
                self._write_read(vars(module)[name], attributes)

    def _class(self, kind: type) -> None:
        library = installed_package(kind.__module__)
        if library and is_found_by_name(kind):
            self._emit("class", library, kind.__module__, kind.__qualname__)
            return
        self._emit("class")
        with self._inside(kind.__qualname__):
            self._items("bases", (type(kind), *kind.__bases__))
            self._named("members", {name: one for name, one in vars(kind).items() if is_authored(name, one)})

    def _parts(self, value: Any) -> None:
        """Write an object as pickle would take it apart; what pickle cannot take apart is refused."""
        kind = type(value)
        try:
            reduce = copyreg.dispatch_table.get(kind)
            parts = value.__reduce_ex__(4) if reduce is None else reduce(value)
        except Exception as error:
            raise self.refusal(f"the content of a {kind.__module__}.{kind.__qualname__} is hidden") from error
        if isinstance(parts, str):
            library = installed_package(getattr(value, "__module__", None) or kind.__module__)
            inner = getattr(value, "__wrapped__", None)
            if library is None and inner is None:
                raise self.refusal(f"the content of a {kind.__module__}.{kind.__qualname__} is hidden")
            self._emit("global", parts, library or "")
            self.write(inner)
            return
        make, arguments, state, items, pairs = (*parts, None, None, None, None)[:5]
        self._items("object", (make, arguments))
        states = state if isinstance(state, tuple) else (state,)
        self._emit("states", str(len(states)))
        for one in states:
            self._state(kind, one)
        self._items("items", items or ())
        self._items("pairs", pairs or ())

    def _state(self, kind: type, state: Any) -> None:
        if isinstance(state, dict | None) and all(isinstance(name, str) for name in state or {}):
            derived = derived_attributes(kind)
            self._named("state", {name: part for name, part in (state or {}).items() if name not in derived})
        else:
            self.write(state)
