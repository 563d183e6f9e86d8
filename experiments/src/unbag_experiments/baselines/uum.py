"""The universal unbiased method."""

from __future__ import annotations

from unbag_experiments.baselines.base import Method


class UUM(Method):
    """Algorithm 1 of the paper, by the settings of the experiment."""

    name = "uum"
    title = "UUM"
    source = (
        "Wei, Feng, Han, Liu, Niu, Zhu and Shen, A Universal Unbiased Method for Classification from Aggregate "
        "Observations, ICML 2023"
    )
    in_paper = True
    problems = (
        "pairwise_similarity",
        "triplet_comparison",
        "label_proportions",
        "multiple_instance",
        "ordinal_rank",
        "ordinal_triplet",
    )


METHOD = UUM()
