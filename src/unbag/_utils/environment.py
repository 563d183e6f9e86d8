"""The environment of a computation: versions and date."""

import platform
from datetime import UTC, datetime
from importlib.metadata import version

from unbag._utils.version import __version__


def versions(*more: str) -> dict[str, str]:
    """Return the versions of Python, of packages that numbers depend on, and of further packages by name."""
    import numpy as np  # noqa: PLC0415 (slow to import)
    import torch  # noqa: PLC0415

    # Not from the metadata of packages: a checkout that is not installed has none.
    known = {"unbag": __version__, "torch": torch.__version__, "numpy": np.__version__}
    return {"python": platform.python_version(), **known, **{name: version(name) for name in more}}


def date() -> str:
    """Return the date and time in UTC, in ISO form, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
