"""Checkpoints with flipped bits and cut ends; `test_checkpoints.py` tries some, this file as a script as many as asked.

python tests/helpers/damaged_checkpoints.py 1000 100
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

from training_problems import network, pairs_problem

from unbag.training import Checkpoint, Settings, train


def count_accepted(folder: Path, flips: int, truncations: int, seed: int = 0) -> int:
    """Damage the checkpoint of a run in so many ways, and return how often it was loaded all the same."""
    checkpoint, chance = Checkpoint(folder), random.Random(seed)
    whole = checkpoint.file.read_bytes()
    ways = ["flip"] * flips + ["cut"] * truncations
    accepted = 0
    for way in ways:
        damaged = bytearray(whole)
        if way == "flip":
            damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        else:
            del damaged[chance.randrange(len(whole)) :]
        checkpoint.file.write_bytes(damaged)
        try:
            checkpoint.load()
            accepted += 1
        except ValueError as error:
            if "or damaged" not in str(error):
                raise
    checkpoint.file.write_bytes(whole)
    assert checkpoint.load() is not None
    return accepted


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        X, seen = pairs_problem()
        train(lambda: network(3), X, [seen], Settings(epochs=2), checkpoint=Checkpoint(Path(folder)))
        flips, truncations = int(sys.argv[1]), int(sys.argv[2])
        accepted = count_accepted(Path(folder), flips, truncations)
        print(f"{flips} flipped bits, {truncations} truncations: {accepted} accepted")
