"""A fitted classifier on one page: what it learned from what, how good it is, and what to be careful about."""

from unbag.report.page import check_format as check_format
from unbag.report.page import render as render
from unbag.report.summary import FORMAT as FORMAT
from unbag.report.summary import summarise as summarise
