"""Noise of counts in a file, from options: by its scale, by a column of scales, or by epsilon and sensitivity."""

from __future__ import annotations

from math import isfinite
from typing import Any

from unbag._utils.problems import fail, failing
from unbag.noise import KINDS, Gaussian, Noise, read_noise
from unbag.tables.options import UNITS, Source


def check_published(source: Source) -> None:
    """Refuse options on published counts that do not go together, or are no such numbers.

    Examples
    --------
    >>> from pathlib import Path
    >>> check_published(Source(Path("wards.csv"), noise="laplace", epsilon=0.5))
    Traceback (most recent call last):
    unbag._utils.problems.TableError: wards.csv: --epsilon tells the scale of noise together with --sensitivity, ...
    """
    file = str(source.file)
    if source.unit is not None and source.unit not in UNITS:
        raise fail(f"--unit must be one of {', '.join(UNITS)}, got {source.unit!r}", file)
    if source.decimal is not None and source.decimal not in (".", ","):
        raise fail(f"--decimal must be . or , and got {source.decimal!r}", file)
    for name in ("epsilon", "sensitivity", "rounded_to", "suppressed_below"):
        value = getattr(source, name)
        if value is not None and not (isfinite(value) and value > 0):
            raise fail(f"--{name.replace('_', '-')} must be a positive number, got {value:g}", file)
    options = {"--epsilon": source.epsilon, "--sensitivity": source.sensitivity, "--noise-scale": source.noise_scale}
    if source.noise is None:
        if given := [name for name, value in options.items() if value]:
            raise fail(f"{given[0]} is about noise; say of which kind with --noise {' or '.join(KINDS)}", file)
        return
    _refuse_changes_after_noise(source)
    name, _, scale = source.noise.partition(":")
    ways = [bool(scale), bool(source.noise_scale), source.epsilon is not None]
    if source.epsilon is not None and source.sensitivity is None:
        raise fail(
            "--epsilon tells the scale of noise together with --sensitivity, by how much one person changes the "
            "counts: 1 where a person is counted in one cell alone",
            file,
        )
    if source.sensitivity is not None and source.epsilon is None:
        raise fail("--sensitivity tells the scale of noise together with --epsilon", file)
    if sum(ways) != 1 or name not in KINDS:
        with failing(file):
            read_noise(source.noise if scale else f"{name}:1")  # a name that is none has a sentence of its own
        raise fail(
            f"the scale of {name} noise must be told in one way: --noise {name}:2.5, --noise-scale COLUMN, or "
            "--epsilon and --sensitivity",
            file,
        )
    if source.epsilon is not None and issubclass(KINDS[name], Gaussian):
        raise fail(
            f"epsilon alone does not tell the scale of {name} noise; give its standard deviation, as in --noise "
            f"{name}:17",
            file,
        )
    if not source.noise_scale:
        make_noise(source)


def _refuse_changes_after_noise(source: Source) -> None:
    """Refuse noise that was rounded or suppressed afterwards."""
    changed_again = {
        "--rounded-to": (source.rounded_to, "where the noise is much larger than the rounding, leave it out"),
        "--suppressed-below": (source.suppressed_below, "leave cells without a number blank, which is unknown"),
    }
    for other, (value, advice) in changed_again.items():
        if value is not None:
            raise fail(
                f"--noise and {other} do not go together: counts that were changed once more after the noise have no "
                f"likelihood here; {advice}",
                str(source.file),
            )


def make_noise(source: Source, scales: Any = None) -> Noise:
    """Return the noise that the options of a file tell; its scales, where columns hold them.

    Examples
    --------
    >>> from pathlib import Path
    >>> make_noise(Source(Path("wards.csv"), noise="laplace", epsilon=0.5, sensitivity=1))
    Laplace(scale=2)
    """
    assert source.noise is not None
    with failing(str(source.file)):
        if source.epsilon is not None:
            return KINDS[source.noise].from_epsilon(source.epsilon, source.sensitivity)
        return read_noise(source.noise) if scales is None else KINDS[source.noise](scales)
