"""Text for a terminal or a page: control characters and markup in names of files, columns and classes stay text."""

import re
import unicodedata
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text

UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of control characters, such as ESC; of formats, which turn or hide text; of surrogates and line breaks."""
JOINERS = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"
"""Formats that some scripts and emoji need."""
NOT_ASCII_TEXT = re.compile(r"[^ -~]")


def visible(text: object, *, keep: str = "") -> str:
    r"""Return text with control characters, but those to keep, written as escapes, so that no terminal obeys them."""

    def show(match: re.Match[str]) -> str:
        character = match[0]
        safe = unicodedata.category(character) not in UNSAFE or character in JOINERS or character in keep
        return character if safe else character.encode("unicode_escape").decode()

    return NOT_ASCII_TEXT.sub(show, str(text))


def plain(text: object) -> str:
    """Return text for a line of rich markup, with control characters as escapes and brackets as they are."""
    return escape(visible(text))


class Terminal(Console):
    """A console that prints no control characters but line breaks."""

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, **options)  # names such as :bomb: are not pictures

    def render_str(self, text: str, **options: Any) -> Text:
        """Return text as it is printed; rich passes all strings through this method, also those in tables."""
        return super().render_str(visible(text, keep="\n"), **options)
