"""Records what the makers' package does to texts and recordings: `python -m ref.pocket_text`.

Needs `pocket-tts==4.0.1` and what it needs. Writes, under golem-pockettts/tests/vectors:

    unigram.model, unigram.json, bpe.model    small vocabularies, of both kinds
    texts.json    texts of six languages: made ready, their ids, the pieces they are cut into
    rules.json    the rules of every published configuration
    noise.json    normal numbers of several seeds, widths and bounds
    prompts.json  recordings ended on a pause, as they are before they are encoded
    voices.json   the makers' voices

and resampled.json under golem-core/tests/vectors: recordings at another rate.
"""

from __future__ import annotations

import hashlib
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
VECTORS = ROOT / "golem-pockettts" / "tests" / "vectors"
CORE = ROOT / "golem-core" / "tests" / "vectors"
LANGUAGES = ("english", "french", "german", "italian", "portuguese", "spanish", "dutch")
KEPT = (
    "replace_characters",
    "remove_semicolons",
    "pad_with_spaces_for_short_inputs",
    "append_terminal_punctuation",
    "capitalize_first_letter",
    "model_recommended_frames_after_eos",
)

TEXTS = {
    "english": [
        "Hello world. I am small and quick; I hope that you like me!",
        "the value of pi is 3.14159, roughly. e is 2.718",
        "Dr. Smith paid $1,234.56 on 3.4.2026... Really?! Yes.",
        "“Quoted,” she said – and ‘left’ — at once:",
        'She asked, "Are you there?", and waited (for a while)',
        "one two three four",
        "hi",
        "A list: first, the reading of it; second, the writing of it; third, what is left of all "
        "that was neither read nor written by anybody who had the time, the patience and the wish "
        "to do so, as long as there was any light at all to read by, which was not for very long.",
        "no punctuation whatever goes through this rather long sentence that simply continues on "
        "and on until the very patience of everybody who listens to it has come to its end and "
        "beyond it into the night where nothing is heard but the wind in the trees",
    ],
    "french": [
        "Bonjour le monde. Je suis petit ; et rapide : j’espère que vous m’aimerez !",
        "« Où est-il ? », demanda-t-elle (encore une fois) – puis elle partit…",
        "Il coûte 3,50 € [environ]; c’est peu",
        "oui",
    ],
    "german": [
        "Hallo Welt; ich bin klein – und „schnell genug“ — für alles!",
        "ärger im Übermaß: Straße, Füße, 3.500,75 Euro. Und jetzt?",
        "»Gut«, sagte er",
        "ß",
    ],
    "italian": ["Ciao mondo. Perché no? È così: «bello», 2.5 volte", "perché"],
    "portuguese": ["Olá mundo – não é “assim” (talvez). Será?", "ação e reação, em 1.5 segundos"],
    "spanish": ["¡Hola mundo! ¿Qué tal? [bien]; “sí”, señor", "mañana"],
}
HARD = {
    "empty": ["", " ", "\n\t \r\n"],
    "quotes": ['"', "''", "«»", '("")', '"."', "...", "?!", ",", "-", " – "],
    "emoji": ["😀", "😀🎉👍🏽", "Hi 😀! Bye 👩‍👩‍👧", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢"],
    "digits": ["1234567890" * 10, "1." * 50, "3.3.3.3", "١٢.٣٤"],
    "scripts": ["Привет, мир. Как дела?", "你好。世界！", "こんにちは", "مرحبا بالعالم؟"],
    "white": [
        "a  b   c    d",
        "line one\nline two\r\nline three",
        "tab\tand\u00a0space",
        " a\u2028b",
    ],
    "closers": ['He said "no"', "(in brackets)", 'it ends,  "', "dash -", "so :)", 'end.")  '],
}
LONG = {
    "paragraphs": ("The first of them is short. The second, with a comma, is not so short. ", 282),
    "words": ("word ", 100),
    "stops": (". ", 2000),
}


def vocabularies(folder: Path) -> None:
    """A unigram and a BPE model of 400 pieces, and the unigram's as tokenizer.json."""
    import sentencepiece
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    corpus = [text for texts in TEXTS.values() for text in texts] * 4
    marks = ["...", "!", "?", ".", ",", ";", ":"]
    for kind, pieces in (("unigram", 420), ("bpe", 420)):
        written = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus), model_writer=written, vocab_size=pieces,
            model_type=kind, character_coverage=1.0, normalization_rule_name="identity",
            remove_extra_whitespaces=False, byte_fallback=True, num_threads=1, minloglevel=2,
            user_defined_symbols=marks if kind == "unigram" else [],
        )  # fmt: skip
        (folder / f"{kind}.model").write_bytes(written.getvalue())
    model = sentencepiece.SentencePieceProcessor(str(folder / "unigram.model"))
    scored = [(model.id_to_piece(i), model.get_score(i)) for i in range(model.get_piece_size())]
    reader = Tokenizer(models.Unigram(scored, unk_id=model.unk_id(), byte_fallback=True))
    reader.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    reader.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always"), decoders.Fuse()]
    )
    reader.save(str(folder / "unigram.json"))


def rules() -> dict[str, Any]:
    """What every published configuration says of texts, and where its files are."""
    from pocket_tts.utils.config import CONFIGS_DIR, load_config

    found = {}
    for path in sorted(CONFIGS_DIR.glob("*.yaml")):
        config = load_config(path)
        found[path.stem] = {
            **{name: getattr(config, name) for name in KEPT},
            "weights": config.weights_path,
            "ungated": config.weights_path_without_voice_cloning,
            "tokenizer": config.flow_lm.lookup_table.tokenizer_path,
            "temperature": config.default_temperature,
            "eos_threshold": config.default_eos_threshold,
        }
    return found


def voices() -> dict[str, Any]:
    """The names of the makers' voices, which is the usual one, and where one lies."""
    from pocket_tts import default_parameters as given
    from pocket_tts.utils import utils

    names = sorted(utils._ORIGINS_OF_PREDEFINED_VOICES)
    configs = sorted(rules())
    return {
        "names": names,
        "usual": {name: given.get_default_voice_for_language(name) for name in configs},
        "place": utils.get_predefined_voice("LANGUAGE", "NAME"),
    }


def texts(folder: Path) -> list[dict[str, Any]]:
    """Each text made ready, its ids, and its pieces; long ones by the sum of their pieces."""
    from pocket_tts.models import text_chunking
    from pocket_tts.modules.text_conditioner import build_tokenizer
    from pocket_tts.utils.config import CONFIGS_DIR, load_config

    readers = {}
    for name in ("unigram.json", "unigram.model", "bpe.model"):
        readers[name] = build_tokenizer(_pieces(folder / name), str(folder / name), "")
    found = []

    def record(config: str, text: str, reader: str, most: int, short: dict[str, Any]) -> None:
        given = load_config(CONFIGS_DIR / f"{config}.yaml")
        arguments = (
            given.pad_with_spaces_for_short_inputs, given.remove_semicolons,
            given.append_terminal_punctuation, given.capitalize_first_letter,
            given.replace_characters,
        )  # fmt: skip
        one: dict[str, Any] = {"config": config, **short, "reader": reader, "most": most}
        try:
            ready, rest = text_chunking.prepare_text_prompt(text, *arguments)
            pieces = text_chunking.split_into_best_sentences(
                readers[reader], text, most, *arguments
            )
            lines = [text_chunking.prepare_text_prompt(piece, *arguments) for piece in pieces]
        except ValueError:
            one["empty"] = True
        else:
            ids = [readers[reader].encode(line) for line, _ in lines]
            whole = [pieces, [line for line, _ in lines], [more + 2 for _, more in lines], ids]
            if "times" in short:
                one["count"] = len(pieces)
                one["sum"] = hashlib.sha256(json.dumps(whole).encode()).hexdigest()
            else:
                one["ready"], one["rest"] = ready, rest + 2
                one["pieces"], one["lines"], one["rests"], one["ids"] = whole
        found.append(one)

    for language, given in TEXTS.items():
        for text in given:
            for reader in readers:
                record(language, text, reader, 50, {"text": text})
            record(language, text, "unigram.json", 12, {"text": text})
    for given in HARD.values():
        for text in given:
            for config in ("english", "french", "english_2026-01", "english_2m_2026-10"):
                record(config, text, "unigram.json", 50, {"text": text})
            record("spanish", text, "bpe.model", 5, {"text": text})
    for text, times in LONG.values():
        for reader in ("unigram.json", "bpe.model"):
            record("english", text * times, reader, 50, {"text": text, "times": times})
    return found


def noise() -> list[dict[str, Any]]:
    """Draws in a row of one seed each."""
    import torch

    found = []
    for seed, width, std, clamp in (
        (0, 32, 1.0, None), (42, 32, 0.3**0.5, None), (-5, 32, 0.3**0.5, None),
        (123456789012, 32, 0.7**0.5, None), (1, 40, 1.0, None), (7, 8, 1.0, None),
        (7, 9, 0.5, None), (3, 32, 0.0, None), (11, 32, 0.3**0.5, 1.0),
        (12, 32, 1.0, 0.7), (13, 32, 1.0, 0.2),
        (14, 16, 2.0, 0.3), (15, 8, 1.0, 1.0),
    ):  # fmt: skip
        torch.manual_seed(seed)
        rows = []
        for _ in range(4):
            row = torch.empty(1, width)
            if clamp is None:
                torch.nn.init.normal_(row, 0.0, std)
            else:
                torch.nn.init.trunc_normal_(row, 0.0, std, -clamp, clamp)
            rows.append([float(value) for value in row[0]])
        found.append({"seed": seed, "width": width, "std": std, "clamp": clamp, "rows": rows})
    return found


def wave(rate: int, seconds: float) -> np.ndarray:
    """Something like a voice that falls silent: float32 [samples]."""
    t = np.arange(int(rate * seconds)) / rate
    tones = (110.0, 220.0, 1500.0, 3400.0)
    sound = sum(np.sin(2 * np.pi * f * t * (1 + 0.05 * t)) / f for f in tones)
    return (20 * sound * np.exp(-3 * t)).astype(np.float32)


def resampled() -> list[dict[str, Any]]:
    """Samples at a few places after resampling to 24,000 Hz, and their number."""
    import torch
    from pocket_tts.data.audio_utils import convert_audio

    found = []
    for rate, seconds in (
        (48000, 1.5), (44100, 1.5), (16000, 0.7), (8000, 0.9), (22050, 1.2), (11025, 0.3),
        (96000, 0.4), (24001, 0.2), (32000, 0.001),
    ):  # fmt: skip
        turned = convert_audio(torch.from_numpy(wave(rate, seconds))[None], rate, 24000, 1)[0]
        found.append({"rate": rate, "seconds": seconds, "samples": len(turned), **_some(turned)})
    return found


def prompts() -> list[dict[str, Any]]:
    """Samples at a few places after a recording was ended on a pause, and their number."""
    import torch
    from pocket_tts.data.audio_utils import end_on_pause

    found = []
    for seconds, silence in (
        (1.5, 0.0),
        (2.5, 0.5),
        (0.3, 0.0),
        (0.01, 0.0),
        (0.02, 0.0),
        (0.5, 3.0),
    ):
        given = np.concatenate([wave(24000, seconds), np.zeros(int(24000 * silence), np.float32)])
        ended = end_on_pause(torch.from_numpy(given)[None], 24000)[0]
        found.append(
            {"seconds": seconds, "silence": silence, "samples": len(ended), **_some(ended)}
        )
    return found


def _some(samples: Any) -> dict[str, Any]:
    """The first and last samples and some between."""
    places = sorted(
        {*range(0, len(samples), 397), *range(len(samples))[:24], *range(len(samples))[-24:]}
    )
    return {"places": places, "values": [round(float(samples[i]), 9) for i in places]}


def _pieces(path: Path) -> int:
    import sentencepiece

    return int(sentencepiece.SentencePieceProcessor(str(path.with_suffix(".model"))).vocab_size())


def _write(path: Path, value: Any) -> None:
    lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in value)
    if isinstance(value, dict):
        path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    else:
        path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def main() -> None:
    """Writes everything."""
    with tempfile.TemporaryDirectory() as place:
        made = Path(place)
        vocabularies(made)
        found = {"texts": texts(made), "rules": rules(), "noise": noise(), "prompts": prompts(),
                 "voices": voices()}  # fmt: skip
        VECTORS.mkdir(parents=True, exist_ok=True)
        for path in made.iterdir():
            (VECTORS / path.name).write_bytes(path.read_bytes())
    for name, value in found.items():
        _write(VECTORS / f"{name}.json", value)
    _write(CORE / "resampled.json", resampled())


if __name__ == "__main__":
    main()
