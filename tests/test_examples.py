"""The examples run and reach their accuracy."""

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run an example as a script, and return what it prints."""
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out


def numbers(pattern: str, printed: str) -> list[float]:
    """Return the numbers in the groups of a pattern."""
    found = re.search(pattern, printed)
    assert found, f"nothing like {pattern!r} in:\n{printed}"
    return [float(part) for part in found.groups()]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_examples_are_short_and_tested(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 100
    assert f'"{path.stem}' in Path(__file__).read_text(encoding="utf-8")


def test_ordered_grades(capsys):
    printed = run("ordered_grades", capsys)
    for kind in ("ranks", "triplets"):
        right, off = numbers(rf"from {kind}: (\d+)% of new essays graded correctly, off by ([\d.]+)", printed)
        assert right > 75
        assert off < 0.3
    assert numbers(r"(\d+)% of 200 new pairs", printed)[0] > 90


def test_training_loop(capsys):
    printed = run("training_loop", capsys)
    risks = [numbers(rf"epoch {epoch}: risk ([\d.]+)", printed)[0] for epoch in (10, 20)]
    assert risks[1] < risks[0]
    assert numbers(r"epoch 20: .*, ([\d.]+)% of new images correct", printed)[0] > 92
    assert printed.count("(it is a ") == 6


def test_custom_aggregate(capsys):
    printed = run("custom_aggregate", capsys)
    assert "the fold agrees with enumeration" in printed
    assert "the likelihood agrees with enumeration" in printed
    assert numbers(r"differ by (\S+) at most", printed)[0] < 1e-5
    assert numbers(r"leave open: reversal; (\d+)% of the wines", printed)[0] > 90


def test_grid_search(capsys):
    printed = run("grid_search", capsys)
    assert printed.count("per held-out group") == 4
    assert "chosen without labels: 30 components" in printed
    assert numbers(r"([\d.]+)% of new images are classified", printed)[0] > 90
    assert "refused: groups must be whole" in printed


def test_margins(capsys):
    printed = run("margins", capsys)
    areas = [numbers(rf"from the table {name}: ([\d.]+)", printed)[0] for name in ("by age", "by place", "both")]
    assert areas[2] > max(areas[:2]) - 0.005
    assert areas[2] > min(areas[:2]) + 0.02
