"""Speech alone and in company, in pieces and whole; voices; what is refused."""

from __future__ import annotations

import json
import struct
import threading
from pathlib import Path

import numpy as np
import pytest
from ref.drawn_pocket import write
from ref.pocket_tts import RATE, recording

from golem_core import plugins
from golem_core.errors import BadRequest, BadWeights, NotFound, Unsupported
from golem_core.model import Options
from golem_core.speech import Delivery, Line
from golem_core.weights import open_weights
from golem_pockettts.decoder_pass import FRAMES
from golem_pockettts.drawing import AHEAD
from golem_pockettts.model import PocketTts
from golem_pockettts.speaking import PocketSpeaking

TOKENIZER = Path(__file__).parent / "vectors" / "unigram.model"
TEXT = "This is a test. Is it fine? It is more of it than before. Yes!"
LINES = [Line("", tuple(range(20 + i, 30 + 2 * i)), 3) for i in range(4)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("model"), "tiny_lsd", eos=-5.0, tokenizer=TOKENIZER)


def opened(folder: Path, **options) -> PocketSpeaking:
    weights = open_weights(folder)
    model = PocketTts.open(weights, Options())
    return model.speaking(weights, **{"sequences": 4, **options})


@pytest.fixture(scope="module")
def speaking(folder: Path):
    with opened(folder) as made:
        yield made


@pytest.fixture(scope="module")
def voice(speaking: PocketSpeaking):
    return speaking.voice(recording())


def test_a_plugin_knows_the_published_layout(folder: Path) -> None:
    with open_weights(folder) as weights:
        assert plugins.architecture(weights) == "pocket_tts"
        assert plugins.of(weights) is PocketTts


@pytest.mark.parametrize("workers", [1, 3])
def test_alone_and_in_company(folder: Path, voice, workers: int) -> None:
    with opened(folder, threads=1, sequences=1) as quiet:
        alone = [
            quiet.speak_lines([line], voice, Delivery(seed=i)).whole()
            for i, line in enumerate(LINES)
        ]
    with opened(folder, threads=workers) as busy:
        begun = [busy.speak_lines([line], voice, Delivery(seed=i)) for i, line in enumerate(LINES)]
        for speech, wanted in zip(begun, alone, strict=True):
            assert np.array_equal(speech.whole(), wanted)


def test_lines_apart_are_lines_by_themselves(speaking: PocketSpeaking, voice) -> None:
    alone = [
        speaking.speak_lines([line], voice, Delivery(seed=7 + i)).whole()
        for i, line in enumerate(LINES)
    ]
    together = speaking.speak_lines(LINES, voice, Delivery(seed=7, apart=True)).whole()
    assert np.array_equal(together, np.concatenate(alone))


def test_a_seed_is_a_speech(speaking: PocketSpeaking, voice) -> None:
    first = speaking.speak(TEXT, voice)
    sound = first.whole()
    assert np.array_equal(speaking.speak(TEXT, voice, Delivery(seed=first.seed)).whole(), sound)
    other = speaking.speak(TEXT, voice, Delivery(seed=first.seed ^ 1)).whole()
    assert other.shape != sound.shape or not np.array_equal(other, sound)
    assert first.timings.sound == len(sound) / speaking.sample_rate
    assert 0 < first.timings.first <= first.timings.total


def test_no_temperature_is_no_noise(speaking: PocketSpeaking, voice) -> None:
    one, two = (
        speaking.speak_lines(LINES[:1], voice, Delivery(seed=s, temperature=0)).whole()
        for s in (1, 2)
    )
    assert np.array_equal(one, two)


def test_what_ends_a_line(speaking: PocketSpeaking, voice) -> None:
    usual = Delivery(seed=1, eos_threshold=-1e6)
    # The end is found in the seventh frame at the earliest.
    sound = speaking.speak_lines(LINES[:1], voice, usual).whole()
    assert len(sound) == (6 + LINES[0].rest) * 1920
    more = Delivery(seed=1, eos_threshold=-1e6, frames_after_eos=9)
    longer = speaking.speak_lines(LINES[:1], voice, more)
    assert len(longer.whole()) == (6 + 9) * 1920
    assert longer.cut == ()
    never = speaking.speak_lines(LINES[:1], voice, Delivery(seed=1, eos_threshold=1e6))
    assert len(never.whole()) == speaking.model.longest(len(LINES[0].ids)) * 1920
    assert never.cut == (LINES[0],)


def test_begins_softly(speaking: PocketSpeaking, voice) -> None:
    sound = speaking.speak_lines(LINES[:1], voice, Delivery(seed=1)).whole()
    assert sound[0] == 0
    assert np.abs(sound[:12]).max() < 0.1 * np.abs(sound).max()


def test_a_listener_who_stops_frees_everything(speaking: PocketSpeaking, voice) -> None:
    pages, heard = sorted(speaking._places.pages), sorted(speaking._places.heard)
    resident = {id(v) for v in speaking._places.resident}
    with speaking.speak_lines(LINES * 20, voice, Delivery(seed=1, eos_threshold=1e6)) as speech:
        next(speech)
    assert list(speech) == []
    speaking._do(lambda: None)
    speaking._do(lambda: None)
    assert len(speaking._places.slots) == speaking.sequences
    assert sorted(speaking._places.heard) == heard
    if {id(v) for v in speaking._places.resident} == resident:
        assert sorted(speaking._places.pages) == pages


def test_nobody_runs_ahead_of_who_does_not_listen(speaking: PocketSpeaking, voice) -> None:
    with speaking.speak_lines(LINES * 30, voice, Delivery(seed=1, eos_threshold=1e6)) as speech:
        while not speech.full:
            threading.Event().wait(0.01)
        speaking._do(lambda: None)
        made = speech.timings.sound
        threading.Event().wait(0.2)
        assert speech.timings.sound == made
        assert AHEAD <= made < AHEAD + 2


def test_pieces_are_the_whole(speaking: PocketSpeaking, voice) -> None:
    whole = speaking.speak(TEXT, voice, Delivery(seed=5, max_tokens=8)).whole()
    pieces = list(speaking.speak(TEXT, voice, Delivery(seed=5, max_tokens=8)))
    assert len(pieces) > 1
    assert np.array_equal(np.concatenate(pieces), whole)


@pytest.mark.parametrize("apart", [False, True])
def test_who_listens_slowly_hears_the_same(speaking: PocketSpeaking, voice, apart: bool) -> None:
    delivery = Delivery(seed=5, apart=apart, eos_threshold=1e6)  # more than is made ahead
    whole = speaking.speak_lines(LINES, voice, delivery).whole()
    assert len(whole) > 2 * AHEAD * RATE
    pieces, stopped = [], 0
    with speaking.speak_lines(LINES, voice, delivery) as speech:
        for piece in speech:
            pieces.append(piece)
            if len(pieces) % 30 == 1:  # stops listening, until nothing more is made ahead
                while not speech.full and round(speech.timings.sound * RATE) < len(whole):
                    threading.Event().wait(0.005)
                stopped += speech.full
    assert stopped
    assert np.array_equal(np.concatenate(pieces), whole)


def test_who_waits_for_a_place_keeps_nobody_busy(folder: Path) -> None:
    with opened(folder, sequences=1) as small:
        voice = small.voice(recording())
        slow = small.speak_lines(LINES, voice, Delivery(seed=5, eos_threshold=1e6))
        next(slow)
        while not slow.full:
            threading.Event().wait(0.005)
        waiting = small.speak(TEXT, voice, Delivery(seed=1))
        steps: list[bool] = []
        step = small._step
        small._step = lambda spoken: steps.append(step(spoken)) or steps[-1]
        threading.Event().wait(0.2)
        assert steps.count(False) <= 2
        slow.cancel()
        assert len(waiting.whole())


LONG = " ".join(f"This is the test of all that is more than {i}." for i in range(480))


def test_a_long_text_takes_no_more_room(speaking: PocketSpeaking, voice) -> None:
    assert len(LONG) > 20_000
    free = len(speaking._places.slots)
    taken, most, over = 0.0, 0.0, []
    with speaking.speak(LONG, voice, Delivery(seed=2, eos_threshold=-1e6)) as speech:
        for piece in speech:
            taken += len(piece) / speaking.sample_rate
            most = max(most, speech.timings.sound - taken)
            over.append(len(speech.lines))
            assert len(speech.drawn) <= 1
            assert free - len(speaking._places.slots) <= 1
            assert sum(len(d.steps) for d in speech.drawn) <= FRAMES
            if over[-1] < over[0] - 12:
                break
        else:
            raise AssertionError("the text has fewer lines than it should")
    assert over[0] > 100  # lines, of which a dozen went by
    assert most < AHEAD + FRAMES / speaking.frame_rate
    speaking._do(lambda: None)
    speaking._do(lambda: None)
    assert len(speaking._places.slots) == free


def test_a_text_of_nothing_is_refused(speaking: PocketSpeaking, voice) -> None:
    for text in ("", " ", "\n\t"):
        with pytest.raises(BadRequest, match="there is nothing to speak"):
            speaking.speak(text, voice)


@pytest.mark.parametrize("text", ["😀🎉👍🏽", "1234567890" * 10])
def test_what_is_no_sentence_is_spoken(speaking: PocketSpeaking, voice, text: str) -> None:
    speech = speaking.speak(text, voice, Delivery(seed=1))
    sound = speech.whole()
    (line,) = speaking.lines(text)
    assert line.text == text + "."
    frames, left = divmod(len(sound), 1920)
    assert left == 0
    assert line.rest + 6 <= frames <= speaking.model.longest(len(line.ids))
    assert np.isfinite(sound).all()
    assert sound.any()


def test_a_closed_model_ends_what_it_speaks(folder: Path, voice) -> None:
    speaking = opened(folder)
    speech = speaking.speak_lines(LINES * 30, voice, Delivery(seed=1, eos_threshold=1e6))
    next(speech)
    speaking.close()
    for _ in speech:
        pass
    with pytest.raises(BadRequest, match="was closed"):
        speaking.speak_lines(LINES, voice)


def test_voices_are_saved_and_opened(speaking: PocketSpeaking, voice, tmp_path: Path) -> None:
    path = tmp_path / "me.safetensors"
    voice.save(path)
    again = speaking.voice(path)
    assert again.positions == voice.positions == 1 + 14
    wanted = speaking.speak_lines(LINES[:1], voice, Delivery(seed=1)).whole()
    got = speaking.speak_lines(LINES[:1], again, Delivery(seed=1)).whole()
    assert np.array_equal(got, wanted)
    # The makers' own reader, and their older files.
    safetensors = pytest.importorskip("safetensors.numpy")
    tensors = safetensors.load_file(path)
    assert tensors["transformer.layers.1.self_attn/cache"].shape == (2, 1, 15, 4, 16)
    assert tensors["transformer.layers.1.self_attn/offset"].tolist() == [15]
    old = {}
    for name, tensor in tensors.items():
        if name.endswith("cache"):
            room = np.full((2, 1, 40, 4, 16), np.nan, np.float32)
            room[:, :, :15] = tensor
            old[name] = room
            old[name.replace("cache", "current_end")] = np.zeros(15, np.float32)
    safetensors.save_file(old, tmp_path / "old.safetensors")
    got = speaking.speak_lines(
        LINES[:1], speaking.voice(tmp_path / "old.safetensors"), Delivery(seed=1)
    ).whole()
    assert np.array_equal(got, wanted)


def test_voices_beside_the_weights_have_names(folder: Path, voice) -> None:
    (folder / "embeddings").mkdir()
    voice.save(folder / "embeddings" / "alba.safetensors")
    voice.save(folder / "embeddings" / "zoe.safetensors")
    with opened(folder) as speaking:
        assert speaking.voices() == ("alba", "zoe")
        assert speaking.default_voice == "alba"
        assert speaking.voice("zoe").positions == voice.positions
        assert len(speaking.speak(TEXT, delivery=Delivery(seed=1)).whole())
        with pytest.raises(NotFound, match=r"no voice .bob.*there: alba, zoe"):
            speaking.voice("bob")


def header(path: Path, change) -> None:
    """Writes a file again with its header changed."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    text = json.loads(data[8 : 8 + length])
    change(text)
    made = json.dumps(text).encode()
    path.write_bytes(struct.pack("<Q", len(made)) + made + data[8 + length :])


CACHE = "transformer.layers.0.self_attn/cache"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda h: h.pop(CACHE), "is no voice of this model"),
        (lambda h: h[CACHE].update(shape=[2, 1, 15, 2, 32]), "is a voice of another model"),
        (lambda h: h[CACHE].update(dtype="F64"), "is described as"),
        (lambda h: h[CACHE].update(data_offsets=[0, 1 << 39]), "does not fit its place"),
        (lambda h: h.pop(CACHE.replace("cache", "offset")), "offset is missing"),
    ],
)
def test_a_file_that_is_no_voice_is_refused(
    speaking: PocketSpeaking, voice, tmp_path: Path, change, says: str
) -> None:
    path = tmp_path / "me.safetensors"
    voice.save(path)
    header(path, change)
    with pytest.raises(BadWeights, match=says):
        speaking.voice(path)


def test_what_is_no_safetensors_is_refused(speaking: PocketSpeaking, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"RIFF" * 100)
    with pytest.raises(BadWeights, match="does not begin as a voice's file does"):
        speaking.voice(tmp_path / "x")
    with pytest.raises(NotFound, match="no such file"):
        speaking.voice(tmp_path / "y")


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": -1}, {"noise_clamp": 0}, {"frames_after_eos": -1}, {"max_tokens": 0}],
)
def test_numbers_out_of_range_are_refused(speaking: PocketSpeaking, voice, wrong) -> None:
    with pytest.raises(BadRequest, match=f"{next(iter(wrong))} is"):
        speaking.speak(TEXT, voice, Delivery(**wrong))


def test_weights_that_do_not_clone_say_so(tmp_path: Path) -> None:
    folder = write(tmp_path, "tiny_lsd", tokenizer=TOKENIZER)
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    text = json.loads(data[8 : 8 + length])
    start, end = text["flow_lm.speaker_proj_weight"]["data_offsets"]
    data[8 + length + start : 8 + length + end] = bytes(end - start)
    path.write_bytes(data)
    with opened(folder) as speaking:
        assert not speaking.clones
        with pytest.raises(Unsupported, match="without voice cloning"):
            speaking.voice(recording())


@pytest.mark.parametrize("kept", ["Q8_0", "Q8_0-codec", "Q8_0-all"])
def test_matrices_in_eight_bits_are_near(folder: Path, voice, kept: str) -> None:
    with opened(folder, kept=kept) as speaking, opened(folder) as plain:
        got, wanted = (
            s.speak_lines(LINES[:1], voice, Delivery(seed=1, eos_threshold=1e6)).whole()
            for s in (speaking, plain)
        )
    assert not np.array_equal(got, wanted)
    assert np.linalg.norm(got - wanted) < 0.1 * np.linalg.norm(wanted)


def test_other_formats_are_refused(folder: Path) -> None:
    with pytest.raises(Unsupported, match="as published or as Q8_0, Q8_0-codec, Q8_0-all, not Q4_"):
        opened(folder, kept="Q4_0")


def test_cards_are_refused(folder: Path) -> None:
    with pytest.raises(Unsupported, match="given: the device vulkan has no shader for input"):
        opened(folder, device="vulkan")


def test_a_voice_survives_being_set_aside(folder: Path, voice) -> None:
    with opened(folder, sequences=1) as speaking:
        wanted = speaking.speak_lines(LINES[:1], voice, Delivery(seed=1)).whole()
        for seed in range(3):
            other = speaking.voice(recording(4.0 + seed))
            speaking.speak_lines(LINES[:1], other, Delivery(seed=1)).whole()
        assert np.array_equal(
            speaking.speak_lines(LINES[:1], voice, Delivery(seed=1)).whole(), wanted
        )
