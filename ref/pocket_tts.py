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

`ref.drawn_pocket` writes the weights, `recording` the sound that a voice is made of.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

import numpy as np

from ref.drawn_pocket import TINY, write

RATE, EVERY = 24000, 7
SEED = 42
TEXT = "This is a test of all that we say. Is it fine? Yes, and it is more of it than before."
MOST = 12  # pieces of a line
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


def record(folder: Path, steps: int = 1) -> dict[str, np.ndarray]:
    """What the makers' program makes of the model in a folder."""
    import torch
    from pocket_tts import TTSModel

    model = TTSModel.load_model(config=str(folder / "model.yaml"), sampler_decode_steps=steps)
    model.max_decoder_frames_per_call = 1
    voice = model.get_state_for_audio_prompt(torch.from_numpy(recording())[None])
    last = list(voice.values())[-1]["cache"][:, 0].numpy()
    latents: list[np.ndarray] = []
    lines: list[list[int]] = []
    rests: list[int] = []
    counts: list[int] = []
    draw, short = model._run_flow_lm, model._generate_audio_stream_short_text

    def drawing(**given):  # noqa: ANN003, ANN202
        found = draw(**given)
        if given["backbone_input_latents"].shape[1]:
            latents.append(found[0].numpy()[0, 0].copy())
        return found

    def line(**given):  # noqa: ANN003, ANN202
        lines.append(model.flow_lm.conditioner.prepare(given["text_to_generate"])[0].tolist())
        rests.append(given["frames_after_eos"])
        begun, made = len(latents), 0
        for sound in short(**given):
            made += len(sound)
            yield sound
        counts.append(made // 1920)
        del latents[begun + counts[-1] :]  # the last is drawn and not spoken

    model._run_flow_lm, model._generate_audio_stream_short_text = drawing, line
    torch.manual_seed(SEED)
    stream = model.generate_audio_stream(voice, TEXT, max_tokens=MOST)
    sound = np.concatenate([piece.numpy() for piece in stream])
    longest = max(map(len, lines))
    return {
        "voice": last,
        "latents": np.array(latents),
        "frames": np.array(counts),
        "sound": sound[::EVERY],
        "ids": np.array([ids + [-1] * (longest - len(ids)) for ids in lines]),
        "rest": np.array(rests),
        "weights": np.array(checksum(folder)),
    }


def main() -> None:
    """See the module."""
    for variant in sys.argv[1:] or TINY:
        with tempfile.TemporaryDirectory() as place:
            tokenizer = TESTS / "vectors" / "unigram.model"
            folder = write(
                Path(place), variant, eos=EOS.get(variant, USUAL_EOS), tokenizer=tokenizer
            )
            found = record(folder, STEPS.get(variant, 1))
        out = TESTS / "recordings" / f"{variant}.npz"
        out.parent.mkdir(exist_ok=True)
        np.savez_compressed(out, **found)  # type: ignore[arg-type]
        deviation = float(found["sound"].std())
        print(out.name, found["frames"].tolist(), f"deviation {deviation:.3f}")


if __name__ == "__main__":
    main()
