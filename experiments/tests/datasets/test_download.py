"""Downloads: a file whose checksum is known, from the first address that has it, once."""

from __future__ import annotations

import hashlib
import threading
from functools import partial

import pytest

from unbag_experiments.datasets import download
from unbag_experiments.datasets.download import DownloadFailed, Remote

CONTENT = bytes(range(256)) * 10
fetch = partial(download.fetch, retries=0)


def remote(*urls, content=CONTENT):
    return Remote("file.bin", urls, hashlib.sha256(content).hexdigest())


@pytest.fixture
def url(tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file.bin").write_bytes(CONTENT)
    return f"file://localhost{tmp_path / 'source' / 'file.bin'}"


def test_a_file_is_downloaded_once_and_nothing_else_is_left(url, tmp_path):
    folder = tmp_path / "data" / "set"
    assert fetch(remote(url), folder).read_bytes() == CONTENT
    assert fetch(remote("file://localhost/nowhere"), folder).read_bytes() == CONTENT
    assert [path.name for path in folder.iterdir()] == ["file.bin"]


def test_another_address_takes_over(url, tmp_path):
    assert fetch(remote("file://localhost/nowhere", url), tmp_path / "data").read_bytes() == CONTENT


def test_all_addresses_are_named_if_none_has_the_file(url, tmp_path):
    with pytest.raises(DownloadFailed, match=r"from file://localhost/no(?s:.)*; file:(?s:.)*put the file into .*data"):
        fetch(remote("file://localhost/nowhere", url, content=b"other"), tmp_path / "data")
    assert not (tmp_path / "data" / "file.bin").exists()


def test_threads_download_a_file_once(url, tmp_path):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(fetch(remote(url), tmp_path / "data").read_bytes()))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [CONTENT] * 4


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PermissionError, match=r"nothing can be downloaded into .*; set UNBAG_DATA to another folder"):
        fetch(remote("file://localhost/nowhere"), tmp_path / "file" / "data")
