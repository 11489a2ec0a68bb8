"""Pages without a browser: what a stranger writes stays text, and the file needs nothing but itself."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pages
import pytest
from markup import MARKUP, SHOWN, poisoned

from hockeystick.report.html.assets import D3, asset, digest, embedded
from hockeystick.report.html.certificate import certificate_page
from hockeystick.report.html.comparison import comparison_page
from hockeystick.report.html.derived import page_of_claim, page_of_format_1
from hockeystick.report.html.sweep import sweep_page
from hockeystick.types import Kind


class Reader(HTMLParser):
    """The elements of a page with their attributes, and its texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.texts: list[str] = []
        self.inside: list[str] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.attributes: dict[str, str | None] = {}
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(name for name, _ in attributes)))
        self.attributes |= {f"{tag} {name}": value for name, value in attributes}
        self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside[:-1]

    def handle_data(self, text: str) -> None:
        last = self.inside[-1] if self.inside else ""
        {"script": self.scripts, "style": self.styles}.get(last, self.texts).append(text)


def certificate_html(*, markup: bool) -> str:
    about = pages.certificate()
    recomputed, addendum = pages.recomputed(about), pages.audited()
    if markup:
        about, addendum, recomputed = poisoned(about), poisoned(addendum), pages.with_strings(recomputed, MARKUP)
    return certificate_page(about, recomputed, [addendum]).html()


def comparison_html(*, markup: bool) -> str:
    comparison = pages.comparison()
    return comparison_page(poisoned(comparison) if markup else comparison, MARKUP if markup else "a.json").html()


def composition_html(*, markup: bool) -> str:
    claim = pages.together()
    recomputed = pages.asked(claim)
    if markup:
        claim, recomputed = poisoned(claim), replace(recomputed, unverified=MARKUP, left_out=(MARKUP,))
    return page_of_claim(claim, recomputed).html()


def tuning_html(*, markup: bool) -> str:
    claim = pages.best()
    return page_of_claim(poisoned(claim) if markup else claim, pages.asked(claim)).html()


def format_1_html(*, markup: bool) -> str:
    about = pages.of_format_1()
    recomputed = pages.recomputed(about)
    if markup:
        about, recomputed = poisoned(about), pages.with_strings(recomputed, MARKUP)
    return page_of_format_1(about, recomputed).html()


def sweep_html(*, markup: bool) -> str:
    cells = pages.sweep()
    if markup:
        cells = [
            cell.model_copy(update={"fields": {f"{MARKUP}{k}": value for k, value in enumerate(cell.fields.values())}})
            for cell in cells
        ]
        cells = [cell.model_copy(update={"status": MARKUP}) for cell in cells]
    return sweep_page(cells, MARKUP if markup else "a.json").html()


DERIVED = [composition_html, tuning_html, format_1_html]
PAGES = [certificate_html, comparison_html, *DERIVED, sweep_html]


@pytest.mark.parametrize("html", PAGES)
def test_markup_in_every_string_adds_no_element_and_no_attribute(html):
    plain, marked = Reader(html(markup=False)), Reader(html(markup=True))
    if html in DERIVED:  # equal sentences become one row
        assert set(marked.elements) == set(plain.elements)
    else:
        assert marked.elements == plain.elements
    assert SHOWN in "".join(marked.texts)
    assert MARKUP not in "".join(marked.texts)


@pytest.mark.parametrize("html", PAGES)
def test_the_data_of_the_plots_cannot_leave_its_script(html):
    page = html(markup=True)
    data = next(text for text in Reader(page).scripts if text.startswith("["))
    assert not set("<>&\u2028\u2029\u202e") & set(data)
    assert json.loads(data)
    assert page.count("<script") == page.count("</script>") == 2


def test_the_policy_allows_the_inline_script_and_style_of_the_page_and_nothing_else():
    reader = Reader(certificate_html(markup=True))
    policy = reader.attributes["meta content"] or ""
    content = re.search(r'Content-Security-Policy" content="([^"]*)"', certificate_html(markup=True))
    assert content is not None
    policy = content[1].replace("&#39;", "'")
    (script,), (style,) = [text for text in reader.scripts if not text.startswith("[")], reader.styles
    assert policy == (
        f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; connect-src 'none'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert not [element for element in reader.elements if {"style", "onclick", "onload"} & set(element[1])]


def test_a_page_names_no_other_place():
    reader = Reader(certificate_html(markup=False))
    assert not [
        element for element in reader.elements if element[0] in {"link", "img", "iframe", "object", "base", "form"}
    ]
    assert reader.attributes["a href"] == "#content"
    for name in ("plots.js", "report.js", "style.css"):
        assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttp|import\(", asset(name)), name


def test_the_library_is_there_with_its_licence():
    licence = asset("vendor/LICENSE")
    assert "Permission to use, copy, modify" in licence
    for name in D3:
        version = re.search(rf"^d3-{name} ([\d.]+): Copyright .* Mike Bostock$", licence, re.MULTILINE)
        assert version is not None, name
        assert f"v{version[1]} " in asset(f"vendor/d3-{name}.min.js").splitlines()[0]


def test_data_that_is_not_finite_is_refused():
    with pytest.raises(ValueError):
        embedded([float("inf")])


def test_bounds_that_may_fail_say_with_what_probability():
    """A billionth is not rounded away, and never down."""
    comparison = pages.comparison()
    sampled = comparison.bounds[0].model_copy(update={"kind": Kind.MONTE_CARLO, "confidence": 1.0 - 1.2345671e-9})
    page = comparison_page(comparison.model_copy(update={"bounds": (sampled, *comparison.bounds[1:])}), "a.json").html()
    said = [float(text) for text in re.findall(r"fails with probability at most ([-.e\d]+)", page)]
    assert len(said) == 2  # in the plot and in the table
    assert all(1.0 - sampled.confidence <= value <= 1.235e-9 for value in said)


def test_what_should_not_be_published_can_be_left_out():
    about = pages.certificate()
    computed = pages.recomputed(about)
    assert "examples 100" in certificate_page(about, computed).html()
    assert "examples 100" not in certificate_page(about, computed, public=True).html()


def test_a_refuted_assumption_stands_at_the_top():
    about = pages.certificate()
    audited = pages.audited()
    page = certificate_page(about, pages.recomputed(about), [audited])
    assert [notice.tone for notice in page.notices] == ["good"]
    first, *others = audited.checks
    refuted = audited.model_copy(
        update={"checks": (first.model_copy(update={"outcome": type(first.outcome)("refuted")}), *others)}
    )
    page = certificate_page(about, pages.recomputed(about), [refuted])
    assert [notice.tone for notice in page.notices] == ["bad", "good"]
    assert first.text in page.notices[0].text


@pytest.mark.parametrize("name", ["profile", "trade_off"])
def test_the_bounds_of_a_curve_keep_their_sides(name):
    about = pages.certificate()
    computed = pages.recomputed(about)
    page = certificate_page(about, computed)
    plots = [plot.spec for block in page.blocks for plot in getattr(block, "plots", ())]
    series = plots[0 if name == "profile" else 1]["series"][0]
    curve = getattr(computed.curve, name)
    assert series["lower"] == curve.lower.tolist()
    assert series["upper"] == curve.upper.tolist()


def test_the_claim_is_drawn_as_the_certificate_says_it():
    about = pages.certificate()
    page = certificate_page(about, pages.recomputed(about))
    plots = [plot.spec for block in page.blocks for plot in getattr(block, "plots", ())]
    claim = plots[0]["series"][1]
    assert claim["x"] == [about.epsilon.lower, about.epsilon.upper]
    assert (claim["lower"], claim["upper"]) == ([1e-5, None], [None, 1e-5])
    rows = {row["name"]: (row["lower"], row["upper"]) for row in plots[3]["rows"]}
    assert rows == {"tight": (1.0000009, 2.0000001), "loose": (None, 3.0), "refused": (None, None)}


def test_a_claim_about_several_runs_is_drawn_as_it_says():
    claim = pages.together()
    computed = pages.asked(claim)
    page = page_of_claim(claim, computed)
    assert page.title.startswith("All 2 runs together, on the same data, are (")
    curve, intervals = (plot.spec for block in page.blocks for plot in getattr(block, "plots", ()))
    whole, own = curve["series"]
    assert (whole["x"], whole["lower"][0], whole["upper"][0]) == ([1e-6, 1e-5], 1.0000009, 2.0000001)
    assert (own["lower"], own["upper"]) == ([claim.epsilon.lower], [claim.epsilon.upper])
    assert [(row["lower"], row["upper"]) for row in intervals["rows"]] == [
        (claim.epsilon.lower, claim.epsilon.upper),
        (pages.certificate().epsilon.lower, pages.certificate().epsilon.upper),
    ]
    must = [row for block in page.blocks if getattr(block, "heading", "") == "the claim holds if" for row in block.rows]
    asked = [*claim.requirements, *pages.certificate().requirements]
    assert [text for _, text in must] == asked


def test_a_sweep_draws_a_curve_for_each_combination_of_the_other_fields():
    page = sweep_page(pages.sweep(), "a.json")
    (spec,) = (plot.spec for block in page.blocks for plot in getattr(block, "plots", ()))
    assert {series["name"]: series["x"] for series in spec["series"]} == {
        "data.epochs 1": [1.0, 2.0, 4.0],
        "data.epochs 2": [1.0, 2.0],
    }
    for series in spec["series"]:
        assert all(lower < upper for lower, upper in zip(series["lower"], series["upper"], strict=True))
    assert "5 of 6 cells are certified" in page.notices[0].text
