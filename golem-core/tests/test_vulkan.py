"""The Vulkan backend: whole tiny models against the reference backend, and what it refuses.

Needs Kompute (`kp`) and a Vulkan device; lavapipe, which runs on the processor, is one. What needs
neither (refusals before a device is opened) runs everywhere.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from golem_core.engine import Engine, Request
from golem_core.errors import BadRequest, DeviceError, NoMemory, Unsupported
from golem_core.graph import Graph, Tensor, compile
from golem_core.graph.record import Weight
from golem_core.sampling import Sampling
from golem_core.vulkan import limits, memory
from golem_core.vulkan.program import Recorded, VulkanProgram
from golem_core.weights import Weights, open_weights

from . import programs
from .vulkan_tiny import VOCABULARY, WIDE, Tiny, batch, close, on_device, read, tiny_tensors, write


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weights]:
    path = write(tmp_path_factory.mktemp("plain") / "plain.gguf", tiny_tensors(), "F32")
    with open_weights(path) as weights:
        yield weights


@pytest.fixture(scope="module", params=["F16", "Q8_0"])
def tiny(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tiny]:
    path = tmp_path_factory.mktemp("tiny") / f"{request.param}.gguf"
    with open_weights(write(path, tiny_tensors(), request.param)) as weights:
        yield Tiny(weights)


@pytest.fixture(scope="module")
def made(tiny: Tiny) -> Iterator[VulkanProgram]:
    """The tiny llama on the device."""
    program = compile(tiny.graph(), "vulkan", pages=(24,))
    assert isinstance(program, VulkanProgram)
    yield program
    program.close()


# Without a device


def test_a_format_without_a_shader_is_refused_by_name(tmp_path: Path) -> None:
    refusal = r"token_embd\.weight is stored as Q5_0.*F16, BF16, Q8_0"
    with open_weights(write(tmp_path / "q5.gguf", tiny_tensors(), "Q5_0")) as weights:
        g = Tiny(weights).graph()
        with pytest.raises(Unsupported, match=refusal):
            compile(g, "vulkan")


def test_heads_that_do_not_fit_are_refused(plain: Weights) -> None:
    g = Tiny(plain).graph()
    g.cache(1, 512)
    with pytest.raises(Unsupported, match="heads of 512"):
        compile(g, "vulkan")


def table(g: Graph) -> Weight:
    return g.weight("token_embd.weight", (VOCABULARY, WIDE))


def convolved(g: Graph) -> Tensor:
    narrow = g.linear(g.embed(table(g)), g.weight("blk.0.attn_k.weight", (WIDE // 2, WIDE)))
    return g.convolve(
        narrow, g.weight("blk.0.attn_output.weight", (WIDE, WIDE)), None, g.state((1, WIDE // 2))
    )


def attended(g: Graph) -> Tensor:
    x = g.heads(g.embed(table(g)), 16)
    return g.attend_within(x, x, x, 0.25, name="seen")


@pytest.mark.parametrize(
    ("refusal", "record"),
    [
        ("given: .* no shader for input", lambda g: g.input("given", (WIDE,))),
        (
            "first: .* no shader for layer_norm",
            lambda g: g.layer_norm(g.embed(table(g)), None, None, 1e-5, name="first"),
        ),
        (
            "bent: .* no shader for activate",
            lambda g: g.activate(g.embed(table(g)), "elu", name="bent"),
        ),
        ("attn_output: .* no shader for convolve", convolved),
        ("apart: .* no shader for split", lambda g: g.split(g.embed(table(g)), 4, name="apart")),
        ("seen: .* no shader for attend_within", attended),
        ("mean: .* no shader for pool", lambda g: g.pool(g.embed(table(g)), name="mean")),
        ("by token ids alone", lambda g: g.embed(table(g), by="positions")),
        ("by token ids alone", lambda g: g.embed(table(g), by="kinds")),
        ("by token ids alone", lambda g: g.embed(table(g), by="", first=3)),
    ],
)
def test_what_has_no_shader_is_refused_by_name(
    plain: Weights, refusal: str, record: Callable[[Graph], Tensor]
) -> None:
    g = Graph(plain)
    g.result = record(g)
    with pytest.raises(Unsupported, match=refusal):
        compile(g, "vulkan", states=1)


def test_a_device_must_be_a_number(plain: Weights) -> None:
    with pytest.raises(BadRequest, match="vulkan:0"):
        compile(Tiny(plain).graph(), "vulkan:fast")


@pytest.mark.parametrize(
    ("kinds", "number"),
    [
        (["processor", "discrete"], 1),
        (["integrated", "discrete", "discrete"], 1),
        (["processor", "other", "virtual", "integrated"], 3),
        (["processor"], 0),
        (["virtual", "processor"], 0),
    ],
)
def test_a_card_is_taken_before_what_runs_on_the_processor(
    kinds: list[str], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tuple(limits.Limits(kind, kind, 0, 0, 0, 0) for kind in kinds)
    opened: list[int] = []
    monkeypatch.setattr(memory, "devices", lambda: found)
    monkeypatch.setattr(memory, "_kompute", lambda: SimpleNamespace(Manager=opened.append))
    assert memory.Device(None).limits is found[number]
    assert memory.Device(0).limits is found[0]  # what is named is what is taken
    assert opened == [number, 0]


def test_where_there_is_no_device_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "devices", lambda: ())
    monkeypatch.setattr(memory, "_kompute", SimpleNamespace)
    with pytest.raises(DeviceError, match="there is no Vulkan device"):
        memory.Device(None)
    with pytest.raises(DeviceError, match="no Vulkan device 0; found none"):
        memory.Device(0)


def test_without_kompute_the_message_says_what_to_do(
    plain: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(memory, "import_module", absent)
    with pytest.raises(DeviceError, match="bin/install-vulkan"):
        compile(Tiny(plain).graph(), "vulkan")


def test_nothing_imports_kompute_before_a_device_is_opened() -> None:
    code = "import sys, golem_core.vulkan.lower; assert 'kp' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# Whole models


@on_device
def test_a_model_of_every_operation(tmp_path: Path) -> None:
    """Windows and none, both rope layouts, biases, caps, every activation: each waypoint."""
    with programs.write(tmp_path / "every.gguf") as weights:
        g = programs.record(weights)
        made, reference = (compile(g, device, kv="f32") for device in ("vulkan", "reference"))
        for at in range(0, 72, 8):
            ids = [(at + 11 * i) % programs.VOCABULARY for i in range(8)]
            columns = programs.batch([(ids, at, [9, 4, 60])])
            found, expected = made.trace(columns), reference.trace(columns)
            for name, value in expected.items():
                close(found[name], value, 1e-4, name)
        made.close()


@on_device
def test_waypoints(tiny: Tiny, made: VulkanProgram) -> None:
    g = tiny.graph()
    reference = compile(g, "reference", pages=(24,))
    assert (made.width, made.outputs, made.vocabulary) == (8, 8, VOCABULARY)
    assert made.groups == reference.groups
    columns = batch([((1, 2, 3, 4, 5), 0, (2,)), ((9, 8, 7), 0, (0,))], [4, 7])
    found, expected = made.trace(columns), reference.trace(columns)
    assert list(found) == list(g.named())
    for name, value in expected.items():
        close(found[name], value, 1e-4, name)
    assert list(made.trace(columns, ["blk.1.out"])) == ["blk.1.out"]
    assert made.trace(columns, []) == {}
    with pytest.raises(BadRequest, match=r"no waypoint blk\.9\.out"):
        made.trace(columns, ["blk.9.out"])
    with pytest.raises(BadRequest, match=r"no waypoint blk\.9\.out"):
        compile(g, "vulkan", keep=("blk.9.out",))


@on_device
def test_greedy_ids(tiny: Tiny, made: VulkanProgram) -> None:
    drawn = []
    for program in (made, compile(tiny.graph(), "reference", pages=(4,))):
        ids = [5, 17, 60, 2, 33, 71, 12, 4, 8, 90]
        logits = read(program, ids, [1, 3], 8)[-1]
        for _ in range(30):
            ids.append(int(logits.argmax()))
            logits = read(program, ids[-1:], [1, 3], 1, start=len(ids) - 1)[-1]
        drawn.append(ids)
    assert drawn[0] == drawn[1]


@on_device
def test_logits_do_not_depend_on_company(made: VulkanProgram) -> None:
    """To the bit: alone, in pieces of 1, 3 and 8, in other pages, beside seven others."""
    ids = np.random.default_rng(1).integers(0, VOCABULARY, 40).tolist()
    alone = read(made, ids, [0, 1], 8)
    for pieces, pages in ((1, [2, 3]), (3, [5, 4])):
        np.testing.assert_array_equal(read(made, ids, pages, pieces), alone)
    others = [(2 * i, 2 * i + 1) for i in range(7)]
    for at, token in enumerate(ids):
        parts: list[tuple[Sequence[int], int, Sequence[int]]] = [
            ((at + i,), at, pages) for i, pages in enumerate(others)
        ]
        parts.insert(at % 8, ((token,), at, (22, 23)))
        logits = made.run(batch(parts, range(8)))
        np.testing.assert_array_equal(logits[at % 8], alone[at])


class Letters:
    """A tokenizer for the engine: every token is a byte, and none ends an answer."""

    end_ids: frozenset[int] = frozenset()

    def piece(self, token: int) -> bytes:
        return bytes([token])

    def is_control(self, token: int) -> bool:
        return False


@on_device
def test_the_engine_draws_the_same_ids(tiny: Tiny) -> None:
    """Five conversations at once in a pool with room for two, so that some are set aside."""
    random = np.random.default_rng(2)
    prompts = [random.integers(0, VOCABULARY, size).tolist() for size in (3, 40, 1, 17, 64)]
    drawn = []
    for device in ("vulkan", "reference"):
        program = compile(tiny.graph(), device, outputs=8, pages=(9,))
        with Engine(program, Letters(), context=128, max_sequences=4) as engine:
            greedy = Sampling(temperature=0.0)
            streams = [
                engine.submit(Request(prompt_ids=ids, max_tokens=24, sampling=greedy))
                for ids in prompts
            ]
            drawn.append([list(stream.result().ids) for stream in streams])
    assert drawn[0] == drawn[1]
    assert [len(ids) for ids in drawn[0]] == [24] * 5


@on_device
def test_a_matrix_larger_than_a_buffer_is_split(
    tiny: Tiny, made: VulkanProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = batch([((1, 2, 95), 0, (0,))], [0, 1, 2])
    whole = made.run(columns)
    found = [replace(device, storage_range=9000) for device in limits.devices()]
    monkeypatch.setattr(memory, "devices", lambda: found)
    monkeypatch.setattr(memory, "CHUNK", 1024)  # and go up in several chunks
    split = compile(tiny.graph(), "vulkan", pages=(4,))
    np.testing.assert_array_equal(split.run(columns), whole)
    split.close()
    with pytest.raises(NoMemory, match=r"0\.2 MiB.*0\.0 MiB"):
        compile(tiny.graph(), "vulkan", pages=(100,))


@on_device
@pytest.mark.parametrize(
    ("field", "limit", "words"), [("memory", 1 << 16, "MiB on"), ("allocations", 20, "buffers on")]
)
def test_what_does_not_fit_is_refused_before_an_upload(
    field: str, limit: int, words: str, plain: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [replace(device, **{field: limit}) for device in limits.devices()]
    monkeypatch.setattr(memory, "devices", lambda: found)
    uploads: list[np.ndarray] = []
    monkeypatch.setattr(memory.Device, "upload", lambda self, data: uploads.append(data))
    with pytest.raises(NoMemory, match=words):
        compile(Tiny(plain).graph(), "vulkan", pages=(4,))
    assert uploads == []


@on_device
def test_a_pass_that_does_not_fit_is_refused(plain: Weights) -> None:
    made = compile(Tiny(plain).graph(), "vulkan", pages=(4,))
    for columns, words in (
        (batch([(range(9), 0, (0,))], []), "9 columns"),
        (batch([((VOCABULARY,), 0, (0,))], [0]), "token ids"),
        (batch([((1,), 0, (4,))], [0]), "pages 0 to 0"),
        (batch([((1,), 40, (0,))], [0]), "pages 0 to 1"),
        (batch([((1,), 40, (-1, 0))], [0]), "pages 0 to 1"),
        (batch([((1,), 0, (0,))], [1]), "outputs"),
    ):
        with pytest.raises(ValueError, match=words):
            made.run(columns)
    one = batch([((1,), 0, (0,))], [])
    assert made.run(one).shape == (0, VOCABULARY)
    made.close()
    made.close()
    with pytest.raises(ValueError, match="closed"):
        made.run(one)


@on_device
def test_a_device_that_computes_nothing_is_an_error(
    made: VulkanProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lost:
        def eval(self) -> None: ...

    recorded = made._recorded
    assert recorded is not None
    monkeypatch.setattr(made, "_recorded", Recorded(**{**vars(recorded), "sequence": Lost()}))
    with pytest.raises(DeviceError, match="computed nothing"):
        made.run(batch([((1,), 0, (0,))], [0]))


@on_device
def test_there_is_no_such_device(plain: Weights) -> None:
    with pytest.raises(DeviceError, match="no Vulkan device 99; found 0: "):
        compile(Tiny(plain).graph(), "vulkan:99")
