"""What all tests share: one thread each, and the same examples in every run."""

from __future__ import annotations

import torch
from hypothesis import settings

# Tests run side by side, and their tensors are small: more threads would only wait for each other.
torch.set_num_threads(1)

# A test that fails for one in a million inputs should fail for whoever caused it, not for whoever runs it next.
settings.register_profile("same every time", deadline=None, derandomize=True, print_blob=False)
settings.load_profile("same every time")
