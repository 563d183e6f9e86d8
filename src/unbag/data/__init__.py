"""Data structures that every other package builds on: groups, targets, label distributions, encoded tables."""
