"""Kernels for NVIDIA GPUs, written in Triton, which must be installed to import them."""

from __future__ import annotations

import logging
from functools import lru_cache
from importlib.util import find_spec

import torch

logger = logging.getLogger("unbag")


@lru_cache(maxsize=1)
def available() -> bool:
    """Whether kernels can be compiled and run here; where Triton is installed and cannot, a warning says why.

    It needs a GPU of its own making and a compiler for C.
    """
    if find_spec("triton") is None:
        return False
    from unbag.gpu.probe import add_one  # noqa: PLC0415  # not everyone has triton

    try:
        device = "cuda" if torch.cuda.is_available() else "cpu"  # which its interpreter runs on
        return add_one(torch.zeros(3, device=device)).tolist() == [1.0, 1.0, 1.0]
    except Exception as error:  # whatever it is, there is another way
        logger.warning("training goes without kernels of its own, for Triton fails here: %s", error)
        return False
