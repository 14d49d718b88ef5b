"""Records what the makers' Pocket TTS makes of seeded weights: voices, latents, sound.

    pip install pocket-tts==4.0.1
    python -m ref.pocket_tts [VARIANT...]

writes golem-pockettts/tests/recordings/VARIANT.npz, by default of all small ones:

voice      of the last layer, keys and values of a cloned recording [2, positions, heads, dim]
latents    [frames, 32], of all lines in turn
frames     of each line
sound      every seventh sample of all lines
ids, rest  of each line: its pieces, and the frames after its end
weights    the checksum of the file that was read

and many_VARIANT.npz of the texts of `MANY`: `weights`, and of the Nth text its `N.frames`, every
third of its latents and every 61st sample of its sound.

    python -m ref.pocket_tts --of FOLDER FILE.npz

writes what a recording of a VARIANT has for the model in FOLDER; with `--many` instead of `--of`
what its many_VARIANT.npz has. Without a model.yaml the folder is one of a published model's name,
and the makers' own yaml of it is taken.

`ref.drawn_pocket` writes the weights, `recording` the sound that a voice is made of.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ref.drawn_pocket import TINY, write

RATE, EVERY = 24000, 7
SEED = 42
TEXT = "This is a test of all that we say. Is it fine? Yes, and it is more of it than before."
MOST = 12  # pieces of a line
# (language, text): each is spoken under the rules of its language with the seed of its place.
MANY = (
    ("english", "Hello world. I am small and quick; I hope that you like me!"),
    ("english", "the value of pi is 3.14159, roughly. e is 2.718"),
    ("english", "“Quoted,” she said – and ‘left’ — at once:"),
    ("english", "hi"),
    ("french", "Bonjour le monde. Je suis petit ; et rapide : j’espère que vous m’aimerez !"),
    ("french", "« Où est-il ? », demanda-t-elle (encore une fois) – puis elle partit…"),
    ("french", "Il coûte 3,50 € [environ]; c’est peu"),
    ("german", "Hallo Welt; ich bin klein – und „schnell genug“ — für alles!"),
    ("german", "ärger im Übermaß: Straße, Füße, 3.500,75 Euro. Und jetzt?"),
    ("german", "»Gut«, sagte er"),
    ("italian", "Ciao mondo. Perché no? È così: «bello», 2.5 volte"),
    ("italian", "perché"),
    ("italian", "Dove vai? A casa. E poi? Non lo so, forse dormo."),
    ("portuguese", "Olá mundo – não é “assim” (talvez). Será?"),
    ("portuguese", "ação e reação, em 1.5 segundos"),
    ("portuguese", "Um, dois, três. Quatro, cinco! Seis?"),
    ("spanish", "¡Hola mundo! ¿Qué tal? [bien]; “sí”, señor"),
    ("spanish", "mañana"),
    ("spanish", "Uno dos tres. Cuatro cinco seis, siete ocho. Nueve diez."),
    ("english", "One. Two. Three. Four, five and six; seven. Eight? Nine! Ten."),
)
MANY_MOST, MANY_LATENTS, MANY_EVERY = 24, 3, 61
RULES = (
    "pad_with_spaces_for_short_inputs", "remove_semicolons", "append_terminal_punctuation",
    "capitalize_first_letter",
)  # fmt: skip
TESTS = Path(__file__).parent.parent / "golem-pockettts" / "tests"
STEPS = {"tiny_matching": 16}
# The bias of the logit that ends a line: so that lines end after a dozen frames.
EOS = {"tiny_drifting": -1.5, "tiny_pointwise": -1.5}
USUAL_EOS = -5.0


def recording(seconds: float = 1.0) -> np.ndarray:
    """A tone that rises and swells, with some noise: float32 [samples]."""
    t = np.arange(int(RATE * seconds)) / RATE
    tone = 0.2 * np.sin(2 * np.pi * (110 + 60 * t) * t) * (0.6 + 0.4 * np.sin(6 * np.pi * t))
    noise = np.random.default_rng(3).standard_normal(len(t))
    return (tone + 0.02 * noise).astype(np.float32)


def checksum(folder: Path) -> str:
    """Of a model's weights."""
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


class Spied:
    """What a model of the makers' program draws: of each line its frames, pieces and rest."""

    def __init__(self, model: Any) -> None:
        self.latents: list[np.ndarray] = []
        self.lines: list[list[int]] = []
        self.rests: list[int] = []
        self.counts: list[int] = []
        draw, short = model._run_flow_lm, model._generate_audio_stream_short_text

        def drawing(**given):  # noqa: ANN003, ANN202
            found = draw(**given)
            if given["backbone_input_latents"].shape[1]:
                self.latents.append(found[0].numpy()[0, 0].copy())
            return found

        def line(**given):  # noqa: ANN003, ANN202
            ids = model.flow_lm.conditioner.prepare(given["text_to_generate"])[0].tolist()
            self.lines.append(ids)
            self.rests.append(given["frames_after_eos"])
            begun, made = len(self.latents), 0
            for sound in short(**given):
                made += len(sound)
                yield sound
            self.counts.append(made // 1920)
            del self.latents[begun + self.counts[-1] :]  # the last is drawn and not spoken

        model._run_flow_lm, model._generate_audio_stream_short_text = drawing, line

    def clear(self) -> None:
        """Begins anew."""
        for kept in (self.latents, self.lines, self.rests, self.counts):
            kept.clear()


def loaded(folder: Path, steps: int) -> Any:
    """The makers' model of a folder; the files are the folder's whatever the yaml says."""
    from pocket_tts import TTSModel
    from pocket_tts.utils.config import CONFIGS_DIR

    with tempfile.TemporaryDirectory() as place:
        path = folder / "model.yaml"
        if not path.exists():
            given = yaml.safe_load((CONFIGS_DIR / f"{folder.name}.yaml").read_text("utf-8"))
            given["weights_path"] = str(folder / "model.safetensors")
            vocabulary = next(folder.glob("tokenizer.*"))
            given["flow_lm"]["lookup_table"]["tokenizer_path"] = str(vocabulary)
            path = Path(place) / "model.yaml"
            path.write_text(yaml.safe_dump(given), encoding="utf-8")
        model = TTSModel.load_model(config=str(path), sampler_decode_steps=steps)
    model.max_decoder_frames_per_call = 1
    return model


def voiced(model: Any, folder: Path) -> Any:
    """The voice of `recording`, or where the weights make none the folder's first."""
    import torch

    if model.flow_lm.speaker_proj_weight.any():
        return model.get_state_for_audio_prompt(torch.from_numpy(recording())[None])
    return model.get_state_for_audio_prompt(min((folder / "embeddings").glob("*.safetensors")))


def record(folder: Path, steps: int = 1) -> dict[str, np.ndarray]:
    """What the makers' program makes of the model in a folder."""
    import torch

    model = loaded(folder, steps)
    voice = voiced(model, folder)
    last = list(voice.values())[-1]["cache"][:, 0].numpy()
    spied = Spied(model)
    torch.manual_seed(SEED)
    stream = model.generate_audio_stream(voice, TEXT, max_tokens=MOST)
    sound = np.concatenate([piece.numpy() for piece in stream])
    longest = max(map(len, spied.lines))
    return {
        "voice": last,
        "latents": np.array(spied.latents),
        "frames": np.array(spied.counts),
        "sound": sound[::EVERY],
        "ids": np.array([ids + [-1] * (longest - len(ids)) for ids in spied.lines]),
        "rest": np.array(spied.rests),
        "weights": np.array(checksum(folder)),
    }


def many(folder: Path, steps: int = 1) -> dict[str, np.ndarray]:
    """What the makers' program makes of each of `MANY`."""
    import torch
    from pocket_tts.utils.config import CONFIGS_DIR, load_config

    model = loaded(folder, steps)
    voice = voiced(model, folder)
    spied = Spied(model)
    found = {"weights": np.array(checksum(folder))}
    for i, (language, text) in enumerate(MANY):
        rules = load_config(CONFIGS_DIR / f"{language}.yaml")
        for name in RULES:
            setattr(model, name, getattr(rules, name))
        model.replace_characters = rules.replace_characters or {}
        spied.clear()
        torch.manual_seed(i)
        stream = model.generate_audio_stream(voice, text, max_tokens=MANY_MOST)
        sound = np.concatenate([piece.numpy() for piece in stream])
        found[f"{i}.frames"] = np.array(spied.counts)
        found[f"{i}.latents"] = np.array(spied.latents)[::MANY_LATENTS]
        found[f"{i}.sound"] = sound[::MANY_EVERY]
    return found


def main() -> None:
    """See the module."""
    if sys.argv[1:2] == ["--of"]:
        np.savez(sys.argv[3], **record(Path(sys.argv[2])))  # type: ignore[arg-type]
        return
    if sys.argv[1:2] == ["--many"]:
        np.savez(sys.argv[3], **many(Path(sys.argv[2])))  # type: ignore[arg-type]
        return
    place = TESTS / "recordings"
    place.mkdir(exist_ok=True)
    for variant in sys.argv[1:] or TINY:
        with tempfile.TemporaryDirectory() as made:
            tokenizer = TESTS / "vectors" / "unigram.model"
            eos = EOS.get(variant, USUAL_EOS)
            folder = write(Path(made), variant, eos=eos, tokenizer=tokenizer)
            steps = STEPS.get(variant, 1)
            for name, found in (
                (variant, record(folder, steps)),
                (f"many_{variant}", many(folder, steps)),
            ):
                np.savez_compressed(place / f"{name}.npz", **found)  # type: ignore[arg-type]
                print(name, [v.tolist() for key, v in found.items() if key.endswith("frames")])


if __name__ == "__main__":
    main()
