"""Vehicle silhouettes: 18 measures of the outlines of four cars."""

from collections.abc import Sequence
from pathlib import Path

from unbag_experiments.datasets.base import Content, Layout, Recipe
from unbag_experiments.datasets.download import Remote
from unbag_experiments.datasets.readers import join, read_labelled, read_prepared

CLASSES = ("bus", "opel", "saab", "van")
HOME = "https://archive.ics.uci.edu/ml/machine-learning-databases/statlog/vehicle/"
SHA256 = {
    "xaa.dat": "091ec73ae54031aea8432d00caaef101a445eae13196039db9079b0eac13331d",
    "xab.dat": "3fbc55ac03592425521df18d59ba2ed7ddca626b22f84f5fc3253ebda6b82145",
    "xac.dat": "43536f3aadb2a285fa2ba6e13dacc7013c2298fbd728f011e88669bb44856b8d",
    "xad.dat": "371b0de9ba3564d8220d8ad17c5f2f886bafebd2c486de1b0273ceb0c24d3035",
    "xae.dat": "503f9c87feb46dfaab6e3c4275e121640a39c0b30b29f120e679ce8e3fbc7be2",
    "xaf.dat": "460e14ec4746a1464d7a03671e09310695c348d6831452cb53172734a6a70531",
    "xag.dat": "c279f285c353beaa661168e68feeac726cd446f076f717662635267d89006601",
    "xah.dat": "467735394d1a058e15da81d51fd8e1147d425e7f53392ac6b8e730a34a02049e",
    "xai.dat": "feba2f3aad6db050bc7acbd224cd4e0d32846865ab5cfc53cc59baea2e1ff484",
}


def read_vehicle(paths: Sequence[Path]) -> Content:
    """Read lines of 18 measures and the name of the car, out of nine files."""
    return join(*(read_labelled(path, 19, CLASSES) for path in paths))


DATASETS = (
    Recipe(
        name="vehicle",
        title="Statlog vehicle silhouettes",
        shape=(18,),
        classes=CLASSES,
        citation="Mowforth and Shepherd, Statlog (Vehicle Silhouettes), UCI Machine Learning Repository",
        home="https://archive.ics.uci.edu/dataset/149/statlog+vehicle+silhouettes",
        licence="CC BY 4.0",
        layouts=(Layout(("vehicle.npz",), read_prepared), Layout(tuple(SHA256), read_vehicle)),
        remotes=Remote.below(HOME, SHA256),
    ),
)
