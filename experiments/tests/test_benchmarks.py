"""The benchmarks run, and what they compare with is right."""

from __future__ import annotations

import pytest
import torch

from unbag import Groups, LabelProportions
from unbag_experiments.benchmarks import engine, references


def problem(n: int, size: int, k: int) -> tuple[torch.Tensor, Groups, torch.Tensor]:
    torch.manual_seed(0)
    groups = Groups.from_sizes([size] * n)
    logits = torch.randn(n * size, k, dtype=torch.float64)
    return logits, groups, LabelProportions().observe(torch.randint(k, (n * size,)), groups, k)


@pytest.mark.parametrize("enumerate_them", [references.enumerate_counts, references.enumerate_counts_in_batches])
def test_enumerations_agree_with_the_engine(enumerate_them) -> None:
    logits, groups, z = problem(6, 4, 3)
    found = LabelProportions().evidence(logits, groups, z)
    log_likelihood, posterior = enumerate_them(logits.view(6, 4, 3), z)
    torch.testing.assert_close(log_likelihood, found.log_likelihood)
    torch.testing.assert_close(posterior.view(24, 3), found.posterior)


def test_recursion_agrees_with_the_engine() -> None:
    logits, groups, z = problem(4, 20, 2)
    found = LabelProportions().evidence(logits, groups, z)
    odds = (logits[:, 1] - logits[:, 0]).view(4, 20)
    log_likelihood, posterior = references.recursion_with_autograd(odds, z[:, 1])
    torch.testing.assert_close(log_likelihood, found.log_likelihood)
    torch.testing.assert_close(posterior.view(-1), found.posterior[:, 1])


def once(ours, reference, seconds):
    """Time nothing, but run both, once."""
    ours(), reference()
    return 2.0, 3.0


def test_every_case_runs_and_says_what_it_found(monkeypatch) -> None:
    monkeypatch.setattr(engine, "alternate", once)
    # Of the references that take seconds, a part of their work.
    monkeypatch.setattr(engine, "enumerate_counts", lambda logits, z: references.enumerate_counts(logits[:1], z[:1]))
    monkeypatch.setattr(
        engine,
        "recursion_with_autograd",
        lambda odds, counts: references.recursion_with_autograd(odds[:, -9:], counts - counts + 4),
    )
    cases: list[str] = []
    threads = torch.get_num_threads()
    results = engine.run(quick=True, report=cases.append)
    assert torch.get_num_threads() == threads
    assert [result["case"] for result in results] == cases
    for result in results:
        assert (result["unbag_ms"], result["reference_ms"]) == (2.0, 3.0)
        assert isinstance(result["met"], bool)
