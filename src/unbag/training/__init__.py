"""The training loop, and what it is made of."""

from unbag.objectives import Objective as Objective
from unbag.training.best import LongAfterFall as LongAfterFall
from unbag.training.best import Patience as Patience
from unbag.training.best import Plateau as Plateau
from unbag.training.best import TimeLimit as TimeLimit
from unbag.training.checkpoints import Checkpoint as Checkpoint
from unbag.training.checkpoints import TimeBudgetExceeded as TimeBudgetExceeded
from unbag.training.loading import GroupBatch as GroupBatch
from unbag.training.loading import GroupCollator as GroupCollator
from unbag.training.loading import GroupSampler as GroupSampler
from unbag.training.loop import train as train
from unbag.training.mapped_rows import MappedRows as MappedRows
from unbag.training.observations import Observations as Observations
from unbag.training.optimisation import PerStep as PerStep
from unbag.training.processes import Processes as Processes
from unbag.training.progress import LogProgress as LogProgress
from unbag.training.progress import ProgressBar as ProgressBar
from unbag.training.row_source import RowSource as RowSource
from unbag.training.selection import held_out_likelihood as held_out_likelihood
from unbag.training.selection import labelled_accuracy as labelled_accuracy
from unbag.training.selection import permuted_accuracy as permuted_accuracy
from unbag.training.settings import Settings as Settings
from unbag.training.trained import Trained as Trained
