"""From learners to one prediction: jobs over folds, the best step of each path on held-out groups, a mixture."""

from unbag.ensemble.accuracy import Estimate as Estimate
from unbag.ensemble.accuracy import HeldOut as HeldOut
from unbag.ensemble.accuracy import estimate_accuracy as estimate_accuracy
from unbag.ensemble.jobs import Align as Align
from unbag.ensemble.jobs import Candidate as Candidate
from unbag.ensemble.jobs import Schedule as Schedule
from unbag.ensemble.mixture import Mixture as Mixture
from unbag.ensemble.mixture import fit_ensemble as fit_ensemble
from unbag.ensemble.mixture import fit_mixture as fit_mixture
from unbag.ensemble.performance import ClassPerformance as ClassPerformance
from unbag.ensemble.performance import Performance as Performance
from unbag.ensemble.performance import estimate_performance as estimate_performance
from unbag.ensemble.progress import Progress as Progress
from unbag.ensemble.scheduler import fit_candidates as fit_candidates
