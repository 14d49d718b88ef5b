"""The page at ``/`` in headless Chromium: as a person uses it, at a desk and on a telephone.

Screenshots are kept where GOLEM_SCREENSHOTS names a folder, to be looked at.
"""

from __future__ import annotations

import re
import shutil
from urllib.request import urlopen

import pytest

from golem_server.routes.page import FOLDER, POLICY

from .browsing import DESK, TELEPHONE, Opened, delta, told, until

ANSWER = """\
# Rust, in short

A **safe** and *fast* language, with `cargo build` and [a book](https://doc.rust-lang.org/book/).
See also https://www.rust-lang.org. ~~Slow~~ and snake_case_name stay.

1. Install it
2. Write this:
   - nested *item*
   - [x] done

```rust
fn main() {
    println!("<b>hello</b>, a rather long line that goes beyond the right edge of a telephone");
}
```

> Quoted
> text

| name | size |
|:-----|-----:|
| a | 1 |
| `b` | 22 |

---
The end.
"""

HOSTILE = """\
<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>

[click](javascript:window.hacked=1) [click](data:text/html,x) ![p](https://example.invalid/p.png)

[a](https://example.invalid/"onmouseover="window.hacked=1)

| <i>a</i> |
|---|
| <script>window.hacked=1</script> |

```<script>
</code><script>window.hacked=1</script>
```
"""


@pytest.fixture(scope="module")
def server(long_model, tmp_path_factory, serve_in_thread):
    other = tmp_path_factory.mktemp("page") / "other.gguf"
    shutil.copy(long_model, other)
    with serve_in_thread([f"tiny={long_model}", f"other={other}"], context=8192) as served:
        yield served


@pytest.fixture(params=["desk", "telephone"])
def opened(browser, server, request):
    size = DESK if request.param == "desk" else TELEPHONE
    made = Opened(browser, server.url, size, has_touch=request.param == "telephone")
    made.kind = request.param
    yield made
    made.context.close()
    assert made.wrong == []


@pytest.fixture
def desk(browser, server):
    made = Opened(browser, server.url, DESK)
    yield made
    made.context.close()


def test_files_are_sent_with_a_policy(server):
    assert {one.name for one in FOLDER.iterdir()} >= {"index.html", "page.js", "style.css"}
    for path in ("/", *(f"/ui/{one.name}" for one in FOLDER.iterdir())):
        with urlopen(server.url + path) as response:
            assert response.headers["Content-Security-Policy"] == POLICY
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            body = response.read().decode()
        assert not re.search(r"\.innerHTML|insertAdjacentHTML|document\.write|eval\(", body)
        # Nothing is loaded from elsewhere.
        assert not re.search(r"""(src|href)=["']?(https?:)?//""", body), path


@pytest.mark.parametrize("path", ["/ui/none.js", "/ui/..%2fapp.py", "/ui/%2e%2e/app.py"])
def test_nothing_else_is_sent(server, path):
    from urllib.error import HTTPError

    with pytest.raises(HTTPError) as raised:
        urlopen(server.url + path)
    raised.value.close()
    assert raised.value.code == 404


def test_a_conversation(opened):
    page = opened.page
    opened.answers(*told(ANSWER, "The user asks about Rust.\n\nI know it."))
    opened.keep(f"empty-{opened.kind}")
    opened.ask("What is Rust?")
    answer = opened.done()
    page.wait_for_selector("article.assistant table")
    assert answer.locator("h3").inner_text() == "Rust, in short"
    assert answer.locator("strong").first.inner_text() == "safe"
    assert answer.locator("em").first.inner_text() == "fast"
    assert answer.locator("del").inner_text() == "Slow"
    assert "snake_case_name" in answer.inner_text()
    assert answer.locator("a").evaluate_all("all => all.map(a => a.href)") == [
        "https://doc.rust-lang.org/book/",
        "https://www.rust-lang.org/",
    ]
    assert answer.locator("ol > li").count() == 2
    assert answer.locator("ol ul > li").count() == 2
    assert answer.locator("pre code").inner_text().startswith("fn main() {\n    println!")
    assert answer.locator(".language").inner_text() == "rust"
    assert answer.locator("blockquote").inner_text() == "Quoted\ntext"
    assert answer.locator("tbody tr").count() == 2
    assert answer.locator(".rates").inner_text().startswith("80 tokens at 33.3/s")
    # Thoughts are folded.
    thoughts = answer.locator(".thoughts .body")
    assert not thoughts.is_visible()
    answer.locator("summary").click()
    assert "I know it." in thoughts.inner_text()
    assert opened.fits()
    opened.keep(f"answer-end-{opened.kind}")
    page.evaluate("document.getElementById('log').scrollTop = 0")
    opened.keep(f"answer-{opened.kind}")
    page.emulate_media(color_scheme="dark")
    opened.keep(f"answer-dark-{opened.kind}")

    opened.answers(*told("Once more."))
    opened.ask("And then?")
    opened.done()
    roles = [message["role"] for message in opened.bodies[-1]["messages"]]
    assert roles == ["user", "assistant", "user"]
    # What was said stays when the page is left.
    page.reload()
    if opened.kind == "telephone":
        page.click("#open-side")
        page.wait_for_timeout(250)
        opened.keep("side-telephone")
    page.click("#list .open")
    assert page.locator("article").count() == 4
    page.click("#open-settings")
    opened.keep(f"settings-{opened.kind}")
    assert opened.fits()
    page.keyboard.press("Escape")


def test_a_real_answer_is_drawn_stopped_and_made_anew(opened):
    page = opened.page
    page.click("#open-settings")
    page.fill("#set-max_tokens", "30")
    page.fill("#set-seed", "3")
    page.click("#settings button[type=submit]")
    opened.ask("Hello")
    first = opened.done()
    assert "30 tokens" in first.locator(".rates").inner_text()
    said = first.locator(".body").inner_text()
    first.get_by_role("button", name="Regenerate").click()
    assert opened.done().locator(".body").inner_text() == said
    # Without a limit the model, which knows nothing, goes on and on.
    page.click("#open-settings")
    page.fill("#set-max_tokens", "")
    page.click("#settings button[type=submit]")
    opened.ask("Go on")
    body = page.locator("article:last-child .body")
    until(lambda: body.count() and len(body.inner_text()) > 50)
    assert page.locator("#stop").is_visible()
    if opened.kind == "desk":
        page.keyboard.press("Escape")
    else:
        page.click("#stop")
    last = opened.done()
    assert "stopped" in last.locator("footer").inner_text()
    assert len(last.locator(".body").inner_text()) > 20


def test_no_text_of_a_model_becomes_more_than_text(opened):
    opened.answers(*told(HOSTILE, "<img src=x onerror='window.hacked=1'>"))
    opened.ask("<script>window.hacked=1</script>")
    answer = opened.done()
    answer.locator("summary").click()
    opened.page.wait_for_timeout(200)
    assert opened.page.evaluate("window.hacked") is None
    log = opened.page.locator("#log")
    assert log.locator("img, script, iframe, [onerror], [onmouseover]").count() == 0
    schemes = log.locator("a").evaluate_all("all => all.map(a => a.protocol)")
    assert set(schemes) == {"https:"}
    assert "<img src=x onerror=" in answer.inner_text()
    assert "<script>window.hacked=1</script>" in opened.page.locator("article").first.inner_text()


def test_markdown_that_grows_is_markdown_that_came_at_once(desk):
    """Cut anywhere, and long lines of marks take no time to speak of."""
    same = desk.page.evaluate(
        """async (text) => {
            const { show } = await import("/ui/markdown.js");
            const whole = document.createElement("div"), grown = document.createElement("div");
            show(whole, text);
            for (let end = 1; end <= text.length; end++) show(grown, text.slice(0, end));
            return whole.isEqualNode(grown) && whole.childNodes.length > 5;
        }""",
        ANSWER + HOSTILE,
    )
    assert same
    took = desk.page.evaluate(
        """async () => {
            const { show } = await import("/ui/markdown.js");
            const begun = performance.now();
            const marks = ["*", "_", "`", "[", "**a ", "_a ", "> ", "- ", "|", "![](", "~~x"];
            for (const mark of marks) {
                show(document.createElement("div"), mark.repeat(20000));
            }
            return performance.now() - begun;
        }"""
    )
    assert took < 4000


def test_code_is_copied(browser, server):
    made = Opened(browser, server.url, DESK, permissions=["clipboard-read", "clipboard-write"])
    made.answers(*told("```py\nprint(1)\n```"))
    made.ask("code")
    made.done()
    made.page.click(".code .copy")
    made.page.wait_for_selector(".code .copy >> text=Copied")
    assert made.page.evaluate("navigator.clipboard.readText()") == "print(1)"
    made.context.close()
    assert made.wrong == []


def test_settings_and_the_model_are_asked_for(desk):
    page = desk.page
    desk.answers(*told("ok"))
    page.select_option("#model", "other")
    page.click("#open-settings")
    page.fill("#set-system", "Be brief.")
    page.fill("#set-temperature", "0.3")
    page.fill("#set-top_k", "20")
    page.select_option("#set-thinking", "off")
    page.press("#set-temperature", "Enter")
    desk.ask("Hello")
    desk.done()
    body = desk.bodies[-1]
    assert body["model"] == "other"
    assert body["temperature"] == 0.3
    assert body["top_k"] == 20
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert "top_p" not in body
    page.reload()
    page.wait_for_selector("#model option", state="attached")
    assert page.input_value("#model") == "other"
    page.click("#open-settings")
    assert page.input_value("#set-temperature") == "0.3"


@pytest.mark.parametrize(
    ("pieces", "status", "headers", "said"),
    [
        (["The prompt does not fit."], 400, None, "The prompt does not fit."),
        (["Busy."], 429, {"retry-after": "7"}, "Busy. Try again in 7 s."),
        ([delta(content="Half"), {"error": {"message": "NaN"}}, "[DONE]"], 200, None, "NaN"),
        ([delta(content="Half an ans")], 200, None, "The connection broke off."),
    ],
)
def test_errors_are_shown(desk, pieces, status, headers, said):
    desk.answers(*pieces, status=status, headers=headers)
    desk.ask("Hello")
    answer = desk.done()
    assert answer.get_by_role("alert").inner_text() == said
    if status == 200:
        assert "Half" in answer.inner_text()
    desk.keep(f"error-{status}")
    desk.answers(*told("Now it does."))
    answer.get_by_role("button", name="Try again").click()
    desk.page.wait_for_selector("text=Now it does.")
    assert [message["role"] for message in desk.bodies[-1]["messages"]] == ["user"]


def test_conversations_are_chosen_and_deleted(desk):
    page = desk.page
    desk.answers(*told("ok"))
    for text in ("First", "Second"):
        page.click("#new")
        desk.ask(text)
        desk.done()
    assert page.locator("#list .open").all_inner_texts() == ["Second", "First"]
    page.click("#list .open >> text=First")
    assert page.locator("article.user .body").inner_text() == "First"
    page.on("dialog", lambda dialog: dialog.accept())
    page.hover("#list li >> nth=1")
    page.click("#list .delete >> nth=1")
    assert page.locator("#list .open").all_inner_texts() == ["Second"]
    assert page.locator("article").count() == 0


def test_the_keyboard_reaches_everything(desk):
    page = desk.page
    desk.answers(*told("```\ncode\n```"))
    assert page.evaluate("document.activeElement.id") == "ask"
    page.keyboard.type("one")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("two")
    page.keyboard.press("Enter")
    desk.done()
    assert desk.bodies[-1]["messages"][0]["content"] == "one\ntwo"
    page.evaluate("document.activeElement.blur()")
    reached = []
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "(e => e.id || e.getAttribute('aria-label') || e.innerText || e.tagName)"
                "(document.activeElement)"
            )
        )
    wanted = {"new", "model", "open-settings", "ask", "Delete one", "Copy the answer", "Regenerate"}
    assert wanted <= set(reached), reached
    page.focus("#open-settings")
    page.keyboard.press("Enter")
    assert page.evaluate("document.getElementById('settings').open")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "open-settings"


def test_a_key_is_asked_for(browser, tiny_model, serve_in_thread):
    with serve_in_thread(tiny_model, api_keys=("secret",)) as served:
        context = browser.new_context(viewport=DESK)
        page = context.new_page()
        page.set_default_timeout(8000)
        page.goto(served.url)
        page.wait_for_selector("#settings[open]")
        assert page.evaluate("document.activeElement.id") == "set-key"
        page.keyboard.type("secret")
        page.keyboard.press("Enter")
        page.wait_for_selector("#model option", state="attached")
        assert page.evaluate("JSON.stringify(localStorage)").find("secret") < 0
        context.close()
