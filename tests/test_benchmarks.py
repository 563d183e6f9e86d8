"""The benchmarks run, and what they compare with is right."""

from __future__ import annotations

import pytest
import torch

from unbag import Groups, LabelProportions
from unbag.benchmarks import engine, references


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


def test_every_case_runs_and_says_what_it_found() -> None:
    cases: list[str] = []
    threads = torch.get_num_threads()
    results = engine.run(quick=True, report=cases.append)
    assert torch.get_num_threads() == threads
    assert [result["case"] for result in results] == cases
    for result in results:
        assert result["unbag_ms"] > 0
        assert result["reference_ms"] > 0
        assert isinstance(result["met"], bool)
