"""Maximum likelihood."""

from __future__ import annotations

from dataclasses import replace

from unbag.training import Settings
from unbag_experiments.baselines.base import Method
from unbag_experiments.baselines.uum import UUM


class LogLikelihood(Method):
    """The other universal method: minimise ``-log p(z | x_1..x_m)``, which is the warm-up of Algorithm 1 to the end."""

    name = "log_likelihood"
    title = "Log-likelihood"
    source = "Zhang, Charoenphakdee, Wu and Sugiyama, Learning from Aggregate Observations, NeurIPS 2020"
    in_paper = True
    problems = UUM.problems

    def settings(self, given: Settings) -> Settings:
        """Return the settings of the experiment with the likelihood in every epoch."""
        return replace(given, warm_up=given.epochs, remember_from=None)


METHOD = LogLikelihood()
