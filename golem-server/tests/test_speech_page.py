"""The page's panel that speaks, in headless Chromium: heard, stopped, saved, by anybody's voice."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest

from golem_core.media.audio import read
from golem_core.testing.speaker import FRAME, RATE, install_tones, write_tones

from .browsing import DESK, TELEPHONE, Opened, told, until

soundfile = pytest.importorskip("soundfile")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("speech-page")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(install_tones(folder / "plugin"))
        yield write_tones(folder / "tones")


@pytest.fixture(scope="module")
def server(folder, tiny_model, serve_in_thread):
    with serve_in_thread([f"tiny={tiny_model}", folder]) as server:
        yield server


@pytest.fixture(params=["desk", "telephone"])
def opened(browser, server, request):
    size = DESK if request.param == "desk" else TELEPHONE
    made = Opened(browser, server.url, size)
    made.kind = request.param
    yield made
    made.context.close()
    assert made.wrong == []


def said(page) -> str:
    return page.locator("#speech-said").text_content() or ""


def saved(page, tmp_path: Path) -> np.ndarray:
    with page.expect_download() as download:
        page.click("#speech-save")
    assert download.value.suggested_filename == "speech.wav"
    path = tmp_path / "saved.wav"
    download.value.save_as(path)
    found = read(path)
    assert found.rate == RATE
    return found.samples


def pitch(samples: np.ndarray) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum) * RATE / len(samples))


def test_a_text_is_spoken(opened, tmp_path) -> None:
    page = opened.page
    # A model that only speaks is not asked to write.
    assert page.locator("#model option").all_text_contents() == ["tiny"]
    page.click("#open-speech")
    until(lambda: page.locator("#speech-voice option").count() == 2)
    assert page.locator("#speech-voice").input_value() == "low"
    page.select_option("#speech-voice", "high")
    page.fill("#speech-text", "eight888 " * 12)
    page.fill("#speech-seed", "7")
    opened.keep(f"speech-{opened.kind}")
    assert opened.fits()
    page.click("#speech-start")
    until(
        lambda: re.match(r"1\.0 s in .* times real time\), the first after 0\.\d\d s", said(page))
    )
    opened.keep(f"spoken-{opened.kind}")
    samples = saved(page, tmp_path)
    assert len(samples) == 12 * FRAME
    assert abs(pitch(samples) - 440) < 3
    page.wait_for_selector("#speech-start:not([hidden])")  # all of it was heard


def test_by_the_voice_of_a_recording(opened, tmp_path) -> None:
    page = opened.page
    held = io.BytesIO()
    soundfile.write(
        held, 0.3 * np.sin(2 * np.pi * 700 * np.arange(RATE) / RATE), RATE, format="FLAC"
    )
    page.click("#open-speech")
    page.fill("#speech-text", "eight888 " * 4)
    page.set_input_files(
        "#speech-recording",
        files=[{"name": "me.flac", "mimeType": "audio/flac", "buffer": held.getvalue()}],
    )
    page.click("#speech-start")
    page.wait_for_selector("#speech-save:not([hidden])", state="attached")
    assert abs(pitch(saved(page, tmp_path)[: 4 * FRAME]) - 700) < 3


def test_it_is_stopped(opened, server) -> None:
    page = opened.page
    page.click("#open-speech")
    until(lambda: page.locator("#speech-voice option").count() == 2)
    held = next(one for one in server.models.loaded() if one.id == "tones")
    held.speaking.delay = 0.01
    try:
        page.fill("#speech-text", "word " * 5000)
        page.click("#speech-start")
        until(lambda: "times real time" in said(page))
        page.click("#speech-stop")
        until(lambda: said(page) == "Stopped.")
        until(lambda: not held.speaking.speeches and not held.users)
        page.click("#speech-start")
        until(lambda: "times real time" in said(page))
        page.keyboard.press("Escape")  # closes the panel, and with it the sound
        until(lambda: not held.speaking.speeches and not held.users)
        assert not page.locator("#speech").is_visible()
    finally:
        held.speaking.delay = 0.0


def test_what_is_wrong_is_said(browser, server) -> None:
    made = Opened(browser, server.url, DESK)
    page = made.page
    page.click("#open-speech")
    page.fill("#speech-text", "hello")
    page.set_input_files(
        "#speech-recording",
        files=[{"name": "me.wav", "mimeType": "audio/wav", "buffer": b"RIFF1234WAVE"}],
    )
    page.click("#speech-start")
    until(lambda: said(page) == "me.wav is cut off: it is a WAV file without sound")
    made.context.close()


def test_an_answer_is_listened_to(opened) -> None:
    page = opened.page
    opened.answers(*told("These are the words."))
    opened.ask("Say something.")
    opened.done().get_by_role("button", name="Listen to the answer").click()
    assert page.locator("#speech-text").input_value() == "These are the words."
    assert page.locator("#speech").is_visible()


def test_where_nobody_speaks_there_is_no_panel(browser, tiny_model, serve_in_thread) -> None:
    with serve_in_thread(f"tiny={tiny_model}") as server:
        made = Opened(browser, server.url, DESK)
        assert not made.page.locator("#open-speech").is_visible()
        made.context.close()
        assert made.wrong == []


def test_where_nobody_writes_it_is_said(browser, folder, serve_in_thread) -> None:
    with serve_in_thread(folder) as server:
        context = browser.new_context(viewport=DESK)
        page = context.new_page()
        page.goto(server.url)
        page.wait_for_selector("#open-speech:not([hidden])")
        assert "no model that writes" in (page.locator("#notice").text_content() or "")
        context.close()
