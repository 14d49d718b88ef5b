"""The conformance suite of a `Generator`: what every plugin for a language model is held to.

A plugin's test is a class of a few lines; pytest runs the suite's tests as its own::

    from golem_core.testing import GeneratorSuite, decoder

    class TestQwen2(GeneratorSuite):
        tiny = decoder("qwen2", block={"attn_q.bias": (64,), ...})

The suite writes the tiny model, finds the plugin through its entry point, and compares the devices
with the numpy reference. What it cannot know is whether the mathematics is the paper's: that is for
recordings of the authors' implementation.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pytest

from golem_core import load, plugins
from golem_core.engine import Engine, Request, start_engine
from golem_core.errors import BadWeights, Unsupported
from golem_core.graph import Graph
from golem_core.model import Generator, Options
from golem_core.sampling import Logprobs, Sampling
from golem_core.testing.passes import Passes
from golem_core.testing.tiny import TOKENS, VOCAB, Tiny
from golem_core.weights import Weights, open_weights

LENGTH = 80  # tokens of a test's text: more than two pages, less than three

# Devices round differently; each waypoint is compared to its own largest magnitude.
CLOSE = 1e-4


def devices() -> list[str]:
    """What is compared with the reference: GOLEM_TEST_DEVICES by comma, otherwise the processor."""
    return os.environ.get("GOLEM_TEST_DEVICES", "cpu").split(",")


def some_ids(length: int = LENGTH, seed: int = 1) -> list[int]:
    """Ordinary token ids of the tiny vocabulary."""
    return [int(i) for i in np.random.default_rng(seed).integers(0, 256, length)]


class GeneratorSuite:
    """Derive from it and set `tiny`. Everything else has a default.

    tiny         the model that the tests are made on
    optional     parts of names of tensors that a file may lack (``output.weight``, ``.bias``)
    formats      formats in which the tiny model is also run
    parts        waypoints that every block has
    astray       how far a format's logits may be from the exact ones, of the largest
    """

    tiny: ClassVar[Tiny]
    optional: ClassVar[tuple[str, ...]] = ("output.weight", "rope_freqs")
    formats: ClassVar[tuple[str, ...]] = ("F16", "BF16", "Q8_0", "Q4_0")
    astray: ClassVar[float] = 0.05  # eight bits of an activation are half a percent of its largest
    parts: ClassVar[tuple[str, ...]] = (
        "attend",
        "attn_output",
        "attn_residual",
        "ffn_down",
        "out",
    )

    @pytest.fixture
    def weights(self, tmp_path: Path) -> Iterator[Weights]:
        """The tiny model in float32."""
        with open_weights(self.tiny.write(tmp_path / "tiny.gguf")) as weights:
            yield weights

    @pytest.fixture
    def model(self, weights: Weights) -> Generator:
        """The plugin's class, found as golem finds it, opened on the tiny model."""
        return self.opened(weights)

    def opened(self, weights: Weights) -> Generator:
        """What the installed plugin makes of some weights."""
        kind = plugins.find(weights.architecture)
        assert issubclass(kind, Generator)
        return kind.open(weights, Options())

    def open_tiny(self, tiny: Tiny, folder: Path) -> Generator:
        """What the installed plugin makes of a variant of the tiny model."""
        with open_weights(tiny.write(folder / "variant.gguf")) as weights:
            return self.opened(weights)

    def refusal(self, tiny: Tiny, folder: Path) -> str | None:
        """What the plugin says against a variant of the tiny model; None if it opens it."""
        try:
            self.open_tiny(tiny, folder)
        except (BadWeights, Unsupported) as error:
            return str(error)
        return None

    # What it claims, and what it refuses

    def test_plugin_is_installed(self) -> None:
        """The architecture is claimed by an entry point, and what it names imports."""
        (found,) = (p for p in plugins.installed() if p.name == self.tiny.architecture)
        assert found.error is None, found.error

    def test_geometry(self, model: Generator) -> None:
        """Vocabulary and context are those of the file."""
        assert model.vocab == VOCAB
        assert model.context == self.tiny.keys["context_length"]

    def test_missing_keys(self, tmp_path: Path) -> None:
        """A key that is missing has a default, or is refused by name."""
        for key in self.tiny.keys:
            refusal = self.refusal(self.tiny.with_key(key, None), tmp_path)
            # Its default may also clash with another key, or with a tensor's shape.
            named = refusal is None or any(k in refusal for k in (*self.tiny.keys, "expected"))
            assert named, f"{key}: {refusal}"

    @pytest.mark.parametrize("value", ["words", -1, 0, 1, 7, 2**32 - 1, float("nan"), [1, 2]])
    def test_strange_keys(self, tmp_path: Path, value: object) -> None:
        """A key of any value opens, or is refused as bad or unsupported: nothing else is raised."""
        for key, honest in self.tiny.keys.items():
            refusal = self.refusal(self.tiny.with_key(key, value), tmp_path)
            text_for_number = isinstance(honest, (int, float)) and isinstance(value, str)
            assert refusal or not text_for_number, f"{key} is {value!r} and opens"

    def test_missing_tensors(self, tmp_path: Path) -> None:
        """A tensor that is missing is refused by name, unless files may lack it."""
        for name in self.tiny.tensors:
            if any(part in name for part in self.optional):
                continue
            with pytest.raises(BadWeights) as caught:
                self.open_tiny(self.tiny.with_tensor(name, None), tmp_path)
            assert name in str(caught.value)

    def test_misshapen_tensors(self, tmp_path: Path) -> None:
        """A tensor of another shape is refused by name."""
        for name, shape in self.tiny.tensors.items():
            with pytest.raises(BadWeights) as caught:
                self.open_tiny(self.tiny.with_tensor(name, (*shape[:-1], shape[-1] + 2)), tmp_path)
            assert name in str(caught.value)

    def test_tensors_that_nobody_reads(self, tmp_path: Path) -> None:
        """A tensor that the pass does not read is refused by name: it would change the answer."""
        unread = {"blk.0.ffn_gate_inp.weight", "blk.0.attn_unheard_of.weight"}
        for name in unread - self.tiny.tensors.keys():
            with pytest.raises(Unsupported, match=name):
                self.open_tiny(self.tiny.with_tensor(name, (4, 64)), tmp_path)

    # What it records

    def test_waypoints_are_named(self, model: Generator, weights: Weights) -> None:
        """Everything that the world compares has its name."""
        graph = Graph(weights)
        logits = model.forward(graph)
        names = graph.named()
        blocks, guessing = self.tiny.keys["block_count"], self.tiny.keys.get("nextn_predict_layers")
        assert isinstance(blocks, int)
        assert isinstance(guessing, (int, type(None)))
        assert {"token_embd", "output_norm", "logits"} <= set(names)
        for block in range(blocks - (guessing or 0)):
            for part in self.parts:
                assert f"blk.{block}.{part}" in names
        assert logits.name == "logits"
        assert logits.rows == "m"
        assert logits.shape == (VOCAB,)

    def test_forward_can_be_recorded_again(self, model: Generator, weights: Weights) -> None:
        """Each program has its own record; a model keeps nothing of it."""
        first, second = Graph(weights), Graph(weights)
        model.forward(first)
        model.forward(second)
        assert [op.name for op in first.ops] == [op.name for op in second.ops]
        assert len(first.caches) == len(second.caches)

    # What it computes

    @pytest.mark.parametrize("device", devices())
    def test_waypoints_agree(self, device: str, model: Generator, weights: Weights) -> None:
        """Every waypoint of a device is the reference's, in float32."""
        ids = some_ids()
        with Passes(model, weights, "reference", kv="f32") as passes:
            wanted = passes.trace(ids)
        with Passes(model, weights, device, kv="f32", keep=None) as passes:
            found = passes.trace(ids)
        for name, values in found.items():
            compare(values, wanted[name], CLOSE, name)
        assert "logits" in found

    @pytest.mark.parametrize("device", devices())
    def test_formats_agree(self, device: str, tmp_path: Path) -> None:
        """In other formats the logits stay near to those of the same values in float32."""
        ids = some_ids(24)
        for form in self.formats:
            with open_weights(self.tiny.write(tmp_path / f"{form}.gguf", form)) as weights:
                model = self.opened(weights)
                with Passes(model, weights, "reference") as passes:
                    (wanted,) = passes.run((0, ids))
                with Passes(model, weights, device) as passes:
                    (found,) = passes.run((0, ids))
            compare(found, wanted, self.astray, form)

    @pytest.mark.parametrize("device", devices())
    def test_company_changes_nothing(self, device: str, model: Generator, weights: Weights) -> None:
        """Logits are the same to the bit alone, among others, and read in pieces of any size.

        The reference alone is only near: its sums are numpy's, whose order depends on the rows.
        """
        texts = [some_ids(LENGTH, seed) for seed in range(1, 4)]
        kv = "f32" if device == "reference" else "f16"

        def check(found: npt.NDArray[np.float32], how: str) -> None:
            if device == "reference":
                compare(found, alone, CLOSE, f"logits, {how},")
            else:
                assert np.array_equal(found, alone), f"logits change {how}"

        with Passes(model, weights, device, kv=kv) as passes:
            (alone,) = passes.run((0, texts[0]))
        with Passes(model, weights, device, sequences=3, kv=kv) as passes:
            check(passes.run(*enumerate(texts))[0], "beside others")
        for size in (1, 7, 32):
            with Passes(model, weights, device, kv=kv) as passes:
                starts = range(0, LENGTH, size)
                pieces = [passes.run((0, texts[0][at : at + size]))[0] for at in starts]
            check(np.concatenate(pieces), f"in pieces of {size}")

    @pytest.mark.parametrize("device", devices())
    def test_what_is_asked_for_changes_nothing(
        self, device: str, model: Generator, weights: Weights
    ) -> None:
        """The last logits of a text are the same, to the bit, when no others are asked for.

        As everywhere, the reference is only near.
        """
        texts = [some_ids(LENGTH, seed) for seed in range(1, 4)]
        kv = "f32" if device == "reference" else "f16"
        with Passes(model, weights, device, sequences=3, kv=kv) as passes:
            wanted = [logits[-1] for logits in passes.run(*enumerate(texts))]
        for size in (LENGTH, 9):
            with Passes(model, weights, device, sequences=3, kv=kv) as passes:
                for at in range(0, LENGTH, size):
                    pieces = [text[at : at + size] for text in texts]
                    found = passes.run(*enumerate(pieces), every=False)
            for (one,), logits in zip(found, wanted, strict=True):
                if device == "reference":
                    compare(one, logits, CLOSE, "the last logits, asked for alone,")
                else:
                    assert np.array_equal(one, logits), f"the last logits in pieces of {size}"

    @pytest.mark.parametrize("device", devices())
    def test_a_rewind_changes_nothing(
        self, device: str, model: Generator, weights: Weights
    ) -> None:
        """What is read again after another end was forgotten gives the same logits, to the bit.

        As everywhere, the reference is only near.
        """
        graph = Graph(weights)
        model.forward(graph)
        if graph.states:
            pytest.skip("states do not go back")
        ids, others = some_ids(), some_ids(seed=2)
        kv = "f32" if device == "reference" else "f16"
        with Passes(model, weights, device, kv=kv) as passes:
            (alone,) = passes.run((0, ids))
            for start, end in ((LENGTH // 3, LENGTH - 7), (3, LENGTH), (LENGTH - 2, LENGTH)):
                passes.rewind(0, start)
                passes.run((0, others[start:end]))
                passes.rewind(0, start)
                (again,) = passes.run((0, ids[start:]))
                if device == "reference":
                    compare(again, alone[start:], CLOSE, f"logits, after a rewind to {start},")
                else:
                    assert np.array_equal(again, alone[start:]), f"after a rewind to {start}"

    def test_the_past_counts_and_the_future_does_not(
        self, model: Generator, weights: Weights
    ) -> None:
        """Changing one token changes what comes after it, and nothing before."""
        ids = some_ids(40)
        changed = [*ids[:20], (ids[20] + 1) % 256, *ids[21:]]
        logits = []
        for each in (ids, changed):
            with Passes(model, weights, "reference") as passes:
                logits += passes.run((0, each))
        same = (logits[0] == logits[1]).all(axis=1)
        assert same[:20].all()
        assert not same[20:24].any()  # near enough for any window

    def test_order_counts(self, model: Generator, weights: Weights) -> None:
        """A text backwards is another text: positions reach the attention."""
        ids = some_ids(12)
        logits = []
        for each in (ids, [*ids[-2::-1], ids[-1]]):
            with Passes(model, weights, "reference") as passes:
                logits.append(passes.run((0, each))[0][-1])
        assert np.abs(logits[0] - logits[1]).max() > 1e-3 * np.abs(logits[0]).max()

    # What it answers

    @pytest.mark.parametrize("device", devices())
    def test_guesses_and_earlier_turns_change_no_text(
        self, device: str, model: Generator, weights: Weights
    ) -> None:
        """Ids and their probabilities are, to the bit, those of a fresh engine without guesses.

        This is not so on the reference, whose last digits depend on what else is in a pass.
        """
        if device == "reference":
            pytest.skip("its sums depend on the pass")
        graph = Graph(weights)
        model.forward(graph)
        ways = ["off", "ngram"] if graph.draft is None else ["off", "ngram", "mtp"]
        first = some_ids(70)
        for seed in (None, 1):
            # Little warmth, so that there is something to guess in a text that repeats itself.
            sampling = Sampling(temperature=0.0 if seed is None else 0.3, seed=seed)

            def ask(
                engine: Engine, ids: Sequence[int], sampling: Sampling = sampling
            ) -> list[tuple[int | None, Logprobs | None]]:
                request = Request(ids, sampling, max_tokens=40, ignore_eos=True, logprobs=20)
                return [(token.id, token.logprobs) for token in engine.submit(request)]

            def start(draft: str) -> Engine:
                return start_engine(
                    model, weights, device=device, context=256, max_sequences=2, draft=draft
                )

            with start("off") as engine:
                answer = ask(engine, first)
            said = [token for token, _ in answer if token is not None]
            turns = [first, [*first, *said, *some_ids(20, 2)], [*first[:66], *some_ids(9, 3)]]
            fresh = [answer]
            for turn in turns[1:]:
                with start("off") as engine:
                    fresh.append(ask(engine, turn))
            for way in ways:
                with start(way) as engine:
                    found = [ask(engine, turn) for turn in turns]
                    stats = engine.stats()
                assert found == fresh, f"drafting {way}, seed {seed}"
                assert stats.cached_tokens == 96 + 64
                assert way == "ngram" or (stats.drafted_tokens > 0) == (way == "mtp")

    @pytest.mark.parametrize("device", devices())
    def test_answers(self, device: str, tmp_path: Path) -> None:
        """The whole way from a file and a text to a text, greedy, twice the same."""
        path = self.tiny.write(tmp_path / "tiny.gguf")
        with load(path, device=device) as loaded:
            ids = loaded.tokenize("the other thing")
            assert all(0 <= token < VOCAB for token in ids)
            answers = [
                loaded.generate(ids, max_tokens=12, temperature=0.0).complete() for _ in range(2)
            ]
            chat = loaded.chat("the other thing", max_tokens=4, temperature=0.0).complete()
        assert answers[0].ids == answers[1].ids
        assert answers[0].text == answers[1].text
        assert 0 < len(answers[0].ids) <= 12 or answers[0].finish_reason == "stop"
        assert chat.prompt_ids[0] == TOKENS.index("<|begin|>")
        assert chat.prompt_ids[-1] == TOKENS.index("<|assistant|>")


def compare(
    found: npt.NDArray[np.float32], wanted: npt.NDArray[np.float32], close: float, name: str
) -> None:
    """Fails if two arrays differ by more than `close` of the largest magnitude wanted."""
    wanted = wanted.reshape(found.shape)
    peak = np.abs(wanted).max()
    worst = np.abs(found - wanted).max()
    assert worst <= close * peak, f"{name} differs by {worst / peak:.2g} of its largest value"
