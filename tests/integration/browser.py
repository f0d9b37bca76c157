"""Debian's Chromium, driven by Playwright; what its console says wrong and what axe finds is collected."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

CHROMIUM = shutil.which("chromium") or ""
SHOWN_WITHIN_MS = 30_000
"""On a machine that is full of other work."""


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page of the browser and everything that went wrong on it."""

    def __init__(self, browser: Browser, width: int = 1440, theme: str = "light") -> None:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)  # type: ignore[arg-type]
        self.page: Page = context.new_page()
        self.wrong: list[str] = []
        self.asked: set[str] = set()
        self.page.on(
            "console", lambda said: self.wrong.append(said.text) if said.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.wrong.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.add(request.url.split("/", 3)[2]))

    def _said(self, said: ConsoleMessage) -> None:
        if said.type in ("error", "warning"):
            self.wrong.append(said.text)

    def go(self, fragment: str) -> None:
        """Another view of the page that is open, once it is there."""
        self.page.evaluate("fragment => { location.hash = fragment }", fragment)
        is_shown = re.compile(f"^{re.escape(fragment)}")
        expect(self.page.locator("main")).to_have_attribute("data-shown", is_shown, timeout=SHOWN_WITHIN_MS)

    def accessibility(self) -> list[str]:
        """What axe finds on what is shown now."""
        script = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
        # By the debugger's door: the page's own policy lets no script in.
        if not self.page.evaluate("typeof axe === 'object'"):
            self.page.evaluate(script)
        result: dict[str, Any] = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{found['id']}: {found['help']}: {node['html'][:160]} {node['any'][0]['message'] if node['any'] else ''}"
            for found in result["violations"]
            for node in found["nodes"][:3]
        ]
