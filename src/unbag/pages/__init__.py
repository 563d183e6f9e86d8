"""Toolkit for pages of one file, used by the report and by the results: templates, plots, and tables that sort."""

from unbag.pages.svg import describe as describe
from unbag.pages.svg import recolour as recolour
from unbag.pages.svg import to_svg as to_svg
from unbag.pages.templating import environment as environment
