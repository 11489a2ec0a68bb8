"""The page in headless Chromium: it asks, shows, keeps the plan in the address, and works without a mouse."""

import time
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("selenium")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from hockeystick.certificate import Certificate
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
        self.until(lambda: self.answers and all(self.settled(answer) for answer in self.answers))

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
        return next(button for button in self.all(f"{within} button") if button.text == text)

    @staticmethod
    def settled(text):
        return text.startswith(("epsilon at most", "noise multiplier", "No answer"))

    @property
    def answers(self):
        return [answer.text for answer in self.all(".card > .answer:not(.old)")]

    @property
    def fragment(self):
        return self.browser.current_url.split("#")[1]

    def complaints(self):
        return [entry["message"] for entry in self.browser.get_log("browser") if "favicon" not in entry["message"]]


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
    said = page.find(".card .note").text
    assert said.startswith("“batch (expected)” must be at least")
    page.until(lambda: said in page.find("#status").get_attribute("textContent"))
    assert all("status of 422" in complaint for complaint in page.complaints())  # Chromium logs the refusals


def test_an_error_stands_beside_its_field(page):
    """The sentence belongs to the input for those who cannot see it too, and leaves with the error."""
    number = page.find("input[data-field=batch_size]")
    number.clear()
    number.send_keys("60000")
    page.until(lambda: page.answers == ["No answer"])
    (problem,) = page.all(".problem")
    assert problem.text == (
        "“batch (expected)” must be at most examples = 50000. Got 60000 instead; “batch (expected)” = 50000 would do."
    )
    assert number.get_attribute("aria-invalid") == "true"
    assert number.get_attribute("aria-describedby") == problem.get_attribute("id")
    assert problem.find_element("xpath", "..").find_elements("css selector", "input")[1] == number
    number.clear()
    number.send_keys("600")
    page.until(lambda: page.answers and page.answers != ["No answer"])
    assert page.all(".problem") == page.all("[aria-invalid]") == page.all("[aria-describedby]") == []
    assert all("status of 422" in complaint for complaint in page.complaints())


def test_an_error_of_one_mechanism_stands_in_it(server, browser):
    """The second has batches that must be whole; what is wrong with it is not shown in the first."""
    page = Page(
        browser,
        server[1],
        FRAGMENT + "&2.sampler.kind=b_min_sep&2.sampler.min_sep=200&2.strategy.kind=identity",
    )
    page.until(lambda: len(page.answers) == 2 and page.answers[1] == "No answer")
    (problem,) = page.all("#mechanisms > fieldset:nth-child(2) .problem")
    assert problem.text.startswith("“steps between participations” must be at most")
    assert len(page.all(".problem")) == 1
    assert page.answers[0].startswith("epsilon at most")


def test_the_length_of_a_run_is_given_in_epochs_or_steps(page):
    """Batches of a hundredth of the data: two epochs are 200 steps, and have the same answer."""
    from selenium.webdriver.support.select import Select

    page.until(lambda: page.all("#curves figure"))
    before = page.answers
    Select(page.find("[data-field=length]")).select_by_value("steps")
    assert page.find("input[data-field=steps]").get_attribute("value") == "200"
    page.until(lambda: "data.steps=200" in page.fragment)
    assert "epochs" not in page.fragment
    page.until(lambda: page.answers == before)
    number = page.find("input[data-field=steps]")
    number.clear()
    number.send_keys("150")
    page.until(lambda: "150 steps" in page.find(".card .note").text)
    Select(page.find("[data-field=length]")).select_by_value("epochs")
    assert page.find("input[data-field=epochs]").get_attribute("value") == "2"


def test_where_clients_are_protected_the_page_speaks_of_rounds(page):
    """The plan stays what it was, and so does the answer: a client is an example in other words."""
    from selenium.webdriver.support.select import Select

    page.until(lambda: page.all("#curves figure"))
    before = page.answers
    Select(page.find("#unit select")).select_by_value("client")
    Select(page.find("[data-field=length]")).select_by_value("steps")
    labels = [label.text for label in page.all("#shared label")]
    assert labels[:4] == ["clients", "clients per round (expected)", "length of the run in", "rounds"]
    page.until(lambda: "200 rounds with 500 clients on average." in page.find(".card .note").text)
    page.until(lambda: page.answers == before)
    page.until(lambda: "clients=true" in page.fragment)
    assert "unit." not in page.fragment
    page.browser.refresh()
    page.until(lambda: page.answers and page.settled(page.answers[0]))
    assert Select(page.find("#unit select")).first_selected_option.get_attribute("value") == "client"
    number = page.find("input[data-field=batch_size]")
    number.clear()
    number.send_keys("60000")
    page.until(lambda: page.all(".problem"))
    assert page.find(".problem").text.startswith("“clients per round (expected)” must be at most clients = 50000.")
    assert all("status of 422" in complaint for complaint in page.complaints())


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
    page.until(lambda: len(page.answers) == 4 and all(page.settled(answer) for answer in page.answers))
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


def test_the_matrix_of_a_certificate_is_downloaded(server, browser, tmp_path):
    browser.get(f"{server[1]}#{FRAGMENT.replace('kind=identity', 'kind=column_normalized_banded&strategy.bands=2', 1)}")
    page = Page.__new__(Page)
    page.browser = browser
    page.until(lambda: page.all(".card"))
    page.button("Certify").click()
    page.until(lambda: page.find(".certified").text.startswith("Certified"))
    page.button("Download certificate").click()
    page.button("Download its matrix").click()
    path = tmp_path / "plan.certificate.json"
    (matrix,) = page.until(lambda: path.exists() and list(tmp_path.glob("matrix-*.npy")))
    assert Certificate.load(path).mechanism.companion_file() == (matrix.name, matrix.read_bytes())


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
    page.until(lambda: any(bar.is_displayed() for bar in page.all("progress")))
    page.button("Cancel").click()
    page.until(lambda: "Cancelled." in page.find(".card").text)
    assert page.button("Certify").is_enabled()


def test_without_the_token_the_page_says_so(server, browser):
    browser.get(server[1].split("?")[0])
    page = Page.__new__(Page)
    page.browser = browser
    page.until(lambda: "token is missing" in page.find("#status").text)


def violations(browser, axe):
    """What axe-core calls serious or critical."""
    browser.execute_script(axe)
    report = browser.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    return [
        (violation["id"], violation["nodes"][0]["html"])
        for violation in report["violations"]
        if violation["impact"] in ("serious", "critical")
    ]


def test_an_error_is_accessible(server, browser, axe):
    browser.set_window_size(380, 900)
    page = Page(browser, server[1], FRAGMENT.replace("batch_size=500", "batch_size=60000"))
    page.until(lambda: page.all(".problem"))
    assert violations(browser, axe) == []
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("width", [380, 800, 1280])
def test_accessible_at_three_widths(server, browser, axe, width):
    """No serious or critical violation of axe-core, and nothing wider than the window."""
    browser.set_window_size(width, 900)
    page = Page(browser, server[1], FRAGMENT + "&2.sampler.kind=random_allocation&2.strategy.kind=identity")
    page.until(lambda: len(page.all("#curves .series")) == 2)
    assert violations(browser, axe) == []
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    assert page.complaints() == []
