"""Toolkit for pages of one file, used by the report and by the results: templates, plots, and tables that sort."""

from __future__ import annotations

from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from unbag._utils.pages.svg import describe as describe
from unbag._utils.pages.svg import recolour as recolour
from unbag._utils.pages.svg import to_svg as to_svg


def environment(package: str, *, autoescape: bool = True, **filters: Any) -> Environment:
    """Return an environment for the templates of a package, which may include those that all pages share.

    Examples
    --------
    >>> "aria-sort" in environment("unbag.report").get_template("sort.js").render()
    True
    """
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("unbag._utils.pages")]),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update(filters)
    return made
