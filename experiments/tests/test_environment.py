"""The environment of a computation: versions, hardware and commit."""

import torch

from unbag._utils.environment import versions
from unbag_experiments import environment
from unbag_experiments.provenance import describe


def test_where_results_come_from(monkeypatch):
    facts = describe(torch.device("cpu"))
    assert set(facts) == {"hardware", "versions", "commit"}
    assert facts["hardware"]
    assert facts["versions"]["torch"] == torch.__version__
    assert set(versions()) < set(facts["versions"])
    monkeypatch.setenv("UNBAG_COMMIT", "abc")
    assert environment.commit() == "abc"


def test_the_commit_is_that_of_the_checkout(monkeypatch, tmp_path):
    monkeypatch.delenv("UNBAG_COMMIT", raising=False)

    def git(answers):
        monkeypatch.setattr(environment, "_git", lambda folder, command, *rest: answers.get(command))

    git({})
    assert environment.commit() == "unknown"
    git({"ls-files": "x"})
    assert environment.commit() == "unknown"
    git({"ls-files": "x", "rev-parse": "abc", "status": ""})
    assert environment.commit() == "abc"
    git({"ls-files": "x", "rev-parse": "abc", "status": " M plan.py"})
    assert environment.commit() == "abc-dirty"
    monkeypatch.undo()
    assert environment._git(tmp_path, "no-such-command") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment._git(tmp_path, "status") is None
