"""Report on a fitted classifier: a summary as JSON, and one HTML page of it."""

from unbag.report.page import check_format as check_format
from unbag.report.page import render as render
from unbag.report.summary import FORMAT as FORMAT
from unbag.report.summary import summarise as summarise
