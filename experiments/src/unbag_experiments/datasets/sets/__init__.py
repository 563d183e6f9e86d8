"""One module for each data set, or for a few that share one format: each declares them in ``DATASETS``."""
