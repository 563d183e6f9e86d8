"""The page: complete, harmless, accessible, and the same every time."""

import copy
import json
import re
import unicodedata
from functools import cache
from html.parser import HTMLParser
from typing import Any

import pytest
from report_runs import HOSTILE, RUNS, summary_of
from typer.testing import CliRunner

from unbag._utils.terminal import UNSAFE, visible
from unbag.cli import app
from unbag.report import FORMAT, render
from unbag.report.elements import Section
from unbag.report.overview import RULES, make_overview, suggest_steps
from unbag.report.sections import make_sections

SECTIONS = [
    *("quality", "outcome-0", "balance", "importance", "uncertainty", "limitations", "data"),
    *("likelihood", "training", "settings"),
]


class Page(HTMLParser):
    """Elements of a page with their attributes, and the text of each kind of element."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.inside: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "input"):
            self.inside.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        assert self.inside.pop() == tag  # every element is closed, in order

    def handle_data(self, data):
        for tag in set(self.inside):
            self.texts[tag][-1] += data

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@cache
def html_of(kind: str) -> str:
    return render(summary_of(kind))


@pytest.fixture(params=RUNS)
def page(request):
    return Page(html_of(request.param))


def changed(kind: str, **changes: Any) -> dict[str, Any]:
    """Return a summary with some values replaced, by paths of names joined by two underscores."""
    summary = copy.deepcopy(summary_of(kind))
    for path, value in changes.items():
        *way, last = [int(part) if part.isdigit() else part for part in path.split("__")]
        at: Any = summary
        for part in way:
            at = at[part]
        at[last] = value
    return summary


def sections_of(summary: dict[str, Any]) -> dict[str, Section]:
    return {section.id: section for section in make_sections(summary)}


def overview_of(summary: dict[str, Any]) -> str:
    return "\n".join(sentence for box in make_overview(summary) for sentence in box.sentences)


def test_nothing_is_loaded(page):
    for tag, attributes in page.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "image", "base", "form", "audio", "video")
        for name, value in attributes.items():
            assert name != "src"
            if name in ("href", "xlink:href"):
                assert value.startswith("#")
            assert "http" not in (value or "") or name == "http-equiv"
            assert not name.startswith("on")
    (policy,) = [meta["content"] for meta in page.attributes("meta") if "http-equiv" in meta]
    assert policy.startswith("default-src 'none'")
    assert not re.search(r"url\(|@import", page.texts["style"][0])


def test_sections_plots_and_tables_are_accessible(page):
    ids = [section["id"] for section in page.attributes("section")]
    assert [name for name in ids if name in SECTIONS] == SECTIONS
    assert [link["href"] for link in page.attributes("a")] == [f"#{name}" for name in ids]
    given = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(given) == len(set(given))
    captions = page.texts["figcaption"]
    assert len(page.attributes("svg")) == len(captions) == len(page.attributes("figure")) >= 1
    for svg, caption in zip(page.attributes("svg"), captions, strict=True):
        assert (svg["role"], "width" in svg, len(svg["aria-label"]) > 15) == ("img", False, True)  # it fits any screen
        assert re.fullmatch(r"(?!.*(None|nan)).*\.", caption)
    assert len(page.attributes("table")) == len(page.texts["caption"]) >= 5
    assert len(page.attributes("th")) == len(page.attributes("button"))
    assert all(heading["scope"] == "col" for heading in page.attributes("th"))
    for cell in page.attributes("td"):
        if cell.get("class") == "number" and "data-sort" in cell:
            float(cell["data-sort"])
        if "style" in cell:
            assert re.fullmatch(r"--bar: (\d\d?|100)%", cell["style"])
    assert page.elements[0] == ("html", {"lang": "en"})
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.attributes("meta")


def test_names_cannot_break_out():
    html = render({**summary_of("label_proportions"), "title": '"><script>x</script>'})
    page = Page(html)
    assert len(page.attributes("script")) == 1
    assert "<b>" not in html
    assert page.texts["h1"] == page.texts["title"] == ['"><script>x</script>']
    assert {visible(name) for name in HOSTILE} <= set(page.texts["td"])
    assert r"a\x1b[2J\x9b\x00\u202e\u2066\u2028" in page.texts["td"]
    assert {unicodedata.category(character) for character in html.replace("\n", "")}.isdisjoint(UNSAFE)


def test_the_same_summary_gives_the_same_page_in_the_colours_of_the_page():
    assert html_of("several") == render(json.loads(json.dumps(summary_of("several"))))
    drawn = "".join(re.findall(r"<svg.*?</svg>", html_of("several"), flags=re.DOTALL))
    assert "currentColor" in drawn
    assert "var(--first)" in drawn
    assert not re.search(r"#1011|#000000|#ffffff", drawn)


def test_labels_several_sets_and_other_methods_have_sections():
    comparison = [{"method": "a <method>", "accuracy": 0.75, "seconds": 3.0}]
    sections = sections_of({**summary_of("several"), "comparison": comparison})
    assert list(sections)[:5] == ["quality", "labels", "comparison", "outcome-0", "outcome-1"]
    assert [cell.text for cell in sections["comparison"].tables[0].rows[0]] == ["a <method>", "75.0 %", "3"]
    assert not {"labels", "comparison"} & set(sections_of(summary_of("multiple_instance")))


def test_the_overview_describes_data_and_quality():
    counts = overview_of(summary_of("label_proportions"))
    assert "40 groups of 3 to 7 rows. The observation of each group is" in counts
    assert "Quality was measured on 40 groups, predicted by models that did not learn from them." in counts
    assert "of the held-out groups are predicted better than by class shares alone." in counts
    assert "between groups also holds within them" in counts
    assert "log-likelihood" not in counts
    assert "because none was held out" in overview_of(summary_of("labels"))
    pairs = summary_of("pairwise_similarity")
    assert "Which class is which" in overview_of(pairs)
    assert "% of their rows in other pairs" in overview_of(pairs)
    assert "were matched with the labels" in " ".join(sections_of(pairs)["labels"].text)
    weighted = changed("label_proportions", sets__0__weights=[0.5, 2.0], sets__0__error_rate=0.08)
    assert "with weights from 0.500 to 2" in overview_of(weighted)
    assert "Estimated share of wrong observations of the groups: 8.0 %." in overview_of(weighted)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model": -45059576.0}, "no better than class shares that are the same for every row"),
        ({"impossible": 2}, "observations of 2 groups are impossible under the model"),
        ({"model": None, "trivial": None, "impossible": 9}, "of 9 groups are impossible under the model"),
    ],
)
def test_a_model_that_is_worse_than_a_constant_prediction_begins_with_a_warning(change, sentence):
    assert "Do not rely on it" not in overview_of(summary_of("label_proportions"))
    paths = {f"sets__0__likelihood__{name}": value for name, value in change.items()}
    heading, (words,), _ = make_overview(changed("label_proportions", **paths))[0]
    assert heading == "Warning"
    assert sentence in words
    assert "Do not rely on it" in words


def test_an_accuracy_below_that_of_group_shares_is_a_warning():
    changes = {"estimated_accuracy": {"value": 0.61, "low": 0.55, "high": 0.66}}
    changes["sets__0__own_share"] = {"log_likelihood": -2.0, "accuracy": 0.62}
    text = overview_of(summary := changed("label_proportions", **changes))
    assert "is right more often (62.0 %) than the model is for new rows (estimated 61.0 %)" in text
    assert "Estimated accuracy on rows of new groups: 61.0 % (95 % interval 55.0 % to 66.0 %)." in text
    rows = [[cell.text for cell in row] for row in sections_of(summary)["quality"].tables[0].rows]
    assert rows[0] == ["this model, estimated", "61.0 % (55.0 % to 66.0 %)"]
    assert rows[2] == ["most frequent class of the group", "62.0 %"]
    assert "The accuracy on new rows was not estimated." in overview_of(changed("labels", estimated_accuracy=None))


def test_findings_and_warnings_of_files_are_listed_once():
    message = "the column is the same in all rows"
    warning = {"severity": "warning", "message": message, "file": "people.csv", "row": None, "column": "age"}
    found = {"kind": "few_groups", "message": "there are few <groups>", "fatal": False}
    noted = {**warning, "severity": "note", "message": "there are few <groups> (--option)", "column": None}
    page = Page(render(summary := changed("multiple_instance", problems=[noted, warning], diagnosis=[found])))
    assert {"The files have 1 warning.", "There are few <groups>."} <= set(page.texts["p"])
    (table,) = sections_of(summary)["limitations"].tables
    assert [[cell.text for cell in row] for row in table.rows] == [["warning", "people.csv", "-", "age", message]]


def test_sections_follow_the_summary():
    importance = sections_of(changed("multiple_instance", columns=40))["importance"]
    assert "Of 40 columns, those most correlated" in importance.text[1]
    assert "not computed" in sections_of(changed("multiple_instance", importance=None))["importance"].text[0]
    assert "importance" not in sections_of(changed("multiple_instance", columns=0))
    unsure = sections_of(changed("multiple_instance", sets__0__confidence__without=5))["uncertainty"]
    assert "5 members of impossible observations have no posterior" in unsure.plots[0].caption
    labels = sections_of(changed("ordinal_triplet", labels__confusion=None))["labels"]
    assert [table.caption for table in labels.tables] == ["By class"]
    cells = {
        cell.text
        for table in sections_of(changed("labels", data__input_shape=[1, 8, 8]))["data"].tables
        for row in table.rows
        for cell in row
    }
    assert "images of 1 by 8 by 8" in cells


def test_figures_by_class_replace_the_accuracy_where_one_class_has_nearly_all_rows():
    estimate = {"value": 0.8, "low": 0.7, "high": 0.9}
    rare = {"class": "rare", "share": 0.06, "predicted": 0.0, "sensitivity": None, "precision": None, "auc": estimate}
    common = {**rare, "class": "common", "share": 0.94, "sensitivity": estimate, "precision": estimate}
    some = {**common, "class": "some", "share": 0.03}
    figures = {"log_loss": estimate, "classes": [rare, common, some]}
    text = overview_of(changed("label_proportions", estimated_performance=figures))
    assert "Estimated accuracy" not in text
    for sentence in (
        "Accuracy is not informative: 94.0 % of the rows are of class common.",
        "Class rare, 6.0 % of the rows: estimated AUC 0.800 (0.700 to 0.900); it is never predicted.",
        "80.0 % (70.0 % to 90.0 %) of its rows are found; 80.0 % (70.0 % to 90.0 %) of the rows predicted as such are",
        "Estimated log loss: 0.800 (0.700 to 0.900).",
    ):
        assert sentence in text
    common["share"] = 0.8
    text = overview_of(changed("label_proportions", estimated_performance=figures, diagnosis=[NEVER]))
    assert "Estimated accuracy" in text
    assert "'rare' is never predicted." in text


def test_groups_that_fit_poorly_are_named():
    worst = summary_of("label_proportions")["sets"][0]["worst"]
    assert [g["deviation"] for g in worst] == sorted((g["deviation"] for g in worst), reverse=True)
    poor = [g["group"] for g in worst if g["deviation"] > 3]
    assert f"standard deviations from the expected ones: {', '.join(poor)}." in overview_of(
        summary_of("label_proportions")
    )


NEVER = {"kind": "never_predicted", "message": "'rare' is never predicted", "fatal": False}


def test_next_steps_follow_the_findings_and_have_commands():
    def suggest(kind, *kinds, **changes):
        found = [{"kind": k, "message": "m", "fatal": False} for k in kinds]
        return [step.command for step in suggest_steps(changed(kind, diagnosis=found, **changes))]

    assert suggest("label_proportions")[0] == "unbag predict RUN NEW_ROWS.csv --out predictions.csv"
    files = "'people & <b>places</b>.csv' GROUPS.csv"
    exclude = suggest("label_proportions", "short_time", "answer_column", labels=None)
    assert exclude[:2] == [
        f"unbag fit {files} --exclude COLUMN --out NEW_RUN",
        f"unbag fit {files} --time-limit 3600 --out NEW_RUN",
    ]
    assert exclude[2] == f"unbag fit {files} --label COLUMN --out NEW_RUN"
    (threshold, *_) = suggest_steps(changed("label_proportions", diagnosis=[NEVER]))
    assert threshold.sentence.startswith("Choose a threshold")
    files = "unbag fit ROWS.csv GROUPS.csv"
    assert suggest("multiple_instance", "near_duplicates")[0] == f"{files} --subject COLUMN --out NEW_RUN"
    assert all(len(suggest(kind)) == len(set(suggest(kind))) == 3 for kind in RUNS)


def test_every_command_that_is_suggested_exists():
    known = {
        name: CliRunner(env={"COLUMNS": "300"}).invoke(app, [name, "--help"]).output for name in ("fit", "predict")
    }
    for rule in RULES:
        for option in re.findall(r"--[a-z-]+", rule.options):
            assert f"{option} " in known["predict" if "predict" in rule.options else "fit"]


@pytest.mark.parametrize(
    ("summary", "message"),
    [
        *(
            (other, "is not a summary of a run: it has no format")
            for other in (None, [], {}, {"format": "1"}, {"format": 0})
        ),
        ({"format": FORMAT + 1}, rf"format {FORMAT + 1}, .* reads format {FORMAT}; upgrade unbag"),
        ({"format": 1}, r"format 1, .*; run unbag fit again"),
        ({"format": FORMAT, "title": "x"}, "the summary is not one that unbag wrote: KeyError"),
    ],
)
def test_other_content_is_rejected(summary, message):
    with pytest.raises(ValueError, match=message):
        render(summary)
