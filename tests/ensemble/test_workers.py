"""Jobs in processes, jobs of processes that end, and the order of jobs with many workers."""

import os
import time
from functools import partial

import numpy as np
import pytest
import torch
from joblib import Parallel, delayed
from known_paths import Acting, Path, kill_unless_child, make_problem, raise_memory_error
from makespan import Recorder, simulate

from unbag.ensemble import Schedule, fit_candidates
from unbag.ensemble.workers import Workers, _read, _write
from unbag.estimators.config import resolve_n_jobs
from unbag.learners.features import Columns
from unbag.learners.linear import Linear


def wait_for_processes(*arguments):
    """Make workers whose processes are ready, as they are late in a fit."""
    workers = Workers(*arguments)
    while not workers._processes.ready:
        workers.has_room()
        time.sleep(0.05)
    return workers


def fit_in_processes(learner, n_jobs=2):
    schedule = Schedule(((learner,),), n_jobs=n_jobs, seconds_before_processes=0.0)
    return fit_candidates(make_problem(60)[0], schedule, make_workers=wait_for_processes)


def test_jobs_run_in_processes_with_the_result_of_threads():
    problem, _ = make_problem(60)
    learner = Linear("linear", Columns.fit)
    (expected,) = fit_candidates(problem, Schedule(((learner,),)))
    (found,) = fit_in_processes(learner)
    assert torch.equal(found.out_of_fold, expected.out_of_fold)
    assert torch.equal(found.outputs(problem.X), expected.outputs(problem.X))
    (located,) = fit_in_processes(Acting("located"))
    processes = {model.process for model in located.models}
    assert os.getpid() in processes
    assert len(processes) == 2


def test_a_job_whose_process_is_killed_is_run_once_more(tmp_path):
    action = partial(kill_unless_child, os.getpid(), tmp_path / "killed")
    (candidate,) = fit_in_processes(Acting("killed", action=action))
    assert len(candidate.models) == 4
    assert (tmp_path / "killed").exists()


def test_a_job_whose_process_is_killed_twice_is_an_error():
    with pytest.raises(RuntimeError, match=r"the process that fitted 'large' ended twice .* choose a smaller n_jobs"):
        fit_in_processes(Acting("large", action=partial(kill_unless_child, os.getpid())))


def test_a_job_that_needs_too_much_memory_is_an_error_that_says_what_to_do():
    with pytest.raises(
        MemoryError, match="there was too little memory to fit 'large'; choose a smaller n_jobs, which is 2"
    ):
        fit_candidates(make_problem()[0], Schedule(((Acting("large", action=raise_memory_error),),), n_jobs=2))


def test_processes_map_large_tensors_into_memory(tmp_path):
    rows = torch.arange(40_000, dtype=torch.float64)
    _write({"rows": rows, "same": rows, "few": rows[:3]}, str(tmp_path / "data"))
    assert (tmp_path / "data").stat().st_size < 2000
    assert len(list(tmp_path.glob("*.npy"))) == 1
    found = _read(str(tmp_path / "data"))
    assert torch.equal(found["rows"], rows)
    assert torch.equal(found["few"], rows[:3])
    found["rows"][0] = 5  # copied, not written to the file
    assert np.load(next(iter(tmp_path.glob("*.npy"))))[0] == 0


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_a_fit_in_a_job_of_joblib_runs_a_job_at_a_time(backend):
    assert Parallel(2, backend=backend)(delayed(resolve_n_jobs)(None) for _ in range(2)) == [1, 1]
    assert resolve_n_jobs(3) == 3


def record(problem, schedule):
    """Fit with a single worker, and return the candidates and what simulations need."""
    made = []

    def make(*arguments):
        made.append(Recorder(*arguments))
        return made[0]

    return fit_candidates(problem, schedule, make_workers=make), made[0].results


def test_any_number_of_workers_has_the_same_candidates_and_eight_take_a_quarter_of_the_time():
    problem, _ = make_problem(60)
    stages = (
        (Path("a", (1.0,)), Path("bad", (-1.0,))),
        (Path("b", (0.5, 2.0)), Path("c", (2.0,)), Path("worse", (-2.0,))),
        (Path("d", (3.0,)),),
    )
    schedule = Schedule(stages)
    candidates, results = record(problem, schedule)
    assert [c.name for c in candidates] == ["a", "b", "c", "d"]
    seconds = {"a": 1, "bad": 1, "b": 8, "c": 4, "worse": 4, "d": 10}
    names = [learner.name for stage in stages for learner in stage]
    results = {key: (result, seconds[names[key.learner]] * (key.fold >= 0)) for key, (result, _) in results.items()}
    spans = {}
    for n_workers in (1, 2, 8):
        replay, found = simulate(problem, schedule, results, n_workers)
        spans[n_workers] = replay.now
        assert all(torch.equal(f.out_of_fold, c.out_of_fold) for f, c in zip(found, candidates, strict=True))
    assert spans[1] == sum(seconds[name] * (1 if name in ("bad", "worse") else 4) for name in names)
    assert spans[2] <= 0.55 * spans[1]
    assert spans[8] <= 0.25 * spans[1]
