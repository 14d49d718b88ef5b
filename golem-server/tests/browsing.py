"""The page as a person uses it: opened at a desk or on a telephone, asked, and answered."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

DESK = {"width": 1280, "height": 800}
TELEPHONE = {"width": 390, "height": 844}


class Opened:
    """The page in a browser's own context; what it logs and what its policy refuses is kept."""

    def __init__(self, browser, url, size, **options):
        self.context = browser.new_context(viewport=size, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(8000)
        self.wrong = []
        self.bodies = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on(
            "console",
            lambda said: self.wrong.append(said.text) if said.type == "error" else None,
        )
        self.page.goto(url)
        self.page.wait_for_selector("#model option", state="attached")

    def answers(self, *pieces, status=200, headers=None):
        """What the server says from now on, in place of what it would."""

        def fulfil(route):
            self.bodies.append(json.loads(route.request.post_data))
            if status != 200:
                body = json.dumps({"error": {"message": pieces[0]}})
                route.fulfill(status=status, body=body, headers=headers or {})
                return
            lines = [piece if isinstance(piece, str) else json.dumps(piece) for piece in pieces]
            body = "".join(f": waiting\n\ndata: {line}\n\n" for line in lines)
            route.fulfill(status=200, body=body, content_type="text/event-stream")

        self.page.unroute("**/v1/chat/completions")
        self.page.route("**/v1/chat/completions", fulfil)

    def ask(self, text):
        self.page.fill("#ask", text)
        self.page.press("#ask", "Enter")

    def done(self):
        """Waits until the answer has ended."""
        self.page.wait_for_selector("#send:not([hidden])")
        return self.page.locator("article").last

    def keep(self, name):
        folder = os.environ.get("GOLEM_SCREENSHOTS")
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=Path(folder) / f"{name}.png")

    def fits(self):
        """Nothing is wider than the page."""
        return self.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def until(holds, seconds=8.0):
    """Waits until `holds()`; the page's policy lets no condition be handed to it as a text."""
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.02)


def delta(**parts):
    return {"choices": [{"index": 0, "delta": parts, "finish_reason": None}]}


def end(reason="stop"):
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


TIMES = {
    "choices": [],
    "timings": {
        "prompt_n": 12, "prompt_ms": 40.0, "cache_n": 5, "predicted_n": 80,
        "predicted_per_second": 33.3,
    },
}  # fmt: skip


def told(text, thoughts=""):
    pieces = [delta(role="assistant", content="")]
    if thoughts:
        pieces.append(delta(reasoning_content=thoughts))
    pieces += [delta(content=text[i : i + 7]) for i in range(0, len(text), 7)]
    return [*pieces, end(), TIMES, "[DONE]"]
