"""Public text is plain technical English: pages, help, docstrings and messages avoid a list of phrases."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = [*sorted((ROOT / "src").rglob("*.py")), *sorted((ROOT / "examples").glob("*.py"))]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "experiments/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

# A word or phrase, as a regular expression, and what to write in its place.
AVOIDED = {
    r"left-out|left out groups": "held-out",
    r"anew": "again, or nothing",
    r"nobody|somebody|whoever|no one": "the person or program that is meant",
    r"(is|are|was|were|be|been) (told|said)(?! apart)": "known, specified, documented, has",
    r"unless told otherwise|says otherwise": "by default",
    r"what cannot be told|tells? of": "not identifiable, show",
    r"explain(s|ed)? no better": "held-out log-likelihood stops improving",
    r"at most so": "at most as",
    r"mend(s|ed)?": "correct, fix",
    r"learn(s|ed)? .{0,20}by heart": "memorise",
    r"surer|too sure|how sure": "more confident, too confident",
    r"judge(s|d)? by": "evaluate on",
    r"goes first": "takes precedence",
    r"set apart": "separated",
    r"called so": "predicted",
    r"(who|which|what) come(s)? with nothing": "without",
    r"likest|alike in all": "most similar, duplicate",
    r"none is spared|of so few": "no validation split",
    r"by themselves alone": "alone",
    r"it says so|say(s)? so itself": "reports, warns",
    r"as (it|they) should be": "correctly",
    r"made-up": "simulated",
    r"beside (each other|other packages)": "next to, compared with",
    r"run (it )?anew|from then on": "run again, afterwards",
}


def strings_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the docstrings and messages of a module, with their lines."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "X" for part in node.values]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def find_avoided(text: str) -> list[str]:
    """Return the words and phrases of a text that are avoided, with what to write in their place."""
    words = " ".join(text.split())
    return [
        f"{match[0]!r}: write {better}"
        for pattern, better in AVOIDED.items()
        for match in re.finditer(rf"\b(?:{pattern})\b", words, flags=re.IGNORECASE)
    ]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_pages(path):
    assert not find_avoided(path.read_text(encoding="utf-8"))


def test_docstrings_messages_and_help():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {hit}"
        for path in SOURCES
        for line, text in strings_of(path)
        for hit in find_avoided(text)
    ]
    assert not found, "\n".join(found)


def test_an_avoided_phrase_is_found():
    assert find_avoided("The left-out groups\nare explained no better.") == [
        "'left-out': write held-out",
        "'explained no better': write held-out log-likelihood stops improving",
    ]
    assert not find_avoided("The command line reads two files.")
