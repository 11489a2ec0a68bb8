"""Pages in a browser: what is drawn, read, printed and requested."""

import base64
import io
import json
import re

import numpy as np
import pages
import pytest
from markup import MARKUP, SHOWN, poisoned

from hockeystick.certificate import number
from hockeystick.report.html.certificate import certificate_page
from hockeystick.report.html.comparison import comparison_page
from hockeystick.report.html.derived import page_of_claim
from hockeystick.report.html.sweep import sweep_page

WIDTHS = (360, 800, 1400)


@pytest.fixture(scope="module")
def addresses(tmp_path_factory):
    """The reports as files, by name."""
    about = pages.certificate()
    addendum, recomputed = pages.audited(), pages.recomputed(about)
    marked = certificate_page(poisoned(about), pages.with_strings(recomputed, MARKUP), [poisoned(addendum)])
    made = {
        "certificate": certificate_page(about, recomputed, [addendum]),
        "marked": marked,
        "composition": page_of_claim(pages.together(), pages.asked(pages.together())),
        "comparison": comparison_page(pages.comparison(), "a.json"),
        "sweep": sweep_page(pages.sweep(), "a.json"),
    }
    folder = tmp_path_factory.mktemp("reports")
    for name, page in made.items():
        (folder / f"{name}.html").write_text(page.html(), encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in made}


def resized(browser, width):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@pytest.mark.parametrize("name", ["certificate", "marked", "composition", "comparison", "sweep"])
def test_a_report_asks_for_nothing_complains_of_nothing_and_fits_its_width(browser, addresses, name):
    for width in WIDTHS:
        resized(browser, width)
        browser.get(addresses[name])
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"}
    assert asked == {addresses[name]}
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("name", ["certificate", "composition", "comparison", "sweep"])
def test_axe_finds_no_violation(browser, axe, addresses, name):
    """On a small light screen and on a large dark one."""
    for width, colours in ((360, "light"), (1400, "dark")):
        resized(browser, width)
        preferred = {"features": [{"name": "prefers-color-scheme", "value": colours}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", preferred)
        browser.get(addresses[name])
        browser.execute_cdp_cmd("Runtime.evaluate", {"expression": axe})  # past the policy, which is the page's own
        results = browser.execute_async_script(
            "const done = arguments[0];"
            "document.querySelectorAll('details').forEach((one) => { one.open = true; });"
            "axe.run().then((result) => done([result.passes.length, result.violations]));"
        )
        assert results[0] > 10
        assert [(violation["id"], violation["impact"], violation["nodes"][0]["html"]) for violation in results[1]] == []
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_markup_is_shown_and_not_run(browser, addresses):
    browser.get(addresses["marked"])
    assert browser.execute_script("return typeof hacked") == "undefined"
    assert browser.execute_script("return document.querySelectorAll('img, script:not([id]) ~ script').length") == 0
    shown = browser.execute_script("return document.querySelector('h1').textContent")
    assert shown == SHOWN
    drawn = browser.execute_script(
        "return [...document.querySelectorAll('svg text.row')].map((one) => one.textContent)"
    )
    assert drawn[0].startswith(SHOWN)


POINTS = """
const series = document.querySelectorAll('figure.plot')[arguments[0]].querySelector('g.series');
const numbers = (name) => series.querySelector(`path.${name}`).getAttribute('d').match(/-?[\\d.]+,-?[\\d.]+/g);
const points = (name) => numbers(name).map((pair) => pair.split(',').map(Number));
return [points('upper'), points('lower')];
"""
TABLE = """
const figure = document.querySelectorAll('figure.plot')[arguments[0]];
return [...figure.querySelectorAll('tr')].map((row) => [...row.cells].map((cell) => cell.textContent));
"""


@pytest.mark.parametrize("place", [0, 1])
def test_the_upper_line_lies_above_the_lower_one(browser, addresses, place):
    browser.get(addresses["certificate"])
    upper, lower = browser.execute_script(POINTS, place)
    assert len(upper) == len(lower) >= 11
    assert [x for x, _ in upper] == [x for x, _ in lower]
    tops, bottoms = [y for _, y in upper], [y for _, y in lower]
    assert all(top <= bottom for top, bottom in zip(tops, bottoms, strict=True))  # y grows downwards
    assert sum(top < bottom - 1.0 for top, bottom in zip(tops, bottoms, strict=True)) >= 5


def test_the_tables_say_what_was_computed_each_end_rounded_to_its_side(browser, addresses):
    about = pages.certificate()
    computed = pages.recomputed(about)
    browser.get(addresses["certificate"])
    head, *rows = browser.execute_script(TABLE, 0)
    assert head == ["series", "epsilon", "delta, at least", "delta, at most"]
    profile = computed.curve.profile
    for row, x, lower, upper in zip(rows, profile.x, profile.lower, profile.upper, strict=False):
        assert float(row[1]) == x
        assert [float(row[2]), float(row[3])] == [float(number(lower, up=False)), float(number(upper))]
    low, high = rows[profile.x.size :]
    assert [low[2], low[3], high[2], high[3]] == ["1e-5", "no upper bound", "no lower bound", "1e-5"]
    assert float(low[1]) <= about.epsilon.lower <= about.epsilon.upper <= float(high[1])
    assert browser.execute_script(TABLE, 3)[1:] == [
        ["tight", "1", "2.00001", ""],
        ["loose", "no lower bound", "3", ""],
        ["refused", "no lower bound", "no upper bound", "upper bound: not applicable: it has no analysis"],
    ]


def test_marks_of_intervals_point_into_them(browser, addresses):
    browser.get(addresses["comparison"])
    lower, upper = (
        browser.execute_script(f"return document.querySelector('path.end.{side}').getAttribute('d')")
        for side in ("lower", "upper")
    )
    at_lower, at_upper = (float(re.match(r"M([\d.]+),", path)[1]) for path in (lower, upper))
    assert at_lower < at_upper
    assert "l9,-7z" in lower
    assert "l-9,-7z" in upper


def test_numbers_are_rounded_to_their_side_as_in_python(browser, addresses):
    browser.get(addresses["certificate"])
    rng = np.random.default_rng(1)
    values = [*(10.0 ** rng.uniform(-12.0, 6.0, 400)).tolist(), 0.1 + 0.2, 0.3, 1.0, 9.999999999, 0.9999999, 99999.95]
    for side in ("upper", "lower"):
        texts = browser.execute_script(f"return arguments[0].map((one) => hockeystick.number(one, '{side}'))", values)
        for value, text in zip(values, texts, strict=True):
            assert float(text) >= value if side == "upper" else float(text) <= value, (side, value, text)
            assert abs(float(text) - value) <= 1.0001e-5 * value, (side, value, text)
            assert len(re.sub(r"e.*|[.]", "", text).lstrip("0")) <= 6


def test_the_points_are_read_by_keyboard(browser, addresses):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser.get(addresses["certificate"])
    body = browser.find_element(By.TAG_NAME, "body")
    for _ in range(20):
        body.send_keys(Keys.TAB)
        active = browser.switch_to.active_element
        if active.get_attribute("role") == "slider":
            break
    assert active.get_attribute("aria-label") == "deterministic bounds"
    active.send_keys(Keys.ARROW_RIGHT)
    assert active.get_attribute("aria-valuenow") == "2"
    text = active.get_attribute("aria-valuetext")
    assert text.startswith("epsilon 0.25, delta at least ")
    assert browser.find_element(By.CLASS_NAME, "readout").text == f"deterministic bounds: {text}"
    active.send_keys(Keys.END)
    assert active.get_attribute("aria-valuenow") == active.get_attribute("aria-valuemax") == "13"


def test_a_plot_that_is_drawn_again_keeps_its_table_open_and_its_focus(browser, addresses):
    browser.get(addresses["certificate"])
    assert browser.execute_script("""
        const container = document.querySelector('[data-plot]');
        const spec = JSON.parse(document.getElementById('plots').textContent)[0].spec;
        container.querySelector('details').open = true;
        container.querySelector('.reader').focus();
        hockeystick.plot(container, spec);
        return [container.querySelector('details').open, document.activeElement === container.querySelector('.reader')];
    """) == [True, True]


@pytest.mark.parametrize("size", [(8.27, 11.69), (8.5, 11.0)])
def test_a_certificate_prints_to_two_pages(browser, addresses, size):
    pypdf = pytest.importorskip("pypdf")
    browser.get(addresses["certificate"])
    wanted = {"printBackground": True, "paperWidth": size[0], "paperHeight": size[1]}
    printed = browser.execute_cdp_cmd("Page.printToPDF", wanted)["data"]
    document = pypdf.PdfReader(io.BytesIO(base64.b64decode(printed)))
    assert len(document.pages) <= 2
    text = "".join(page.extract_text() for page in document.pages)
    for heading in ("Claim", "Plots", "The claim holds if", "Audits", "What was run"):
        assert heading.lower() in text.lower()
