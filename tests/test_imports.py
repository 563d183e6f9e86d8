"""What is imported, and when: torch, scikit-learn and others take seconds, and some modules are not everywhere.

In processes of their own, because other tests have imported everything already; few, because each takes seconds.
"""

import importlib
import os
import subprocess
import sys

import pytest

import unbag

SLOW = {"matplotlib", "pandas", "pyarrow", "scipy", "sklearn", "triton"}


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_everything_is_imported_by_a_star():
    names: dict[str, object] = {}
    exec("from unbag import *", names)
    assert names.keys() - {"__builtins__"} == set(unbag.__all__) <= set(dir(unbag))
    assert all(names[name].__name__ == name and names[name] is getattr(unbag, name) for name in unbag.__all__)


def test_modules_are_imported_by_their_name_and_others_are_missed():
    assert unbag.objectives.losses is sys.modules["unbag.objectives.losses"]
    assert importlib.import_module("unbag.losses") is unbag.losses is unbag.objectives.losses
    assert unbag.losses.__spec__.name == "unbag.objectives.losses"
    assert not hasattr(unbag, "nothing")
    with pytest.raises(AttributeError, match="module 'unbag' has no attribute 'nothing'"):
        unbag.nothing  # noqa: B018


@pytest.mark.parametrize("command", ["['--help']", "['fit', '-h']"])
def test_help_waits_for_nothing(command):
    code = f"""if True:
        import sys
        from unbag.cli import app
        app({command}, standalone_mode=False)
        assert not {{"torch", "numpy", *{SLOW}}} & {{*sys.modules}}
    """
    assert "Usage: " in run(code)


def test_scikit_learn_and_fabric_are_imported_when_needed_only_and_arrays_pass_scikit_learns_own_check():
    """That check is skipped unless SCIPY_ARRAY_API was set before scipy was imported."""
    code = """if True:
        import sys, unbag
        assert not {"torch", "sklearn"} & {*sys.modules}
        unbag.Groups
        assert "sklearn" not in sys.modules
        estimator = unbag.AggregateClassifier(model="mlp", training=unbag.NetworkTraining(2))
        assert "lightning_fabric" not in sys.modules
        from sklearn.utils.estimator_checks import estimator_checks_generator
        run = [check(estimator) for _, check in estimator_checks_generator(estimator) if "array_api" in str(check.func)]
        print(len(run))
    """
    assert int(run(code, SCIPY_ARRAY_API="1")) >= 1
