"""The evidence for unbag: the paper's experiments, the methods it is compared with, data sets and benchmarks."""

import logging

logger = logging.getLogger("unbag")
