"""The pages of results: complete, safe, readable without sight or network, and the same for the same results."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import groupby
from pathlib import Path

import matplotlib as mpl
import pytest
from result_lines import trial

from unbag._utils.pages.tables import Cell as Entry
from unbag._utils.pages.tables import Table
from unbag_experiments import plots
from unbag_experiments.baselines import METHODS
from unbag_experiments.comparison import Key, Row, Selected, compare
from unbag_experiments.paper import PAPER, PaperCell
from unbag_experiments.plan import Cell, select
from unbag_experiments.plots import dot_plot, size_plot
from unbag_experiments.render import MADE, markdown_table, render, write
from unbag_experiments.result_page import PAGES
from unbag_experiments.results import read

TITLES = {"uum": "UUM", "log_likelihood": "Log-likelihood"}
FOX = {"table": "mil", "problem": "multiple_instance", "dataset": "fox"}


class Page(HTMLParser):
    """What a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br", "hr", "img", "input"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "td":
            self.rows[-1][-1] += data

    def attributes(self, *names: str) -> list[str]:
        return [value or "" for _, found in self.elements for name, value in found.items() if name in names]


FOX_AND_SIZES = tuple(cell for cell in PAPER if cell.dataset == "fox" or cell.table == "triplet_sizes")
PLANNED = select(tables=["mil", "triplet_sizes", "ordinal"], names=["fox", "cifar10", "digits"])


@pytest.fixture(scope="module", autouse=True)
def _few_cells():
    """Plots of all cells take their time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unbag_experiments.render.PAPER", FOX_AND_SIZES)
        patch.setattr("unbag_experiments.render.select", lambda: PLANNED)
        yield


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A folder of results: most of the plan not run, one trial run twice, and notes."""
    folder = tmp_path_factory.mktemp("results")
    fox = [Cell(**FOX, method=method, protocol=protocol) for protocol in ("paper", "ten_fold") for method in TITLES]
    lines = [
        trial(cell, 1000 + seed, 0.9 + 0.01 * seed - 0.05 * (cell.method != "uum"), groups=0.8)
        for cell in fox
        for seed in range(5)
    ]
    lines.append(lines[0] | {"date": "2026-02-01"})
    (folder / "mil.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    small, large = (
        Cell("triplet_sizes", "triplet_comparison", "cifar10", "uum", n_groups=size) for size in (30_000, 60_000)
    )
    sizes = [trial(small, accuracy=0.5), trial(large, accuracy=0.7), trial(large, 7)]
    (folder / "triplet_sizes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in sizes))
    (folder / "NOTES.md").write_text("# Fox\n\nIt <b>falls</b> *short*.\n\n```\n# a comment\n```\n")
    return folder


@pytest.fixture(scope="module")
def docs(results, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written") / "docs"
    write(results, folder)
    return folder


@pytest.fixture(scope="module")
def page(docs):
    return Page((docs / "results/tables.html").read_text("utf-8"))


@pytest.fixture(scope="module")
def text(docs):
    return (docs / "results.md").read_text("utf-8")


def test_the_same_results_give_the_same_bytes_in_any_order(results, docs, tmp_path):
    shuffled = tmp_path / "results"
    shuffled.mkdir()
    for path in sorted(results.iterdir(), reverse=True):
        content = path.read_text().splitlines(keepends=True)
        (shuffled / path.name).write_text("".join(content[::-1] if path.suffix == ".jsonl" else content))
    paths = write(shuffled, tmp_path / "docs")
    assert sorted(path.relative_to(tmp_path / "docs") for path in paths) == sorted(
        path.relative_to(docs) for path in docs.rglob("*") if path.is_file()
    )
    for path in paths:
        assert path.read_bytes() == (docs / path.relative_to(tmp_path / "docs")).read_bytes(), path.name


def test_nothing_is_fetched(page):
    assert not {"link", "img", "iframe", "object", "embed", "image"} & {tag for tag, _ in page.elements}
    assert all(value.startswith("#") for value in page.attributes("href", "src", "xlink:href"))
    policy = [found.get("content", "") for tag, found in page.elements if tag == "meta" and "http-equiv" in found]
    assert "default-src 'none'" in policy[0]
    assert all("url(" not in value.replace("url(#", "") for value in page.attributes("style", "clip-path"))


def test_trials_that_do_not_count_are_counted_apart(page, docs):
    history = (docs / "results_history.md").read_text()
    assert "or seeds that are not planned: 1." in history


def test_training_times(page):
    # Of the paper's protocol two methods lack five trials each, of the folds ten; of the others all are missing.
    missing = 2 * 5 + 4 * 5 + 2 * 10 + 2 * 5
    assert next(row for row in page.rows if row[:2] == ["Multiple instances", "20"])[3:] == [
        "40.00",
        "7200.00",
        f"{missing}",
    ]
    ordered = next(row for row in page.rows if row[:2] == ["Ordered classes (our own table)", "0"])
    assert ordered[2:] == ["0.00", "0.00", "-", "30"]


def test_the_page_is_sound(page):
    assert page.open == []
    ids = page.attributes("id")
    assert len(ids) == len(set(ids))
    assert {value[1:] for value in page.attributes("href", "xlink:href")} <= set(ids)
    assert set(page.attributes("aria-labelledby")) <= set(ids)
    clips = re.findall(r"url\(#([^)]*)\)", " ".join(page.attributes("clip-path")))
    assert clips
    assert set(clips) <= set(ids)


def test_every_cell_is_shown_and_what_was_not_run_says_so(page, text, docs):
    rows = compare([], FOX_AND_SIZES, PLANNED).rows
    titles = {method.name: method.title for method in METHODS.values()}
    for row in rows:
        size = [] if row.key.n_groups is None else [f"{row.key.n_groups:,}"]
        line = [row.key.dataset, *size, titles[row.key.method]]
        assert line in [found[: len(line)] for found in page.rows]
    assert sum("not run" in row for row in page.rows) == len(rows) - 6
    assert f"\n1. Run: 22 of {sum(row.planned for row in rows)} planned trials, in 6 of {len(rows)} cells.\n" in text
    bags = (docs / "results_bags.md").read_text()
    assert re.search(r"\| fox +\| +92.00 ± 1.58 \(94.90\) \| +87.00 ± 1.58 \(\d+.\d+\) • \| +80.00 ± 0.00 \|\n", bags)
    assert re.search(
        r"\| fox +\| +92.00 ± 1.58, 5 of 10 \| +87.00 ± 1.58, 5 of 10 • \| +80.00 ± 0.00, 5 of 10 \|\n", bags
    )
    assert " Not run: fox: all methods.\n" in bags


def test_a_table_of_which_nothing_is_known_is_not_run(page, docs):
    assert "\n## Pairs, UCI data\n\nNot run.\n" in (docs / "results_comparisons.md").read_text()
    assert "similarity_uci" in page.attributes("id")


def test_the_figures_are_right(page, text, docs):
    def rows(*start):
        found = [row for row in page.rows if row[: len(start)] == list(start)]
        return [[field.replace("\u00a0", " ") for field in row] for row in found]

    again = "unbag reproduce --table mil --dataset fox --method {} --protocol {} --results again"
    papers, together, folds = rows("fox", "UUM")
    # The deviation is 1.58; the interval 2.776 * 1.58 * sqrt(1/5 + 1/3).
    ours = ["92.00 ± 1.58", "88.79 to 95.21"]
    by_groups = "80.00 ± 0.00"
    paper = ["94.90 ± 1.98", "-2.90", "below"]
    assert papers == [
        "fox",
        "UUM",
        *ours,
        *paper,
        by_groups,
        "-",
        "-",
        "-",
        "5 of 5",
        "1",
        again.format("uum", "paper"),
    ]
    assert together[2:4] == ["not run", "-"]
    assert folds == ["fox", "UUM", *ours, by_groups, "-", "-", "5 of 10", "1", again.format("uum", "ten_fold")]
    papers, _, folds = rows("fox", "Log-likelihood")
    assert papers[5:12] == ["-7.30", "below", by_groups, "• better", "level", "level", "5 of 5"]
    assert folds[5:8] == ["• better", "level", "5 of 10"]
    (size,) = rows("cifar10", "60,000", "UUM")
    assert size[3:12] == ["70.00", "-", "63.38", "+6.62", "-", "70.00", "-", "-", "-"]
    assert size[12:] == [
        "1 of 5", "1",
        "unbag reproduce --table triplet_sizes --dataset cifar10 --method uum --groups 60000 --results again",
    ]  # fmt: skip
    assert re.search(r"\| Multiple instances +\| +2 \| \+5.00 \| +5.00 to 5.00 \|", text)
    assert re.search(r"\| UUM +\| +3 \| +1 \| +0 \| +2 \| +2 \| +0 \|", text)
    assert "fox (multiple instance) by 2.90, more than the paper's standard deviation" in text
    assert "replaced: 1." in text
    assert re.search(
        r"NVIDIA H200 +\| python 3.12.1, torch 2.11.0 +\| 0123abc +\| 2026-01-31 to 2026-02-01 \| +44.0",
        (docs / "results_history.md").read_text(),
    )


def test_plots_have_descriptions(page):
    drawn = [found for tag, found in page.elements if tag == "svg"]
    words = [found["aria-label"] for found in drawn if found["role"] == "img"]
    assert len(words) == len(drawn) > 0
    assert "fox 92.00 ± 1.58 (paper 94.90 ± 1.98)" in " ".join(words)
    assert "cifar10 with 60,000 groups 70.00 (paper 63.38)" in " ".join(words)


def test_tables_line_up_as_plain_text(docs):
    text = "".join(path.read_text() for path in sorted(docs.glob("results*.md")))
    tables = [list(lines) for table, lines in groupby(text.splitlines(), lambda line: line.startswith("|")) if table]
    # Log-likelihood, methods, provenance; fox by two protocols, and sizes.
    assert len(tables) == 6
    for lines in tables:
        assert len({len(line) for line in lines}) == 1
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1


def test_every_table_has_a_section(page, docs):
    names = {cell.table for cell in PAPER} | {"ordinal", "llp_groups_uci", "llp_groups_images", "bags_of_images"}
    assert names <= set(page.attributes("id"))
    text = "".join((docs / f"{name}.md").read_text() for name in PAGES)
    assert len(re.findall("^## ", text, re.MULTILINE)) >= len(names)


def test_tables_can_be_sorted(docs, page):
    heads = sum(tag == "th" for tag, _ in page.elements)
    assert sum(tag == "button" for tag, _ in page.elements) == heads
    assert "data-sort" in (docs / "results/tables.html").read_text()
    assert any(found.get("data-sort") == "92.0" for _, found in page.elements)


def test_notes_are_part_of_both_pages_and_cannot_break_them(docs):
    text = (docs / "results_history.md").read_text()
    html = (docs / "results/tables.html").read_text()
    assert "\n# Fox\n\nIt <b>falls</b> *short*.\n\n```\n# a comment\n```\n" in text
    assert "<h1>Fox</h1>" in html
    assert "It &lt;b&gt;falls&lt;/b&gt; <em>short</em>." in html
    pages = render(compare([], (), ()), {}, notes="![eye](http://elsewhere.example/eye.png)")
    assert "<img" not in pages["results/tables.html"]


def test_there_is_no_section_of_notes_without_notes():
    pages = render(compare([], (), ()), {})
    assert "Notes" not in pages["results/tables.html"]
    assert "Nothing has been run yet" in pages["results/tables.html"]
    assert "mean in points: in no cell." in pages["results.md"]


def test_what_results_say_cannot_break_the_pages():
    evil = '<script>x</script> | *y* [z](http://a) $\\frac$ & "quoted" \'\n## new'
    cell = Cell(**FOX, method="uum")
    lines = [trial(replace(cell, dataset=evil), hardware=evil), trial(cell, table=f"../{evil}")]
    pages = render(compare(lines, (), ()), {})
    page = Page(pages["results/tables.html"])
    assert sum(tag == "script" for tag, _ in page.elements) == 1
    assert evil in [row[0] for row in page.rows if row]
    assert all(re.fullmatch(r"results(_\w+)?(\.md|/tables\.html)", path) for path in pages)
    text = "".join(pages[name] for name in pages if name.endswith(".md"))
    assert "script" in text
    assert "<script>" not in text.replace(r"\<", "")
    assert "\n## new" not in text
    assert "](http" not in text.replace(r"\]", "")


def test_an_old_page_stays_whole_when_writing_fails(results, tmp_path, monkeypatch):
    written = tmp_path / "docs"
    write(results, written)
    before = {path: path.read_bytes() for path in written.rglob("*") if path.is_file()}

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write(results, written)
    assert {path: path.read_bytes() for path in written.rglob("*") if path.is_file()} == before


def test_markdown_marks_strong_lines_but_no_figures():
    rows = [(Entry("x|y"), Entry("1")), (Entry("-"), Entry("22"))]
    table = Table("", ("A", "B"), rows, numeric=("B",), emphasis={0: "strong"})
    assert markdown_table(table).splitlines() == [
        "| A        |  B |",
        "|:---------|---:|",
        "| **x\\|y** |  1 |",
        "| -        | 22 |",
    ]


def test_plots_show_each_cell():
    key = Key(**FOX, method="uum")
    paper = PaperCell(**FOX, method="uum", mean=94.9, std=None, uum_significantly=None)
    rows = [Row(key, {"labels": Selected({0: 91.0, 1: 92.0})}, paper), Row(key._replace(method="mine"), {})]
    svg = dot_plot(rows, TITLES)
    for words in ("fox", "UUM", "mine", "not run", "ours", "the paper's"):
        assert f">{words}<" in svg
    assert ">the paper&apos;s<" not in svg
    assert ">the paper's<" not in dot_plot([Row(key, {"labels": Selected({0: 91.0})})], TITLES)
    sized = [
        Row(
            Key("triplet_sizes", "triplet_comparison", dataset, "uum", n_groups=size),
            {"labels": Selected({0: 40.0})} if size else {},
        )
        for dataset in ("cifar10", "svhn")
        for size in (0, 10_000, 30_000)
    ]
    svg = size_plot(sized, TITLES)
    assert all(f">{words}<" in svg for words in ("cifar10", "svhn", "UUM", "10,000", "training groups"))


def test_plots_do_not_depend_on_the_settings_of_matplotlib():
    rows = [Row(Key(**FOX, method="uum"), {0: 91.0, 1: 92.0})]
    with mpl.rc_context({"font.size": 20, "svg.hashsalt": "other", "svg.fonttype": "path", "lines.linewidth": 7}):
        other = dot_plot(rows, TITLES)
    assert dot_plot(rows, TITLES) == other


def test_a_page_of_somebody_else_is_not_replaced(tmp_path):
    page = tmp_path / "docs" / "results.md"
    page.parent.mkdir()
    page.write_text("# My results")
    with pytest.raises(FileExistsError, match=r"results.md was not made by unbag reproduce render"):
        write(tmp_path, page.parent)
    assert page.read_text() == "# My results"
    page.unlink()
    for _ in range(2):  # over its own
        write(tmp_path, page.parent)
    assert MADE in page.read_text()


def test_the_pages_are_those_of_the_results():
    """Compared with 0.2.0, tables have a column per method, and one page became six."""
    root = Path(__file__).parents[2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "dot_plot", lambda rows, titles: "")  # plots are compared by eye: they take their time
        patch.setattr(plots, "size_plot", lambda rows, titles: "")
        pages = render(
            compare(read(root / "experiments" / "results"), PAPER, select()),
            {name: method.title for name, method in METHODS.items()},
            (root / "experiments" / "results" / "NOTES.md").read_text("utf-8"),
        )
    for name in ("results", "results_history", *PAGES):
        assert (root / "docs" / f"{name}.md").read_text("utf-8") == pages[f"{name}.md"], "run unbag reproduce render"
