"""Small files of instances and observations, whole ones to be broken by tests."""

from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.layout_engine import ConstrainedLayoutEngine
from typer.testing import CliRunner

from unbag import cli

PEOPLE = "id,ward,age,town\n" + "".join(
    f"p{ward}{place},w{ward},{20 + 7 * ward + place},{'Bonn' if place else 'Ulm'}\n"
    for ward in range(4)
    for place in range(3)
)
WARDS = "ward,ill,well\nw0,1,2\nw1,0,3\nw2,3,0\nw3,2,1\n"
BAGS = "ward,positive\nw0,1\nw1,0\nw2,1\nw3,0\n"
PAIRS = "a,b,similar\np00,p01,1\np00,p11,0\np20,p21,1\np30,p12,0\n"
TRIPLETS = "a,b,c,closer\np00,p01,p11,1\np00,p11,p12,0\np20,p21,p32,1\np30,p12,p32,0\n"
RANKS = "first,second,relation\np00,p11,<\np11,p00,>\np20,p21,>=\np30,p12,<=\n"


def call(*arguments: object, width: int = 200):
    """Run a command in this process."""
    runner = CliRunner(env={"COLUMNS": str(width), "TERM": "dumb"})
    # Where the parts of a plot are put takes half of the time of drawing it; test_cli_report.py lets that happen.
    with patch.object(ConstrainedLayoutEngine, "execute", lambda *_: None):
        return runner.invoke(cli.app, [str(one) for one in arguments])


def succeed(*arguments: object, width: int = 200):
    """Run a command that has to succeed."""
    result = call(*arguments, width=width)
    assert result.exit_code == 0, result.output
    return result


def refuse(*arguments: object):
    """Run a command that has to end with an error."""
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    return result


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def write_parquet(path: Path, columns: dict) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def blobs(folder: Path, seed: int = 0, n_groups: int = 40) -> np.ndarray:
    """Write people.csv and observations of all six kinds of them, and return the true classes."""
    rng = np.random.default_rng(seed)
    n = 4 * n_groups
    y = rng.integers(0, 2, n)
    x = rng.normal(size=n) + 4 * y
    lines = [f"p{i},g{i // 4},{x[i]:.4f},{'ab'[i % 2]},{y[i]}\n" for i in range(n)]
    write(folder / "people.csv", "id,group,x,letter,label\n" + "".join(lines))
    counts = [np.bincount(y[4 * g : 4 * g + 4], minlength=2) for g in range(n_groups)]
    write(folder / "counts.csv", "group,0,1\n" + "".join(f"g{g},{a},{b}\n" for g, (a, b) in enumerate(counts)))
    write(folder / "bags.csv", "group,positive\n" + "".join(f"g{g},{int(b > 0)}\n" for g, (_, b) in enumerate(counts)))
    pairs = np.array([rng.choice(n, 2, replace=False) for _ in range(60)])
    triplets = np.array([rng.choice(n, 3, replace=False) for _ in range(60)])
    lines = [f"p{a},p{b},{int(y[a] == y[b])}\n" for a, b in pairs]
    write(folder / "pairs.csv", "a,b,similar\n" + "".join(lines))
    lines = [f"p{a},p{b},p{c},{int(y[a] == y[b] != y[c])}\n" for a, b, c in triplets]
    write(folder / "triplets.csv", "a,b,c,closer\n" + "".join(lines))
    lines = [f"p{a},p{b},{'<' if y[a] < y[b] else '>' if y[a] > y[b] else '>='}\n" for a, b in pairs]
    write(folder / "ranks.csv", "first,second,relation\n" + "".join(lines))
    lines = [f"p{a},p{b},p{c},{int(abs(y[a] - y[b]) < abs(y[a] - y[c]))}\n" for a, b, c in triplets]
    write(folder / "ordinal_triplets.csv", "a,b,c,closer\n" + "".join(lines))
    return y
