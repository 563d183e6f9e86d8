"""MNIST and what was made after its pattern: 28 x 28 grey pictures of ten classes, in IDX files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unbag_experiments.datasets.base import Content, Layout, Recipe
from unbag_experiments.datasets.download import Remote
from unbag_experiments.datasets.readers import broken, join, read_idx

FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def read_part(images: Path, labels: Path) -> Content:
    """Read pictures and their labels."""
    X, y = read_idx(images), read_idx(labels)
    if X.ndim != 3 or y.ndim != 1:
        broken(images, f"expected pictures here and labels in {labels.name}, got shapes {X.shape} and {y.shape}")
    if len(X) != len(y):
        broken(labels, f"there are {len(y)} labels for the {len(X)} pictures of {images.name}")
    return Content(X[:, None], y)


def read_mnist(paths: Sequence[Path]) -> Content:
    """Read the training part and the test part."""
    train_images, train_labels, test_images, test_labels = paths
    return join(read_part(train_images, train_labels), test=read_part(test_images, test_labels))


def _mnist(urls: Sequence[str], sha256: Sequence[str], places: tuple[str, ...], **about: Any) -> Recipe:
    """Declare a set; all have files of the same names, which need a folder or a prefix to tell them apart."""
    remotes = tuple(
        Remote(f"{file}.gz", tuple(f"{url}{file}.gz" for url in urls), checksum)
        for file, checksum in zip(FILES, sha256, strict=True)
    )
    return Recipe(shape=(1, 28, 28), layouts=(Layout(FILES, read_mnist),), places=places, remotes=remotes, **about)


DATASETS = (
    _mnist(
        name="mnist",
        title="MNIST, handwritten digits",
        classes=tuple("0123456789"),
        citation="LeCun, Cortes and Burges, The MNIST database of handwritten digits",
        home="http://yann.lecun.com/exdb/mnist/",
        licence="CC BY-SA 3.0",
        places=("mnist/", "mnist_", "MNIST/raw/"),
        # The home does not always answer; the first is a copy of its files that others keep for that reason.
        urls=("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
        sha256=(
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
    _mnist(
        name="fashion-mnist",
        title="Fashion-MNIST, articles of clothing",
        classes=(
            *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
            *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        ),
        citation="Xiao, Rasul and Vollgraf, Fashion-MNIST, arXiv:1708.07747, 2017",
        home="https://github.com/zalandoresearch/fashion-mnist",
        licence="MIT",
        places=("fashion-mnist/", "fashion-mnist_", "FashionMNIST/raw/"),
        urls=(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        sha256=(
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    ),
    _mnist(
        name="kuzushiji-mnist",
        title="Kuzushiji-MNIST, handwritten Japanese characters",
        classes=("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"),
        citation=(
            "KMNIST Dataset (created by CODH), adapted from Kuzushiji Dataset (created by NIJL and others), "
            "doi:10.20676/00000341; Clanuwat et al., Deep learning for classical Japanese literature, 2018"
        ),
        home="http://codh.rois.ac.jp/kmnist/",
        licence="CC BY-SA 4.0",
        places=("kuzushiji-mnist/", "kmnist/", "kmnist_", "KMNIST/raw/"),
        urls=("http://codh.rois.ac.jp/kmnist/dataset/kmnist/",),
        sha256=(
            "51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4",
            "e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17",
            "edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5",
            "20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c",
        ),
    ),
)
