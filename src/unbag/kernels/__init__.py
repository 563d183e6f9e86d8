"""The numerics that aggregates share: pure functions of tensors, without gradients and without checks."""
