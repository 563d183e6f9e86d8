"""Saved files: fitted classifiers and the folders of runs, in one format that is validated when it is read."""
