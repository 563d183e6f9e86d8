"""Downloads from a real web server on this machine, which also breaks off, stalls and sends wrong bytes."""

from __future__ import annotations

import hashlib
import io
import random
import threading
from pathlib import Path

import pytest
from dataset_server import Behaviour, serving
from rich.console import Console

from unbag_experiments.datasets import download
from unbag_experiments.datasets.download import DownloadFailed, Remote, fetch

CONTENT = random.Random(0).randbytes(1_000_003)
HALF = len(CONTENT) // 2


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


def remote(*urls: str, content: bytes = CONTENT) -> Remote:
    return Remote("file.bin", urls, hashlib.sha256(content).hexdigest())


def get(folder: Path, behaviour: Behaviour, **patience: float) -> Path:
    with serving(behaviour) as url:
        return fetch(remote(url), folder, **{"timeout": 5, "attempts": 3, "pause": 0, **patience})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_a_download_leaves_the_file_and_nothing_else(tmp_path, capsys):
    path = get(tmp_path / "new" / "folder", Behaviour(CONTENT))
    assert path.read_bytes() == CONTENT
    assert [one.name for one in path.parent.iterdir()] == ["file.bin"]
    assert capsys.readouterr() == ("", "")


def test_a_server_that_does_not_say_how_long_the_file_is_will_do(tmp_path):
    assert get(tmp_path, Behaviour(CONTENT, length=False)).read_bytes() == CONTENT


def test_a_file_that_is_there_is_not_asked_for(tmp_path):
    (tmp_path / "file.bin").write_bytes(b"here already")
    server = Behaviour(CONTENT)
    assert get(tmp_path, server).read_bytes() == b"here already"
    assert server.asked == []


def test_a_download_that_breaks_off_goes_on_where_it_was(tmp_path):
    server = Behaviour(CONTENT, moods=["break"])
    assert get(tmp_path, server).read_bytes() == CONTENT
    assert server.asked == [None, f"bytes={HALF}-"]


def test_tries_that_bring_something_new_do_not_count(tmp_path):
    server = Behaviour(CONTENT, moods=["break"] * 10)
    assert get(tmp_path, server, attempts=1).read_bytes() == CONTENT
    assert len(server.asked) == 11


def test_what_an_earlier_run_left_is_used(tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:1000])
    with pytest.raises(DownloadFailed, match="1,000 bytes are kept, and the next try goes on from there"):
        get(tmp_path, Behaviour(CONTENT, moods=["500"] * 3))
    server = Behaviour(CONTENT)
    assert get(tmp_path, server).read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-"]


def test_a_server_that_knows_no_ranges_is_asked_for_everything_again(tmp_path):
    server = Behaviour(CONTENT, ranges=False, moods=["break"])
    assert get(tmp_path, server).read_bytes() == CONTENT
    assert server.asked == [None, f"bytes={HALF}-"]


def test_a_server_that_never_gets_past_the_middle_is_given_up(tmp_path):
    server = Behaviour(CONTENT, ranges=False, moods=["break"] * 100)
    with pytest.raises(DownloadFailed, match=r"broke off after 500,001 of 1,000,003 bytes \(3 tries in a row"):
        get(tmp_path, server)
    assert len(server.asked) == 4
    assert names(tmp_path) == ["file.bin.part"]


def test_getting_less_far_in_between_does_not_make_the_middle_something_new(tmp_path):
    server = Behaviour(CONTENT, ranges=False, moods=["break", "break early"] * 20)
    with pytest.raises(DownloadFailed, match="3 tries in a row brought nothing new"):
        get(tmp_path, server)
    assert len(server.asked) == 4


def test_a_part_that_is_already_whole_is_taken(tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    server = Behaviour(CONTENT)  # which answers 416: there is nothing after the end
    assert get(tmp_path, server).read_bytes() == CONTENT
    assert server.asked == [f"bytes={len(CONTENT)}-"]
    assert names(tmp_path) == ["file.bin"]


@pytest.mark.parametrize("part", [b"of another file", CONTENT + b"and more"], ids=["other", "longer"])
def test_a_part_of_something_else_is_thrown_away(tmp_path, part):
    (tmp_path / "file.bin.part").write_bytes(part)
    server = Behaviour(CONTENT)
    assert get(tmp_path, server).read_bytes() == CONTENT
    assert server.asked == [f"bytes={len(part)}-", None]


def test_a_server_that_sends_another_range_is_not_believed(tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:1000])
    server = Behaviour(CONTENT, moods=["wrong range"])
    assert get(tmp_path, server).read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-", None]


def test_a_server_that_stalls_is_asked_again(tmp_path):
    server = Behaviour(CONTENT, moods=["stall"])
    assert get(tmp_path, server, timeout=0.2).read_bytes() == CONTENT
    assert server.asked == [None, f"bytes={HALF}-"]


def test_a_server_that_only_stalls_is_given_up(tmp_path):
    server = Behaviour(b"x", moods=["stall"] * 100)
    with pytest.raises(DownloadFailed, match=r"nothing came for 0\.1 seconds \(2 tries in a row") as failure:
        get(tmp_path, server, timeout=0.1, attempts=2)
    assert f"put the file into {tmp_path} yourself" in str(failure.value)
    assert len(server.asked) == 2


def test_wrong_bytes_are_refused_and_removed(tmp_path):
    server = Behaviour(CONTENT, moods=["wrong bytes"] * 100)
    wrong, right = (hashlib.sha256(one).hexdigest() for one in (bytes(len(CONTENT)), CONTENT))
    with pytest.raises(DownloadFailed, match=f"has the sha256 checksum {wrong}, not {right}, and has been removed"):
        get(tmp_path, server)
    assert names(tmp_path) == []
    assert len(server.asked) == 1


def test_wrong_bytes_that_also_break_off_do_not_go_on_forever(tmp_path):
    server = Behaviour(CONTENT, moods=["break", "wrong bytes"] * 100)
    with pytest.raises(DownloadFailed, match="3 tries in a row brought nothing new"):
        get(tmp_path, server)
    assert len(server.asked) < 10
    assert not (tmp_path / "file.bin").exists()


def test_a_missing_file_is_asked_for_once_and_a_busy_server_several_times(tmp_path):
    for mood, asked in (("404", 1), ("403", 1), ("500", 3), ("503", 3), ("429", 3)):
        server = Behaviour(CONTENT, moods=[mood] * 100)
        with pytest.raises(DownloadFailed, match=f"file.bin could not be downloaded from http.*answers {mood} "):
            get(tmp_path, server)
        assert len(server.asked) == asked
    assert get(tmp_path, Behaviour(CONTENT, moods=["500", "503"])).read_bytes() == CONTENT


def test_the_pause_grows_while_nothing_new_comes(tmp_path, monkeypatch):
    pauses: list[float] = []
    monkeypatch.setattr(download.time, "sleep", pauses.append)
    get(tmp_path, Behaviour(CONTENT, moods=["500", "500", "500", "break", "500"]), attempts=4, pause=3)
    assert pauses == [3, 6, 12, 3, 3]


def test_the_next_address_is_tried_and_goes_on_where_the_last_one_was(tmp_path):
    first, second = Behaviour(CONTENT, moods=["break", "404"]), Behaviour(CONTENT)
    with serving(first) as one, serving(second) as two:
        assert fetch(remote(one, two), tmp_path, pause=0).read_bytes() == CONTENT
    assert second.asked == [f"bytes={HALF}-"]


def test_where_nobody_answers_every_address_is_named(tmp_path):
    with serving(Behaviour(CONTENT)) as url:
        pass
    with pytest.raises(DownloadFailed, match="refused") as failure:
        fetch(remote(url, f"{url}/2"), tmp_path, attempts=1, pause=0)
    assert f"from {url}: " in str(failure.value)
    assert f"; {url}/2: " in str(failure.value)


def test_of_several_at_once_one_downloads_and_the_others_wait(tmp_path):
    server = Behaviour(CONTENT, moods=["slow"])
    found: list[bytes] = []
    with serving(server) as url:
        threads = [
            threading.Thread(target=lambda: found.append(fetch(remote(url), tmp_path).read_bytes())) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [CONTENT] * 4
    assert server.asked == [None]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(
        PermissionError, match=r"nothing can be downloaded into .*data.*set UNBAG_DATA to another folder"
    ):
        fetch(remote("http://127.0.0.1/"), tmp_path / "file" / "data")


def test_a_read_only_folder_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(download.os, "access", lambda *_: False)  # the administrator may write everywhere
    with pytest.raises(PermissionError, match=f"nothing can be downloaded into {tmp_path}; set UNBAG_DATA"):
        fetch(remote("http://127.0.0.1/"), tmp_path)


def test_a_disk_that_fails_is_not_taken_for_the_network(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(download, "open", full, raising=False)
    server = Behaviour(CONTENT)
    with pytest.raises(OSError, match="No space left"):
        get(tmp_path, server)
    assert len(server.asked) == 1


def test_a_terminal_shows_how_far_the_download_is(tmp_path, monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(download, "Console", lambda **_: Console(file=screen, force_terminal=True, width=100))
    get(tmp_path, Behaviour(CONTENT))
    assert "file.bin" in screen.getvalue()
    assert "MB" in screen.getvalue()
