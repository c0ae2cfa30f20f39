"""A headless Chromium for tests of pages: Debian's, driven by playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["MISSING", "open_browser", "there"]

#: Why a test is skipped.
MISSING = "no browser here: pip install -e '.[dev]', and apt-get install -y --no-install-recommends chromium"
#: CI runs as root, which Chromium's sandbox refuses. A test asks no server but that of the page.
_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def there() -> bool:
    """Returns whether Chromium and what drives it are installed."""
    return shutil.which("chromium") is not None and all(
        find_spec(name) is not None for name in ("playwright", "axe_playwright_python")
    )


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Runs a browser inside the block."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as drive:
        browser = drive.chromium.launch(executable_path=shutil.which("chromium"), args=list(_OPTIONS))
        try:
            yield browser
        finally:
            browser.close()
