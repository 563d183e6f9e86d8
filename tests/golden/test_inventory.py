"""Compare the public interface with that of version 0.2.0, which inventory.json records.

An entry of the inventory may disappear, or its default may change, only if CHANGELOG.md names it: in a bullet point
under "Removed", "Changed" or "Deprecated" of a version after 0.2.0, with all words of the entry in backquotes, such as
"`AggregateClassifier`: `n_restarts` is part of `NetworkTraining`". A pattern, `run.json/plan/*`, names many entries.
The file is written by ``PYTHONPATH=src:tests/helpers python tests/golden/test_inventory.py``.
"""

import ast
import fnmatch
import hashlib
import importlib
import inspect
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from golden_files import write_json
from table_files import blobs, call

import unbag
from unbag.cli import app

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("inventory.json")
VERSION = "0.2.0"
Entries = dict[str, str]

# Commands that a plug-in adds: without it, their entries are not compared.
PLUG_IN_COMMANDS = ("reproduce", "bench")

# Files of observations, with the options of their columns and of training.
RUNS: dict[str, tuple[list[Any], list[Any]]] = {
    "counts.csv": ([], ["--model", "linear"]),
    "rounded.csv": ([], ["--model", "linear"]),
    "bags.csv": ([], ["--n-folds", 2]),
    "pairs.csv": (["--n-classes", 2, "--names", "label"], ["--model", "linear"]),
    "ranks.csv": (["--n-classes", 2, "--error-rate", "fit"], ["--model", "linear"]),
}
DIRECTIVE = re.compile(r"\.\. auto(?:class|function|exception|module):: ([\w.]+)\n(?: +(:members:) ?(.*))?")
CODE_BLOCK = re.compile(r"^```(?:python|bash|console|toml)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


def resolve(path: str) -> Any:
    """Return the object of a dotted path, or None if there is none."""
    found = importlib.import_module(path.partition(".")[0])
    for depth, name in enumerate(path.split(".")[1:], start=2):
        try:
            found = getattr(found, name)
        except AttributeError:
            try:
                found = importlib.import_module(".".join(path.split(".")[:depth]))
            except ImportError:
                return None
    return found


def is_ours(value: Any) -> bool:
    """Return whether a class is defined in this package."""
    return str(getattr(value, "__module__", "")).partition(".")[0] == "unbag"


def find_parameters(path: str, function: Any) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a function or class, with their defaults."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    for parameter in parameters:
        if parameter.name != "self":
            default = "required" if parameter.default is parameter.empty else repr(parameter.default)
            keyword_only = "keyword only, " if parameter.kind is parameter.KEYWORD_ONLY else ""
            yield f"{path}({parameter.name})", keyword_only + re.sub(r" at 0x\w+", "", default)


def list_members(kind: type, documented: str) -> list[str]:
    """Return the members of a class that the API reference shows, by what its directive says; "" stands for all."""
    every = [name for base in kind.__mro__ if is_ours(base) for name in vars(base) if not name.startswith("_")]
    return every if not documented else documented.split(", ")


def list_names() -> Entries:
    """List the names of the package and of the API reference, with members, parameters and defaults."""
    paths = [f"unbag.{name}" for name in unbag.__all__]
    for path, members, listed in DIRECTIVE.findall((ROOT / "docs" / "api.md").read_text(encoding="utf-8")):
        found = resolve(path)
        if found is None:
            continue
        paths += [path, path.rpartition(".")[0]]
        if inspect.isclass(found) and members:
            paths += [f"{path}.{name}" for name in list_members(found, listed)]
        elif inspect.ismodule(found):
            defined = [name for name, value in vars(found).items() if getattr(value, "__module__", "") == path]
            paths += [f"{path}.{name}" for name in listed.split(", ") if name] or [
                f"{path}.{name}" for name in defined if not name.startswith("_")
            ]
    entries: Entries = {}
    for path in set(paths) - {"unbag"}:
        entries[path] = ""
        if callable(value := resolve(path)):
            entries.update(find_parameters(path, value))
    return entries


def list_options(command: Any, path: str = "unbag") -> Entries:
    """List the commands of the command line, with their options, arguments and defaults."""
    entries = {path: ""}
    for parameter in command.params:
        default = "required" if parameter.required else repr(parameter.default)
        names = [*parameter.opts, *parameter.secondary_opts] if parameter.param_type_name == "option" else []
        entries.update({f"{path} {name}": default for name in names or [str(parameter.name).upper()]})
    for name, inner in getattr(command, "commands", {}).items():
        entries.update(list_options(inner, f"{path} {name}"))
    return entries


def list_findings() -> Entries:
    """List the kinds of findings that the documentation of Finding lists or the code makes, if the code has them."""
    documented = set(re.findall(r'``"(\w+)"``', str(unbag.Finding.__doc__)))
    made, constants = set(), set()
    for source in Path(unbag.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant):
                constants.add(node.value)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
                arguments = [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "kind")]
                made |= {value.value for value in arguments if isinstance(value, ast.Constant)}
    return {str(kind): "" for kind in (documented | made) & constants}


def list_code_blocks() -> Entries:
    """List the code blocks of the documentation, without comments and spaces, as page#hash."""
    blocks: list[tuple[str, str]] = []
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        texts = CODE_BLOCK.findall(page.read_text(encoding="utf-8"))
        blocks += [(page.relative_to(ROOT).as_posix(), text) for text in texts]
    for page in (ROOT / "docs").rglob("*.ipynb"):
        cells = [cell for cell in json.loads(page.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
        blocks += [(page.relative_to(ROOT).as_posix(), "".join(cell["source"])) for cell in cells]
    entries: Entries = {}
    for page_name, text in blocks:
        code = "".join(re.sub(r"(^|\s)#.*", "", text, flags=re.MULTILINE).split())
        entries[page_name] = ""
        entries[f"{page_name}#{hashlib.sha256(code.encode()).hexdigest()[:12]}"] = ""
    return entries


def list_keys(value: Any, path: str) -> Entries:
    """List the keys of a JSON value; elements of lists are merged."""
    entries = {path: ""}
    for key, inner in value.items() if isinstance(value, dict) else []:
        entries.update(list_keys(inner, f"{path}/{re.sub('[0-9a-f]{16}', 'HASH', key)}"))
    for inner in value if isinstance(value, list) else []:
        if isinstance(inner, (dict, list)):
            entries.update(list_keys(inner, f"{path}[]"))
    return entries


def list_outputs(folder: Path) -> tuple[Entries, Entries]:
    """List the keys of JSON that commands print and write, and the fitted attributes of the classifiers."""
    before = Path.cwd()
    os.chdir(folder)
    keys: Entries = {}
    attributes: Entries = {}
    try:
        blobs(folder)
        commands: list[tuple[Any, ...]] = [
            ("check", "people.csv", "counts.csv", "--group-in-groups", "missing", "--json"),
            ("protect", "counts.csv", "--round-to", 2, "--out", "rounded.csv", "--group", "group", "--json"),
        ]
        for file, (columns, training) in RUNS.items():
            run, read = f"run of {file}", ["people.csv", file, *columns, "--json"]
            commands += [
                ("check", *read),
                ("fit", *read, "--out", run, "--epochs", 2, *training),
                ("predict", run, "people.csv", "--out", f"predicted {file}", "--json"),
                ("disaggregate", run, "people.csv", file, "--out", f"labels {file}", "--json"),
            ]
        for command in commands:
            done = call(*command)
            assert done.exit_code in (0, 2), done.output
            keys.update(list_keys(json.loads(done.stdout), f"unbag {command[0]} --json"))
        for written in sorted(folder.rglob("*.json")):
            keys.update(list_keys(json.loads(written.read_text(encoding="utf-8")), written.name))
        for model in sorted(folder.rglob("model")):
            classifier = unbag.load(model)
            names = [name for name in dir(classifier) if name.endswith("_") and not name.startswith("_")]
            attributes.update({f"AggregateClassifier.{name}": "" for name in names if hasattr(classifier, name)})
    finally:
        os.chdir(before)
    return keys, attributes


def take_inventory(folder: Path) -> dict[str, Entries]:
    """Return all entries of the public interface, in categories; the folder is for files of commands."""
    keys, attributes = list_outputs(folder)
    return {
        "names": list_names(),
        "attributes": attributes,
        "command line": list_options(typer.main.get_command(app)),
        "findings": list_findings(),
        "JSON keys": keys,
        "code blocks": list_code_blocks(),
    }


def read_notes(changelog: str) -> list[str]:
    """Return the bullet points on what was removed or changed after the version of the inventory."""
    recent = changelog.partition(f"## [{VERSION}]")[0]
    sections = re.findall(r"^### (?:Removed|Changed|Deprecated)\n(.*?)(?=^##|\Z)", recent, re.MULTILINE | re.DOTALL)
    return [bullet for section in sections for bullet in re.split(r"^- ", section, flags=re.MULTILINE)[1:]]


def split_words(text: str) -> set[str]:
    return set(re.findall(r"--?[A-Za-z][\w-]*|\w+", text.partition("#")[0])) - {"unbag"}


def find_unexplained(old: Entries, new: Entries, notes: list[str]) -> list[str]:
    """Return entries that are missing or changed, and that no bullet point of the changelog names."""
    spans = [re.findall(r"`([^`]+)`", note) for note in notes]
    named = [set().union(*map(split_words, codes)) for codes in spans]
    patterns = [code for codes in spans for code in codes if "*" in code]
    moved = {entry.partition("#")[2] for entry in new} - {""}
    unexplained = []
    for entry, detail in old.items():
        if new.get(entry) == detail or entry.partition("#")[2] in moved:
            continue
        # If what contains the entry has disappeared too, naming that is enough.
        parents = [entry[: end.start()] for end in re.finditer(r"[.( /#\[]", entry)]
        topmost = next((parent for parent in parents if parent in old and parent not in new), entry)
        explained = any(split_words(topmost) <= words for words in named)
        if not explained and not any(fnmatch.fnmatchcase(entry, pattern) for pattern in patterns):
            unexplained.append(f"{entry}: was {detail!r}, is {new.get(entry, 'missing')!r}")
    return unexplained


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Entries]:
    return take_inventory(tmp_path_factory.mktemp("inventory"))


RECORDED: dict[str, Entries] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


@pytest.mark.parametrize("category", RECORDED)
def test_changes_of_the_interface_are_in_the_changelog(category: str, inventory: dict[str, Entries]) -> None:
    commands = inventory["command line"]
    absent = tuple(f"unbag {name}" for name in PLUG_IN_COMMANDS if f"unbag {name}" not in commands)
    old = {entry: detail for entry, detail in RECORDED[category].items() if not (absent and entry.startswith(absent))}
    notes = read_notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert not find_unexplained(old, inventory[category], notes)


def test_unexplained_changes_are_found() -> None:
    old = {"unbag.A": "", "unbag.A(size)": "1", "unbag.A(rate)": "2", "unbag.B": "", "unbag.B(x)": "", "f.json/a/b": ""}
    new = {"unbag.A": "", "unbag.A(rate)": "3"}
    changelog = "## [0.3.0]\n### Removed\n- `A` has no {}.\n- The class `B`.\n- `f.json/a/*`\n## [0.2.0]\n### Removed\n"
    assert find_unexplained(old, new, []) == [
        "unbag.A(size): was '1', is 'missing'",
        "unbag.A(rate): was '2', is '3'",
        "unbag.B: was '', is 'missing'",
        "unbag.B(x): was '', is 'missing'",
        "f.json/a/b: was '', is 'missing'",
    ]
    assert find_unexplained(old, new, read_notes(changelog.format("`size`"))) == ["unbag.A(rate): was '2', is '3'"]
    assert not find_unexplained(old, new, read_notes(changelog.format("`size`, and `rate` is 3")))
    assert len(find_unexplained(old, new, read_notes(changelog.replace("0.3.0", "0.2.0")))) == len(old) - 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        found = take_inventory(Path(temporary))
    write_json(FILE, {category: dict(sorted(found[category].items())) for category in found})
    print({category: len(entries) for category, entries in found.items()})
