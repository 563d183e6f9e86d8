"""Where pytest looks for examples in docstrings."""

from __future__ import annotations

from importlib.util import find_spec

# Without triton the kernels cannot be imported.
collect_ignore = [] if find_spec("triton") else ["src/unbag/experiments/kernels"]
