"""The numerics that aggregates share: pure functions of tensors, without checks."""
