"""Text on its way to a terminal: control characters and markup in names of files, columns and classes stay text."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text

# Control characters, among them ESC and those of the C1 set; formats, which turn or hide text; half characters; and
# what breaks a line.
UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")
# Joiners are formats, too, but letters of some scripts and emoji need them.
JOINERS = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"
NOT_ASCII_TEXT = re.compile(r"[^ -~]")


def visible(text: object, *, keep: str = "") -> str:
    r"""Return text with control characters written as escapes, as ``repr`` does, so that no terminal obeys them.

    Parameters
    ----------
    text
        Anything; what is no text is turned into it.
    keep
        Characters that stay as they are.

    Examples
    --------
    >>> print(visible("a\x1b[2Jb\n"), visible("Zürich"))
    a\x1b[2Jb\n Zürich
    """

    def show(match: re.Match[str]) -> str:
        character = match[0]
        safe = unicodedata.category(character) not in UNSAFE or character in JOINERS or character in keep
        return character if safe else character.encode("unicode_escape").decode()

    return NOT_ASCII_TEXT.sub(show, str(text))


def plain(text: object) -> str:
    r"""Return text from outside for a line of rich markup: control characters as escapes, brackets as they are.

    Examples
    --------
    >>> print(plain("[red]\a"))
    \[red]\x07
    """
    return escape(visible(text))


class Terminal(Console):
    """A console that passes on no control characters but line breaks, whatever is in the text it prints."""

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, **options)  # or else names such as :bomb: would become pictures

    def render_str(self, text: str, **options: Any) -> Text:
        """Return text as it is printed; rich brings all strings here, also those in tables."""
        return super().render_str(visible(text, keep="\n"), **options)
