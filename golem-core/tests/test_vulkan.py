"""The Vulkan backend: each shader, and a whole tiny llama, against the reference backend.

Needs Kompute (`kp`) and a Vulkan device; lavapipe, which runs on the processor, is one. What needs
neither (refusals before a device is opened, the SPIR-V against its sources) runs everywhere.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import gguf
import numpy as np
import pytest

from golem_core.engine import Engine, Request
from golem_core.errors import BadRequest, DeviceError, NoMemory, Unsupported
from golem_core.graph import PAGE, Batch, Graph, Program, Rope, Tensor, compile
from golem_core.graph.ops import ACTIVATIONS, OPS
from golem_core.sampling import Sampling
from golem_core.vulkan import limits, lower, memory
from golem_core.vulkan.program import WIDTH, Recorded, VulkanProgram
from golem_core.weights import FORMATS, Weights, open_weights

SHADERS = Path(lower.__file__).parent / "shaders"
ROOT = Path(__file__).parents[2]


def missing() -> str | None:
    """Why nothing can run on Vulkan here, or None."""
    try:
        memory.Device(0).close()
    except DeviceError as error:
        return str(error)
    return None


MISSING = missing()


def on_device(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test that needs a device, and skips it, saying why, where there is none."""
    skip = pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
    marked: Callable[..., None] = pytest.mark.vulkan(skip(test))
    return marked


VOCABULARY, WIDE, HEADS, KV_HEADS, DIM, FEED, LAYERS = 96, 64, 4, 2, 16, 96, 2


@dataclass(frozen=True)
class Tiny:
    """A llama of two layers with seeded weights in one format, and how it is run."""

    weights: Weights

    def graph(self, window: int | None = None, softcap: float = 0.0) -> Graph:
        """The forward pass of a llama, with the embedding as the output matrix too."""
        g = Graph(self.weights)
        table = g.weight("token_embd.weight", (VOCABULARY, WIDE))
        rope = Rope(DIM, 10000.0, "pairs")
        x = g.embed(table)
        for layer in range(LAYERS):
            with g.scope(f"blk.{layer}"):
                x = self._block(g, f"blk.{layer}", x, rope, window, softcap)
        x = g.pick(g.rms_norm(x, g.weight("output_norm.weight", (WIDE,)), 1e-5))
        g.result = g.linear(x, table, name="logits")
        return g

    @staticmethod
    def _block(
        g: Graph, at: str, x: Tensor, rope: Rope, window: int | None, softcap: float
    ) -> Tensor:
        def matrix(name: str, rows: int, columns: int, x: Tensor) -> Tensor:
            return g.linear(x, g.weight(f"{at}.{name}.weight", (rows, columns)))

        h = g.rms_norm(x, g.weight(f"{at}.attn_norm.weight", (WIDE,)), 1e-5)
        q = g.rope(g.heads(matrix("attn_q", HEADS * DIM, WIDE, h), DIM), rope, name="q_rope")
        k = g.rope(g.heads(matrix("attn_k", KV_HEADS * DIM, WIDE, h), DIM), rope, name="k_rope")
        v = g.heads(matrix("attn_v", KV_HEADS * DIM, WIDE, h), DIM)
        cache = g.cache(KV_HEADS, DIM, window)
        a = g.attend(q, k, v, cache, DIM**-0.5, softcap, name="attend")
        x = g.add(x, matrix("attn_output", WIDE, HEADS * DIM, a), name="attn_residual")
        h = g.rms_norm(x, g.weight(f"{at}.ffn_norm.weight", (WIDE,)), 1e-5)
        gate, up = matrix("ffn_gate", FEED, WIDE, h), matrix("ffn_up", FEED, WIDE, h)
        down = matrix("ffn_down", WIDE, FEED, g.glu(gate, up, "silu", name="ffn_act"))
        return g.add(x, down, name="out")


def write(path: Path, tensors: dict[str, np.ndarray], kind: str) -> Path:
    """A GGUF file with the tensors' matrices in format `kind` and their vectors in F32."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    for name, values in tensors.items():
        number = gguf.GGMLQuantizationType[kind if values.ndim == 2 else "F32"]
        writer.add_tensor(name, gguf.quants.quantize(values, number), raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tiny_tensors() -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)

    def normal(*shape: int) -> np.ndarray:
        return random.normal(0, 1.5 / np.sqrt(shape[-1]), shape).astype(np.float32)

    made = {"token_embd.weight": normal(VOCABULARY, WIDE), "output_norm.weight": 1 + normal(WIDE)}
    for layer in range(LAYERS):
        shapes = {
            "attn_norm": (WIDE,),
            "attn_q": (HEADS * DIM, WIDE),
            "attn_k": (KV_HEADS * DIM, WIDE),
            "attn_v": (KV_HEADS * DIM, WIDE),
            "attn_output": (WIDE, HEADS * DIM),
            "ffn_norm": (WIDE,),
            "ffn_gate": (FEED, WIDE),
            "ffn_up": (FEED, WIDE),
            "ffn_down": (WIDE, FEED),
        }
        for name, shape in shapes.items():
            made[f"blk.{layer}.{name}.weight"] = normal(*shape)
    return made


@pytest.fixture(scope="module", params=["F32", "F16", "Q8_0"])
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


def batch(
    parts: Sequence[tuple[Sequence[int], int, Sequence[int]]],
    outputs: Sequence[int],
    groups: int = 1,
) -> Batch:
    """A pass of sequences, each (ids, first position, pages)."""
    longest = max(len(pages) for _, _, pages in parts)
    table = np.full((len(parts), longest), -1, np.int32)
    for row, (_, _, pages) in enumerate(parts):
        table[row, : len(pages)] = pages
    return Batch(
        ids=np.concatenate([np.asarray(ids, np.int32) for ids, _, _ in parts]),
        positions=np.concatenate(
            [np.arange(first, first + len(ids), dtype=np.int32) for ids, first, _ in parts]
        ),
        sequence=np.repeat(np.arange(len(parts), dtype=np.int32), [len(p[0]) for p in parts]),
        pages=(table,) * groups,
        outputs=np.asarray(outputs, np.int32),
    )


def read(
    made: Program, ids: Sequence[int], pages: Sequence[int], pieces: int, start: int = 0
) -> np.ndarray:
    """The logits after each of `ids`, from position `start`, `pieces` at a time."""
    rows = []
    for at in range(0, len(ids), pieces):
        part = ids[at : at + pieces]
        rows.append(made.run(batch([(part, start + at, pages)], range(len(part)))))
    return np.concatenate(rows)


def close(found: np.ndarray, expected: np.ndarray, within: float, what: str = "") -> None:
    """Compares relative to the largest magnitude."""
    assert found.shape == expected.shape, what
    worst = np.abs(found - expected).max(initial=0.0)
    assert worst <= within * np.abs(expected).max(initial=1e-30), f"{what}: {worst}"


# Without a device


def test_every_operation_has_a_shader_and_every_shader_an_operation() -> None:
    assert set(lower.LOWER) == set(OPS)
    sources = {path.stem for path in SHADERS.glob("*.comp")}
    assert sources == {path.stem for path in SHADERS.glob("*.spv")}
    assert sources == set(OPS) - {"reshape"} | {"upload"}


def test_constants_that_the_shaders_share() -> None:
    text = "".join(path.read_text() for path in SHADERS.iterdir() if path.suffix != ".spv")
    assert re.findall(r"WIDTH = (\d+);", text) == [str(WIDTH)]
    assert re.findall(r"MOST = (\d+);", text) == [str(lower.HEAD // 32)]
    assert PAGE == 32  # a tile of attend.comp
    numbers = ", ".join(f"{number} {name}" for name, (number, _) in memory.FORMATS.items())
    assert numbers in text
    acts = ", ".join(f"{number} {name}" for number, name in enumerate(ACTIVATIONS))
    assert acts in text


def test_spirv_is_what_the_sources_give() -> None:
    if shutil.which("glslangValidator") is None or shutil.which("spirv-val") is None:
        pytest.skip("no shader compiler: apt-get install glslang-tools spirv-tools")
    command = [str(ROOT / "bin" / "compile-shaders"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 3:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr


def test_a_format_without_a_shader_is_refused_by_name(tmp_path: Path) -> None:
    refusal = r"token_embd\.weight is stored as Q4_0.*F16, Q8_0"
    with open_weights(write(tmp_path / "q4.gguf", tiny_tensors(), "Q4_0")) as weights:
        g = Tiny(weights).graph()
        with pytest.raises(Unsupported, match=refusal):
            compile(g, "vulkan")


def test_heads_that_do_not_fit_are_refused(plain: Weights) -> None:
    g = Tiny(plain).graph()
    g.cache(1, 512)
    with pytest.raises(Unsupported, match="heads of 512"):
        compile(g, "vulkan")


def test_a_device_must_be_a_number(plain: Weights) -> None:
    with pytest.raises(BadRequest, match="vulkan:0"):
        compile(Tiny(plain).graph(), "vulkan:fast")


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
    subprocess.run([import_module("sys").executable, "-c", code], check=True)


# Each operation


Build = Callable[[Graph, Tensor], Tensor]


def norm_of(g: Graph, x: Tensor) -> Tensor:
    return g.rms_norm(x, None, 1e-6)


def biased(g: Graph, x: Tensor) -> Tensor:
    weight = g.weight("blk.0.ffn_gate.weight", (FEED, WIDE))
    return g.linear(x, weight, g.weight("bias", (FEED,)))


CASES: dict[str, Build] = {
    "embed": lambda g, x: x,
    "linear": lambda g, x: g.linear(x, g.weight("blk.0.ffn_gate.weight", (FEED, WIDE))),
    "linear biased": biased,
    "rms_norm": lambda g, x: g.rms_norm(x, g.weight("output_norm.weight", (WIDE,)), 1e-5),
    "rms_norm of heads": lambda g, x: norm_of(g, g.heads(x, DIM)),
    "rope pairs": lambda g, x: g.rope(g.heads(x, DIM), Rope(DIM, 1e4, "pairs")),
    "rope half": lambda g, x: g.rope(g.heads(x, DIM), Rope(DIM, 1e6, "half", scale=0.5)),
    "rope partial": lambda g, x: g.rope(g.heads(x, DIM), Rope(8, 1e4, "half")),
    "rope factors": lambda g, x: g.rope(
        g.heads(x, DIM), Rope(DIM, 1e4, "half", factors=g.weight("factors", (DIM // 2,)))
    ),
    "add": lambda g, x: x + norm_of(g, x),
    "mul": lambda g, x: x * norm_of(g, x),
    "scale": lambda g, x: x * 7.25,
    "silu": lambda g, x: g.glu(x * 30.0, norm_of(g, x), "silu"),
    "gelu_tanh": lambda g, x: g.glu(x * 30.0, norm_of(g, x), "gelu_tanh"),
    "gelu_erf": lambda g, x: g.glu(x * 30.0, norm_of(g, x), "gelu_erf"),
    "softcap": lambda g, x: g.softcap(x * 300.0, 30.0),
    "pick": lambda g, x: g.pick(x),
    "reshape": lambda g, x: g.reshape(x, (4, 16)) + g.reshape(norm_of(g, x), (4, 16)),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weights]:
    tensors = tiny_tensors()
    tensors["bias"] = np.linspace(-3, 3, FEED, dtype=np.float32)
    tensors["factors"] = np.linspace(1, 9, DIM // 2, dtype=np.float32)
    path = write(tmp_path_factory.mktemp("plain") / "plain.gguf", tensors, "F32")
    with open_weights(path) as weights:
        yield weights


@on_device
@pytest.mark.parametrize("case", CASES)
def test_operation(case: str, plain: Weights) -> None:
    g = Graph(plain)
    g.result = CASES[case](g, g.embed(g.weight("token_embd.weight", (VOCABULARY, WIDE))))
    columns = batch([((3, 90, 3, 7, 41), 1000, range(40))], [1, 4], groups=0)
    made, reference = compile(g, "vulkan"), compile(g, "reference")
    found, expected = made.trace(columns), reference.trace(columns)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        close(found[name], value, 2e-6, name)
    made.close()


@on_device
@pytest.mark.parametrize("kv", ["f16", "f32"])
@pytest.mark.parametrize(("window", "softcap"), [(None, 0.0), (40, 0.0), (None, 5.0)])
def test_attention_over_pages(plain: Weights, kv: str, window: int | None, softcap: float) -> None:
    """120 positions in pages out of order, in pieces that cross pages.

    Of a window, pages that no later position sees are taken away, as the engine does.
    """
    g = Tiny(plain).graph(window, softcap)
    ids = np.random.default_rng(5).integers(0, VOCABULARY, 120).tolist()
    device, reference = (compile(g, name, pages=(9,), kv=kv) for name in ("vulkan", "reference"))
    for at in range(0, 120, 7):
        gone = 0 if window is None else max(0, at + 1 - window) // PAGE
        pages = [-1] * gone + [5, 0, 8, 3][gone:]
        columns = batch([(ids[at : at + 7], at, pages)], range(len(ids[at : at + 7])))
        within = 1e-4 if kv == "f32" else 1e-3
        close(device.run(columns), reference.run(columns), within, f"position {at}")
    device.close()


@on_device
def test_keys_are_rounded_as_numpy_rounds_them(plain: Weights) -> None:
    """Values of every size, so also fp16's subnormals and ties, from a pass and from a page."""
    dim = 32
    values = np.zeros((VOCABULARY, WIDE), np.float32)
    random = np.random.default_rng(3)
    sizes = 2.0 ** random.uniform(-27, 15.99, (VOCABULARY - 1, dim))
    values[:-1, :dim] = sizes * random.choice([-1, 1], sizes.shape)
    values[0, :6] = 1 + 2.0**-11, 1 + 3 * 2.0**-11, 65519.0, 2.0**-25, 3 * 2.0**-25, 2.0**-14
    kept = values.astype(np.float16).astype(np.float32)
    path = Path(plain.path).with_name("values.gguf")
    with open_weights(write(path, {"token_embd.weight": values}, "F32")) as weights:
        g = Graph(weights)
        x = g.heads(g.embed(g.weight("token_embd.weight", (VOCABULARY, WIDE))), dim)
        # Scores scaled by 0: every position counts alike.
        g.result = g.pick(g.attend(x, x, x, g.cache(2, dim), 0.0, name="attend"))
        made = compile(g, "vulkan", pages=(2,))
        for token in range(VOCABULARY):
            own = made.run(batch([((token,), 0, (1,))], [0]))
            np.testing.assert_array_equal(own[0], kept[token])
            # And from its page, beside a position whose values are zero.
            paged = made.run(batch([((VOCABULARY - 1,), 1, (1,))], [0]))
            np.testing.assert_array_equal(paged[0], kept[token] / 2)
        made.close()


# The whole of a llama


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


def test_formats_are_those_of_the_file() -> None:
    assert set(memory.FORMATS) <= set(FORMATS)
