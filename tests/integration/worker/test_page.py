"""The operator's page in a real browser: each button frees its trouble, by keyboard, on a phone, in the dark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import pytest

from tests.browser import MISSING, open_browser, there
from tests.integration.worker.stuck import HOSTILE, PATIENCE, READ, WRITE, Stuck, serve_stuck
from tests.support import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.skipif(not there(), reason=MISSING)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    with serve_stuck() as world:
        yield world


@pytest.fixture(scope="module")
def looked_at() -> Iterator[Stuck]:
    """A worker that tests share which change nothing."""
    with serve_stuck() as world:
        yield world


@contextmanager
def opened(
    browser: Browser, stuck: Stuck, *, width: int = 1100, scheme: Literal["light", "dark"] = "light"
) -> Iterator[Page]:
    """A tab without memory. The test fails if the page asks another server, or breaks the policy."""
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    asked: list[str] = []
    wrong: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None
    )
    page.goto(stuck.url)
    yield page
    assert wrong == []
    assert {url.split("/")[2] for url in asked} == {stuck.url.split("/")[2]}
    context.close()


def wait_for(page: Page, holds: str) -> None:
    """Waits until an expression holds. The page's policy forbids playwright's own way, which needs `eval`."""
    until(lambda: page.evaluate(f"!!({holds})"), holds, PATIENCE)


def enter(page: Page, token: str) -> None:
    page.fill("#token", token)
    page.press("#token", "Enter")
    wait_for(page, "document.querySelector('#about').textContent !== ''")


def press(page: Page, name: str, *, key: str = "Enter") -> None:
    """Presses a button that the keyboard alone reaches."""
    for _ in range(200):
        page.keyboard.press("Tab")
        if (
            page.evaluate(
                "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
            )
            == name
        ):
            page.keyboard.press(key)
            return
    pytest.fail(f"the keyboard reaches no {name!r}")


def said(page: Page, text: str) -> None:
    until(lambda: text in page.inner_text("#said"), text, PATIENCE)


def dead(stuck: Stuck) -> int:
    return len(list(stuck.ps.subscription("mail").dead_letters()))


def test_it_says_what_is_stuck_and_the_keyboard_frees_it(browser: Browser, stuck: Stuck) -> None:
    with opened(browser, stuck) as page:
        page.fill("#token", "wrong")
        page.press("#token", "Enter")
        wait_for(page, "document.querySelector('#refused').textContent !== ''")
        assert not page.is_visible("#all")
        enter(page, WRITE)
        found = page.inner_text("#stuck")
        for text in (
            "Unit crm: ",
            "KAFKA_PUBSUB_TEST_MISSING",
            "Unit old-hook: paused by an operator",
            "Subscription billing: messages parked until they are released: 1",
            "Subscription mail: dead letters: 4",
            "Delayed messages to orders: messages wait, and no delay router runs",
            "Causal topic stock, partition 0: messages wait, and no sequencer runs",
        ):
            assert text in found
        assert "hook: " not in found.replace("old-hook: ", "")

        press(page, "Resume: old-hook")
        said(page, "old-hook: every worker runs it again")
        wait_for(page, "!document.querySelector('#stuck').textContent.includes('old-hook')")

        assert "the card has expired" in page.inner_text("#keys")
        stuck.mended = True
        keys = stuck.ps.subscription("billing").keys()
        (parked,) = (each.message_id for each in keys if each.state == "parked")
        press(page, f"Release: {parked}")
        said(page, "Released 1")
        until(lambda: b"next" in stuck.handled, "the key goes on", PATIENCE)
        wait_for(page, "['keys-title', 'stuck-title'].includes(document.activeElement.id)")

        page.reload()
        page.wait_for_selector("#all:not([hidden])")


def test_what_is_given_up_is_asked_for_first(browser: Browser, stuck: Stuck) -> None:
    with opened(browser, stuck) as page:
        enter(page, WRITE)
        press(page, "Dead letters: mail")
        page.wait_for_selector("#letters tbody tr")
        page.fill("#by-key", "user-1")
        page.press("#by-key", "Enter")
        wait_for(page, "document.querySelectorAll('#letters tbody tr').length === 1")

        page.focus("#letters-title")
        press(page, "Purge all of these")
        page.wait_for_selector("#ask[open]")
        assert "given up for good: 1" in page.inner_text("#ask")
        page.keyboard.press("Escape")
        page.wait_for_selector("#ask", state="hidden")
        assert dead(stuck) == 4
        wait_for(page, "document.activeElement.id === 'purge-all'")
        page.keyboard.press("Enter")
        page.wait_for_selector("#ask[open]")
        press(page, "Purge all")
        said(page, "Purged 1")
        assert dead(stuck) == 3

        page.fill("#by-key", "")
        page.press("#by-key", "Enter")
        wait_for(page, "document.querySelectorAll('#letters tbody tr').length === 3")
        page.focus("#letters-title")
        press(page, "Replay all of these")
        page.wait_for_selector("#ask[open]")
        press(page, "Replay all")
        said(page, "Replayed 3")
        said(page, "No process receives now")
        assert dead(stuck) == 0


def test_texts_of_messages_stay_texts(browser: Browser, looked_at: Stuck) -> None:
    with opened(browser, looked_at) as page:
        enter(page, READ)
        page.select_option("#letters-of", "subscription:mail")
        wait_for(page, "document.querySelectorAll('#letters tbody tr').length === 4")
        assert HOSTILE in page.inner_text("#letters")
        page.locator("#letters tr", has_text=HOSTILE).get_by_text("View").click()
        page.wait_for_selector("#view[open]")
        assert page.inner_text("#view-data") == HOSTILE
        assert f"note={HOSTILE}" in page.inner_text("#view-fields")
        assert page.query_selector("img") is None
        assert page.evaluate("window.pwned") is None
        page.keyboard.press("Escape")
        page.wait_for_selector("#view", state="hidden")


def test_a_token_that_may_only_read_has_no_buttons_that_change(browser: Browser, looked_at: Stuck) -> None:
    with opened(browser, looked_at) as page:
        enter(page, READ)
        assert "may only read" in page.inner_text("#about")
        page.wait_for_selector("#keys tbody tr")
        buttons = {each.inner_text() for each in page.query_selector_all("button") if each.is_visible()}
        assert buttons == {"Refresh", "Forget the token", "Keys", "Dead letters", "Show", "List", "View"}
        page.click("#forget")
        page.wait_for_selector("#login:not([hidden])")
        assert page.inner_text("main").count("user-") == 0
        assert page.evaluate("sessionStorage.length") == 0


@pytest.mark.parametrize(("width", "scheme"), [(1100, "light"), (360, "dark")])
def test_it_is_accessible_and_fits_a_phone(
    browser: Browser, looked_at: Stuck, width: int, scheme: Literal["light", "dark"]
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    with opened(browser, looked_at, width=width, scheme=scheme) as page:
        page.wait_for_selector("#login:not([hidden])")
        assert Axe().run(page).response["violations"] == []
        enter(page, WRITE)
        page.select_option("#letters-of", "subscription:mail")
        wait_for(page, "document.querySelectorAll('#letters tbody tr').length === 4")
        for each in page.query_selector_all("summary"):
            each.click()
        assert Axe().run(page).response["violations"] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.locator("#letters").get_by_text("View").first.click()
        page.wait_for_selector("#view[open]")
        assert Axe().run(page).response["violations"] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") is (scheme == "light")


def test_the_browser_runs_nothing_else_in_it(browser: Browser, looked_at: Stuck) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(looked_at.url)
    page.evaluate(
        "const s = document.createElement('script'); s.textContent = 'window.pwned = 1'; document.body.append(s)"
    )
    assert page.evaluate("window.pwned") is None
    assert (
        page.evaluate("fetch('http://127.0.0.1:1/').then(() => 'sent', error => error.name)") == "TypeError"
    )
    context.close()
