"""The Jinja environment of all pages."""

from __future__ import annotations

from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


def environment(package: str, *, autoescape: bool = True, **filters: Any) -> Environment:
    """Return an environment for the templates of a package, which may include those that all pages share.

    Examples
    --------
    >>> "aria-sort" in environment("unbag.report").get_template("sort.js").render()
    True
    """
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("unbag.pages")]),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update(filters)
    return made
