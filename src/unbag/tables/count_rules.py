"""Rules for single cells of counts: whole, not negative, no share above one, as the options say they were published."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from unbag.published import WHOLE
from unbag.tables.cells import BOUNDS, NUMBER, UNREADABLE
from unbag.tables.count_columns import FULL, CountColumns
from unbag.tables.noise_options import make_noise

NO_COUNT = (
    "is no count; expected a number, bounds such as <5, 10+ or 1-4, or where it is unknown one of * .. c x n/a "
    "suppressed, or nothing"
)
NEGATIVE = "is negative; counts are not, unless there is noise on them: then say which with --noise"
DASHES = ("-", "\u2013", "\u2014")
DASH = "is 0 in some tables and unknown in others; write 0, or leave the cell blank for unknown"


def broken_rules(counts: CountColumns) -> Iterator[tuple[str, np.ndarray, str]]:
    """Yield for each column and rule which rows break it, (rows,), and what to say of them behind what is written."""
    for place, name in enumerate(counts.columns.classes):
        for rule, wrong in _rules(counts, name, counts.numbers[:, place]).items():
            yield name, wrong, rule
    for name in counts.columns.scales:
        cells = counts.cells[name]
        yield name, ~((cells.kind == NUMBER) & (cells.low > 0)), "is no scale of noise, which must be a positive number"


def _rules(counts: CountColumns, name: str, numbers: np.ndarray) -> dict[str, np.ndarray]:
    cells, how = counts.cells[name], counts.how
    number, noisy = cells.kind == NUMBER, how.noise is not None
    full, few, step = FULL.get(str(counts.unit), np.inf), how.suppressed_below or 0, how.rounded_to
    rules = {
        NO_COUNT: cells.kind == UNREADABLE,
        "has its bounds crossed; write the lower one first": cells.low > cells.high,
        f"is more than {full:g}, which is all of a group": number & (numbers > full + counts.step / 2),
    }
    if noisy:
        rules["says nothing of a count with noise; leave the cell blank"] = cells.kind == BOUNDS
        whole = make_noise(how, 1.0 if how.noise_scale else None).is_integral
    else:
        rules[NEGATIVE] = number & (numbers < 0)
        whole = counts.unit == "counts" and step is None
    if whole:
        rules["is no whole number, as counts are"] = number & (numbers != np.rint(numbers))
    if counts.unit == "counts" and step is not None:
        off = np.abs(numbers / step - np.rint(numbers / step)) > WHOLE
        rules[f"is no multiple of {step:g}, to which counts are said to be rounded"] = off
    if counts.unit == "counts":
        rules[f"is told, although counts below {few} are said to be suppressed"] = (numbers > 0) & (numbers < few)
    return rules
