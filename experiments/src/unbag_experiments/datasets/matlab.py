"""Reading MATLAB files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from unbag_experiments.datasets.readers import broken


def read_matlab(path: Path, *names: str) -> list[np.ndarray]:
    """Read arrays by name from a MATLAB file; sparse ones are filled with zeros.

    Examples
    --------
    >>> import tempfile
    >>> from scipy.io import savemat
    >>> path = Path(tempfile.mkdtemp()) / "digits.mat"
    >>> savemat(path, {"y": np.array([[1], [10]])})
    >>> read_matlab(path, "y")[0].tolist()
    [[1], [10]]
    """
    from scipy.io import loadmat  # noqa: PLC0415  # takes longer than the rest of this package
    from scipy.sparse import issparse  # noqa: PLC0415

    try:
        variables = loadmat(path, variable_names=names)
    except Exception as error:  # scipy raises whatever the bytes lead it to
        broken(path, f"this is no whole MATLAB file ({error})")
    missing = [name for name in names if name not in variables]
    if missing:
        broken(path, f"the array {missing[0]} is missing")
    return [variables[name].toarray() if issparse(variables[name]) else variables[name] for name in names]
