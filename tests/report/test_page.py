"""The page: whole, harmless, readable without its pictures, and the same every time."""

from __future__ import annotations

import copy
import json
import re
import unicodedata
from functools import cache
from html import unescape
from html.parser import HTMLParser

import pytest
from matplotlib.layout_engine import ConstrainedLayoutEngine
from report_runs import HOSTILE, RUNS, summary_of

from unbag._utils.pages.tables import Cell
from unbag._utils.terminal import UNSAFE
from unbag.report import FORMAT, plots, render
from unbag.report.page_elements import Picture

# Pairs and triplets drawn at random leave some rows out.
pytestmark = pytest.mark.filterwarnings("ignore:the groups hold")

SECTIONS = ["quality", "outcome-0", "balance", "importance", "unsure", "careful", "data", "training", "settings"]


class Page(HTMLParser):
    """What is on a page: elements with their attributes, and the text of each kind of element."""

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

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.inside.pop() == tag  # every element is closed, in order

    def handle_data(self, data):
        for tag in set(self.inside):
            self.texts[tag][-1] += data

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@cache
def html_of(kind: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        if kind != "several":  # where the parts of a plot are put takes half of the time of drawing it
            patch.setattr(ConstrainedLayoutEngine, "execute", lambda *_: None)
        return render(summary_of(kind))


@pytest.fixture(params=RUNS)
def page(request):
    return Page(html_of(request.param))


@pytest.fixture
def no_pictures(monkeypatch):
    """Leave plots out where only words are looked at: drawing takes most of the time."""
    drawn = ("curve", "bars", "two_histograms", "against", "reliability", "balance", "confusion")
    for name in (*drawn, "yardsticks", "importance"):
        monkeypatch.setattr(plots, name, lambda *_, **__: "<svg></svg>")


def test_nothing_is_loaded(page):
    for tag, attributes in page.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "image", "base", "form", "audio", "video")
        for name, value in attributes.items():
            assert name != "src"
            if name in ("href", "xlink:href"):
                assert value.startswith("#")
            assert "http" not in (value or "") or name == "http-equiv"
            assert not name.startswith("on")
    (policy,) = [one["content"] for one in page.attributes("meta") if "http-equiv" in one]
    assert policy.startswith("default-src 'none'")
    assert "url(" not in page.texts["style"][0]
    assert "@import" not in page.texts["style"][0]


def test_every_picture_has_words(page):
    drawn, captions = page.attributes("svg"), page.texts["figcaption"]
    assert len(drawn) == len(captions) == len(page.attributes("figure")) >= 4
    for svg in drawn:
        assert svg["role"] == "img"
        assert len(svg["aria-label"]) > 20
        assert "width" not in svg  # so that it fits any screen
        assert svg["viewbox"]
    for caption in captions:
        assert len(caption) > 20
        assert caption.endswith(".")
        assert "None" not in caption
        assert "nan" not in caption


def test_all_sections_are_there_and_linked(page):
    ids = [one["id"] for one in page.attributes("section")]
    assert [one for one in ids if one in SECTIONS] == SECTIONS
    assert [one["href"] for one in page.attributes("a")] == [f"#{one}" for one in ids]
    given = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(given) == len(set(given))
    for heading in ("What was learned", "How good is it", "What to be careful about"):
        assert heading in page.texts["h2"][:4]


def test_tables_are_marked_up_for_sorting(page):
    tables = page.attributes("table")
    assert len(tables) == len(page.texts["caption"]) >= 5
    assert len(page.attributes("th")) == len(page.attributes("button"))
    assert all(one["scope"] == "col" for one in page.attributes("th"))
    for cell in page.attributes("td"):
        if cell.get("class") == "number" and "data-sort" in cell:
            float(cell["data-sort"])
    assert all("data-sort" in cell for cell in page.attributes("td") if cell.get("class") != "number")


def test_a_phone_and_the_dark_are_thought_of(page):
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.attributes("meta")
    assert "prefers-color-scheme: dark" in page.texts["style"][0]
    assert page.elements[0] == ("html", {"lang": "en"})
    assert "scroll sideways" in page.texts["style"][0]
    assert "@media print" in page.texts["style"][0]


def test_pictures_come_before_tables(page):
    order = [tag for tag, _ in page.elements if tag in ("section", "figure", "table")]
    for one in " ".join(order).split("section")[1:]:
        assert one.split() == sorted(one.split())


@pytest.mark.usefixtures("no_pictures")
def test_importance_is_told_in_words():
    columns = [
        {"column": "age", "drop": 0.5, "error": 0.1},
        {"column": "income", "drop": 0.3, "error": 0.1},
        {"column": "noise", "drop": -0.01, "error": 0.02},
    ]
    found = changed("multiple_instance", importance__columns=columns, columns=40)
    text = render(found)
    assert "The most important column is age: shuffled, it loses 0.500 per group. 2 columns matter clearly; the" in text
    assert "Tried were 3 of 40 columns" in text
    found["importance"]["columns"] = columns[2:]
    assert "none matters clearly" in render(found)
    found["importance"]["columns"] = [{"column": "age", "drop": None, "error": None}]
    assert "shuffled, it makes the model rule out some groups" in render(found)
    found["importance"] = None
    assert "Groups are too large" in render(found)
    found["columns"] = 0
    assert 'id="importance"' not in render(found)


@pytest.mark.usefixtures("no_pictures")
def test_warnings_of_the_files_are_in_the_report_once():
    told = "the column is the same in all rows"
    warned = {"severity": "warning", "message": told, "file": "people.csv", "row": None, "column": "age"}
    found = {"kind": "few_groups", "message": "there are few groups", "fatal": False}
    noted = {**warned, "severity": "note", "message": "there are few groups (--option)", "column": None}
    page = Page(render(changed("multiple_instance", problems=[noted, warned], diagnosis=[found])))
    assert "The files gave 1 warning." in page.texts["p"]
    assert [told in cell for cell in page.texts["td"]].count(True) == 1
    assert not any("few groups (" in cell for cell in page.texts["td"])


def test_a_summary_of_an_earlier_version_is_rendered():
    summary = copy.deepcopy(summary_of("Majority"))
    for name in ("columns", "importance", "least_confident", "problems"):
        del summary[name]
    for one in summary["sets"]:
        del one["unsure"]
    assert "Where the model is unsure" in render(summary)


def test_names_cannot_break_out():
    html = html_of("label_proportions")
    page = Page(html)
    assert len(page.attributes("script")) == 1
    assert "<b>" not in html
    for name in HOSTILE:
        assert name in page.texts["td"]
        assert plots.short(name) in "".join(page.texts["svg"])
    hostile = {**summary_of("multiple_instance"), "title": '"><script>x</script>'}
    page = Page(render(hostile))
    assert len(page.attributes("script")) == 1
    assert page.texts["h1"] == page.texts["title"] == ['"><script>x</script>']


def test_control_and_bidirectional_characters_are_escaped():
    hostile = "a\x1b[2J\x9b\x00\u202e\u2066\u2028"
    text = json.dumps(summary_of("label_proportions"))
    page = render(json.loads(text.replace(json.dumps("日本の")[1:-1], json.dumps(hostile)[1:-1])))
    assert r"a\x1b[2J\x9b\x00\u202e\u2066\u2028" in Page(page).texts["td"]
    assert {unicodedata.category(character) for character in page.replace("\n", "")}.isdisjoint(UNSAFE)


def test_colours_are_those_of_the_page():
    html = html_of("label_proportions")
    drawn = "".join(re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL))
    assert "currentColor" in drawn
    assert "var(--first)" in drawn
    assert not re.search(r"#1011|#000000|#ffffff", drawn)


def test_the_same_summary_gives_the_same_page_also_after_json():
    summary = summary_of("several")
    assert html_of("several") == render(json.loads(json.dumps(summary)))


def test_labels_and_several_sets_have_sections_of_their_own():
    ids = [one["id"] for one in Page(html_of("several")).attributes("section")]
    assert {"labels", "outcome-0", "outcome-1"} <= set(ids)
    assert ids.index("labels") == 1  # they tell how good the model is
    assert 'id="labels"' not in html_of("multiple_instance")


@pytest.mark.usefixtures("no_pictures")
def test_the_comparison_of_methods_is_shown_where_there_is_one():
    summary = {**summary_of("several"), "comparison": [{"method": "a <method>", "accuracy": 0.75, "seconds": 3.0}]}
    page = Page(render(summary))
    assert {"a <method>", "75.0 %"} <= set(page.texts["td"])
    assert "comparison" in [one["id"] for one in page.attributes("section")]
    without = {**summary, "labels": None}
    assert "smaller differences" not in render(without)


def test_sentences_follow_the_numbers():
    text = html_of("label_proportions")
    assert "Judged on 8 groups that were held out from training; so few make the figures rough." in text
    assert "It learned from 80 groups of 3 to 7 rows" in text
    assert "none was held out" in html_of("labels")
    pairs = html_of("pairwise_similarity")
    assert "which is which is arbitrary" in pairs
    assert "predictions were matched with labels so that they agree best" in pairs
    assert "their rows are also in pairs that were trained on" in pairs
    assert "These observations do not tell how frequent each class is." in pairs
    assert "do not tell the order of the classes from its reverse" in html_of("ordinal_triplet")


def changed(kind, **changes):
    """Return a summary with some of its numbers replaced, by paths of names joined by two underscores."""
    summary = copy.deepcopy(summary_of(kind))
    for path, value in changes.items():
        *way, last = [int(part) if part.isdigit() else part for part in path.split("__")]
        at = summary
        for part in way:
            at = at[part]
        at[last] = value
    return summary


@pytest.mark.usefixtures("no_pictures")
def test_what_goes_wrong_is_said():
    text = render(changed("multiple_instance", sets__0__likelihood__impossible=2, sets__0__confidence__without=5))
    assert "The model rules out what was observed of 2 bags" in text
    assert "5 members of bags" in text
    text = render(changed("multiple_instance", sets__0__likelihood__model=None, sets__0__likelihood__trivial=None))
    assert "rules out what was observed of every bag" in text
    text = render(changed("multiple_instance", sets__0__likelihood__trivial=0.0))
    assert "worse than a constant prediction" in text
    estimate, own = {"value": 0.61, "low": 0.55, "high": 0.66}, {"log_likelihood": -2.0, "accuracy": 0.62}
    worse = {"estimated_accuracy": estimate, "sets__0__own_share": own}
    assert (
        "no better than each group&#39;s own share: its accuracy on new rows is estimated at 61\N{NO-BREAK SPACE}%"
        in (text := render(changed("label_proportions", **worse)))
    )
    assert text.index("own share: its") < text.index("Estimated accuracy on new rows: 61\N{NO-BREAK SPACE}% (55 to")
    assert {"this model, estimated", "most frequent class of its group"} <= set(Page(text).texts["td"])
    frequent = max(summary_of("label_proportions")["balance"], key=lambda one: one["implied"])
    share = f"{100 * frequent['implied']:.0f}\N{NO-BREAK SPACE}%"
    assert f"Calling all rows {frequent['class']} would have {share}." in unescape(text)
    own["accuracy"] = 0.6
    assert "own share: its" not in render(changed("label_proportions", **worse))
    model = summary_of("label_proportions")["sets"][0]["likelihood"]["model"]
    for match, said in ((model, True), (model - 0.5, False)):
        text = render(changed("label_proportions", sets__0__match=match))
        assert ("no better than the match of mean predictions to proportions" in text) is said
        assert "A network that matches the mean prediction of each group with its proportions has" in text
    itself = [{"model": "mean_proportions", "score": model, "weight": 1.0}]
    text = render(changed("label_proportions", sets__0__match=model, training__candidates=itself))
    assert "no better than the match" not in text
    text = render(changed("multiple_instance", diagnosis=[{"kind": "x", "message": "it is <dark>", "fatal": False}]))
    assert "It is &lt;dark&gt;." in text
    text = render(changed("multiple_instance", training__history__0__loss=None, training__epochs=900))
    assert "30 of 900 epochs, spread evenly" in text
    best = summary_of("multiple_instance")["training"]["best_epoch"]
    text = render(changed("multiple_instance", **{f"training__history__{best}__score": None}))
    assert "Held-out groups chose the epoch." in text
    text = render(
        changed("labels", training__history=[{"epoch": 0, "phase": "likelihood", "loss": None, "score": None}])
    )
    assert "The loss was no number in any epoch." in text


@pytest.mark.usefixtures("no_pictures")
def test_an_early_end_and_a_late_best_epoch_are_said():
    assert "stopped before 500 because nothing improved" in render(changed("Majority", training__most_epochs=500))
    text = render(changed("Majority", training__best_epoch=29))
    assert "training for more epochs may help" in text
    converged = {"training__best_epoch": 29, "training__most_epochs": 500}
    assert "may help" not in render(changed("Majority", **converged))
    assert "a longer time limit may help" in render(changed("Majority", **converged, settings__time_limit=60.0))


@pytest.mark.usefixtures("no_pictures")
def test_many_classes_are_not_all_drawn():
    row = {"class": "c", "predicted": 0.01, "called": 0.01, "known": 0.01, "implied": None}
    text = render(
        changed("ordinal_rank", balance=[{**row, "class": f"c{n}"} for n in range(60)], labels__confusion=None)
    )
    assert "Drawn are the 25 most frequent of 60 classes." in text
    assert "is too large to draw" in text


@pytest.mark.usefixtures("no_pictures")
def test_no_mistakes():
    assert "There are no mistakes." in render(changed("ordinal_rank", labels__mistakes=[]))


@pytest.mark.usefixtures("no_pictures")
def test_images_and_many_features_are_described():
    text = render(changed("multiple_instance", data__input_shape=[1, 8, 8]))
    assert "images of 1 by 8 by 8" in text
    text = render(changed("multiple_instance", data__feature_names=[f"f{n}" for n in range(40)]))
    assert "f29 and 10 more" in text


@pytest.mark.parametrize("summary", [None, [], {}, {"format": "1"}, {"format": True}, {"format": 0}])
def test_what_is_no_summary_is_refused(summary):
    with pytest.raises(ValueError, match="this is no summary of a run: it names no format"):
        render(summary)


def test_a_later_format_and_missing_parts_are_refused():
    with pytest.raises(ValueError, match=rf"later version of unbag, in format {FORMAT + 1}; .* upgrade unbag"):
        render({"format": FORMAT + 1})
    with pytest.raises(ValueError, match="the summary is not as unbag writes it: KeyError"):
        render({"format": FORMAT, "title": "x"})


def test_a_picture_escapes_what_it_shows():
    assert (
        'aria-label="&lt;a&gt; &quot;b&quot; 5 %"' in Picture("<svg><text>5 %</text></svg>", '<a> "b" 5 %', "").markup
    )
    assert Cell("x").value is None


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model": -45059576.0}, "worse than a constant prediction: log-likelihood \u221245,059,576 per bag against"),
        ({"impossible": 2}, "and it rules out what was observed of 2 more bags"),
        ({"model": None, "trivial": None, "impossible": 9}, "rules out what was observed of every bag"),
    ],
)
def test_a_model_that_is_worse_than_a_constant_one_is_not_praised(change, sentence):
    good = render(summary_of("multiple_instance"))
    assert "Do not rely on it" not in good
    assert "better than a constant prediction" in good
    text = render(changed("multiple_instance", **{f"sets__0__likelihood__{name}": to for name, to in change.items()}))
    first, *others = re.findall(r'<div class="overview">\s*<div>\s*<h2>(.*?)</h2>\s*<p>(.*?)</p>', text, re.DOTALL)[0]
    assert first == "Warning"
    assert sentence in others[0]
    assert "Do not rely on it: train for longer or with a lower learning rate" in others[0]
    assert "better than a constant prediction" not in text
