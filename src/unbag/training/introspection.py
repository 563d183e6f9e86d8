"""Introspection of code and classes: what they read, what they are made of, and which package they come with."""

from __future__ import annotations

import dis
import sys
import sysconfig
from functools import cached_property, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any


class Names:
    """What the instructions of a code object and of those inside it name."""

    def __init__(self) -> None:
        self.globals: set[str] = set()
        self.attributes: set[str] = set()
        self.imports: set[tuple[str, int]] = set()


def names_read(code: CodeType) -> Names:
    """Return what a code object and those inside it name.

    Examples
    --------
    >>> sorted(names_read((lambda x: max(x.size, dis.HAVE_ARGUMENT)).__code__).globals)
    ['dis', 'max']
    """
    names, waiting = Names(), [code]
    while waiting:
        code = waiting.pop()
        waiting += [one for one in code.co_consts if isinstance(one, CodeType)]
        instructions = list(dis.get_instructions(code))
        for place, one in enumerate(instructions):
            if one.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
                names.globals.add(one.argval)
            elif one.opname in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"):
                names.attributes.add(one.argval)
            elif one.opname == "IMPORT_NAME":
                names.imports.add((one.argval, instructions[place - 2].argval))
                names.attributes.update(one.argval.split("."))
    return names


def without_line(code: CodeType) -> tuple[bytes, list[Any]]:
    """Return bytecode and constants without the line that a class body notes of itself from Python 3.13 on."""
    content, constants = bytearray(code.co_code), list(code.co_consts)
    if "__firstlineno__" in code.co_names:
        instructions = list(dis.get_instructions(code))
        stored = next(place for place, one in enumerate(instructions) if one.argval == "__firstlineno__")
        load = instructions[stored - 1]
        content[load.offset + 1] = 0
        constants_loaded = [one.arg for one in instructions if one.opname == "LOAD_CONST"]
        if load.opname == "LOAD_CONST" and constants_loaded.count(load.arg) == 1:
            constants[load.arg or 0] = None
    return bytes(content), constants


def is_authored(name: str, member: Any) -> bool:
    """Whether a member of a class is its author's; what Python notes of a class is not code and has two underscores."""
    if name in ("_abc_impl", "_autograd_function_id"):  # of abc, and a number that torch counts up
        return False
    return not name.startswith("__") or isinstance(member, FunctionType | staticmethod | classmethod | property)


def is_found_by_name(kind: type) -> bool:
    """Whether a class is the one that its module has under its name, and not one that was made on the way."""
    value: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        value = getattr(value, name, None)
    return value is kind


@lru_cache(maxsize=4096)
def derived_attributes(kind: type) -> set[str]:
    """Return the attributes of instances that follow from the others."""
    named = {name for one in kind.__mro__ for name in vars(one).get("_derived_attributes", ())}
    return named | {
        name for one in kind.__mro__ for name, member in vars(one).items() if isinstance(member, cached_property)
    }


@lru_cache(maxsize=4096)
def installed_package(module: str | None) -> str | None:
    """Return the package of a module with its version, where it is installed; None for code that may change."""
    package = (module or "").partition(".")[0]
    file = Path(getattr(sys.modules.get(package), "__file__", None) or "")
    installed = bool({"site-packages", "dist-packages"} & set(file.parts))
    if package in sys.stdlib_module_names:  # unless a file of the user's has that name
        folders = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")]
        below = any(file.resolve().is_relative_to(folder) for folder in folders)
        standard = file == Path() or (below and not installed)
        return f"python {sys.version_info.major}.{sys.version_info.minor}" if standard else None
    if not installed and package != "unbag":
        return None
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        noted = getattr(sys.modules.get(package), "__version__", None)
        return None if noted is None else f"{package} {noted}"
