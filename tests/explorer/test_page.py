"""The page in headless Chromium: it asks, shows, keeps the plan in the address, and works without a mouse."""

import time
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("selenium")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from hockeystick.cli.main import main
from hockeystick.plan import Plan

PATIENCE = 120.0
FRAGMENT = (
    "ask=epsilon&data.num_examples=50000&data.batch_size=500&data.epochs=2&target.epsilon=2&target.delta=0.00001"
    "&noise_multiplier=1.1&sampler.kind=poisson&strategy.kind=identity"
)


class Page:
    """The explorer in a browser."""

    def __init__(self, browser, address: str, fragment: str = FRAGMENT) -> None:
        self.browser = browser
        browser.get(f"{address}#{fragment}")
        self.until(lambda: self.answers and all(self.settled(one) for one in self.answers))

    def until(self, holds):
        """Wait for a condition, and return what it said."""
        last = None
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            last = holds()
            if last:
                return last
            time.sleep(0.05)
        raise AssertionError(self.find("main").text)

    def find(self, selector):
        return self.browser.find_element("css selector", selector)

    def all(self, selector):
        return self.browser.find_elements("css selector", selector)

    def button(self, text, within="body"):
        return next(one for one in self.all(f"{within} button") if one.text == text)

    @staticmethod
    def settled(text):
        return text.startswith(("epsilon at most", "noise multiplier", "No answer"))

    @property
    def answers(self):
        return [one.text for one in self.all(".card > .answer:not(.old)")]

    @property
    def fragment(self):
        return self.browser.current_url.split("#")[1]

    def complaints(self):
        return [one["message"] for one in self.browser.get_log("browser") if "favicon" not in one["message"]]


@pytest.fixture
def page(server, browser):
    opened = Page(browser, server[1])
    yield opened
    assert opened.complaints() == []


def test_a_slider_changes_the_answer_and_the_address_which_a_reload_restores(page):
    page.until(lambda: page.all("#curves figure"))  # the answer is final
    before, (answer,) = page.fragment, page.answers
    assert "token" not in page.browser.current_url  # the address can be shared
    slider = page.find("input[aria-label='noise multiplier, slider']")
    slider.send_keys("\ue012" * 3)  # the left arrow: no mouse is needed
    page.until(lambda: page.answers and float(page.answers[0].split()[-1]) > float(answer.split()[-1]))
    page.until(lambda: page.fragment != before)
    here = page.fragment
    assert "noise_multiplier=1.1&" not in here
    page.until(lambda: page.all("#curves figure"))
    page.browser.refresh()
    page.until(lambda: page.answers and page.settled(page.answers[0]))
    assert page.fragment == here
    assert page.find("input[data-field=noise_multiplier]").get_attribute("value") != "1.1"


SLOW = """
const [fetched, slow] = [window.fetch, arguments[0]];
window.fetch = async (...asked) => {
  const reply = await fetched(...asked);
  if (asked[0] === slow && asked[1].method === "POST") await new Promise((done) => setTimeout(done, 1500));
  window.replied = (window.replied ?? 0) + (asked[0] === slow && asked[1].method === "POST");
  return reply;
};"""
"""Makes one kind of question slow, and counts its replies."""


def test_a_certificate_of_the_plan_before_is_not_shown(page):
    """The plan changes while the server has not yet said that the certificate has begun."""
    page.until(lambda: page.all("#curves figure"))
    page.browser.execute_script(SLOW, "/api/jobs")
    page.button("Certify").click()
    page.find("input[aria-label='noise multiplier, slider']").send_keys("\ue012" * 3)
    page.until(lambda: page.browser.execute_script("return window.replied"))
    page.until(lambda: page.button("Certify").is_enabled())
    time.sleep(1.5)  # a certificate of this plan takes less
    assert not page.find(".certified").is_displayed()


def test_what_is_still_of_the_plan_before_is_marked(page):
    page.until(lambda: page.all("#curves figure"))
    assert "old" not in page.find("#curves").get_attribute("class")
    page.browser.execute_script(SLOW, "/api/quick")
    page.find("input[aria-label='noise multiplier, slider']").send_keys("\ue012" * 3)
    assert len(page.all("#curves.old, #comparison.old")) == 2
    page.until(lambda: not page.all("#curves.old, #comparison.old"))


def test_an_impossible_plan_gets_one_sentence(page):
    number = page.find("input[data-field=batch_size]")
    number.clear()
    number.send_keys("-3")
    page.until(lambda: page.answers == ["No answer"])
    assert "'data.batch_size' field must be at least" in page.find(".card .note").text
    assert all("status of 422" in one for one in page.complaints())  # Chromium logs the refusals


def test_the_unit_is_part_of_the_plan(page):
    """Protecting users with two examples costs more than protecting examples, and the address says so."""
    from selenium.webdriver.support.select import Select

    def bound():
        return float(page.answers[0].split()[-1])

    page.until(lambda: page.all("#curves figure"))
    alone = bound()
    Select(page.find("#unit select")).select_by_value("user")
    page.until(lambda: page.answers and bound() > alone)
    page.until(lambda: "unit.kind=user&unit.examples_per_user=2" in page.fragment)
    page.until(lambda: page.all("#curves figure"))
    page.browser.refresh()
    page.until(lambda: page.answers and page.settled(page.answers[0]))
    assert page.find("#unit input[data-field=examples_per_user]").get_attribute("value") == "2"
    Select(page.find("#unit select")).select_by_value("example")
    page.until(lambda: "unit." not in page.fragment)
    page.until(lambda: page.answers and bound() <= alone * 1.01)


def test_four_mechanisms_are_compared_with_the_keyboard_alone(page):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    def press(*keys):
        ActionChains(page.browser).send_keys(*keys).perform()

    def focused():
        return page.browser.switch_to.active_element

    page.browser.execute_script("document.activeElement.blur()")
    for kind in ("random allocation", "balls in bins", "deterministic"):
        for _ in range(60):
            press(Keys.TAB)
            if focused().get_attribute("id") == "add":
                break
        press(Keys.ENTER)
        page.until(lambda: focused().tag_name == "select")
        press(kind)
    assert not page.find("#add").is_enabled()
    page.until(lambda: len(page.answers) == 4 and all(page.settled(one) for one in page.answers))
    page.until(lambda: len(page.all("#comparison tbody tr")) == 4)
    page.until(lambda: len(page.all("#curves .series")) == 4)
    assert "4.sampler.kind=deterministic" in page.fragment
    assert len(set(page.answers)) == 4
    for _ in range(60):
        press(Keys.TAB)
        if focused().text == "Remove mechanism 4":
            break
    press(Keys.ENTER)
    page.until(lambda: len(page.all(".card")) == 3)


def test_plan_and_certificate_are_downloaded_and_verify(page, tmp_path, capsys):
    page.button("Download plan").click()
    page.until(lambda: (tmp_path / "plan.toml").exists())
    plan = Plan.parse(tomllib.loads((tmp_path / "plan.toml").read_text()))
    assert plan.mechanism().noise_multiplier == 1.1
    page.button("Certify").click()
    page.until(lambda: page.find(".certified").text.startswith("Certified"))
    page.button("Download certificate").click()
    path = tmp_path / "plan.certificate.json"
    page.until(path.exists)
    for command, more in (("verify", ()), ("epsilon", ("--out", str(tmp_path / "own.json")))):
        with pytest.raises(SystemExit) as ended:
            main([command, str(path if command == "verify" else tmp_path / "plan.toml"), *more])
        assert ended.value.code == 0
    assert "verified" in capsys.readouterr().out
    assert path.read_text() == Path(tmp_path / "own.json").read_text()


def test_a_certificate_is_cancelled(server, browser):
    long = FRAGMENT.replace("strategy.kind=identity", "strategy.kind=dense&strategy.epochs=10")
    for old, new in (
        ("=poisson", "=balls_in_bins"),
        ("batch_size=500", "batch_size=2000"),
        ("epochs=2&", "epochs=10&"),
    ):
        long = long.replace(old, new, 1)
    browser.get(f"{server[1]}#{long}")
    page = Page.__new__(Page)
    page.browser = browser
    page.until(lambda: page.all(".card"))
    page.button("Certify").click()
    page.until(lambda: any(one.is_displayed() for one in page.all("progress")))
    page.button("Cancel").click()
    page.until(lambda: "Cancelled." in page.find(".card").text)
    assert page.button("Certify").is_enabled()


def test_without_the_token_the_page_says_so(server, browser):
    browser.get(server[1].split("?")[0])
    page = Page.__new__(Page)
    page.browser = browser
    page.until(lambda: "token is missing" in page.find("#status").text)


@pytest.mark.parametrize("width", [380, 800, 1280])
def test_accessible_at_three_widths(server, browser, axe, width):
    """No serious or critical violation of axe-core, and nothing wider than the window."""
    browser.set_window_size(width, 900)
    page = Page(browser, server[1], FRAGMENT + "&2.sampler.kind=random_allocation&2.strategy.kind=identity")
    page.until(lambda: len(page.all("#curves .series")) == 2)
    browser.execute_script(axe)
    found = browser.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    serious = [
        (one["id"], one["nodes"][0]["html"]) for one in found["violations"] if one["impact"] in ("serious", "critical")
    ]
    assert serious == []
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    assert page.complaints() == []
