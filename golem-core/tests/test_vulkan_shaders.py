"""Each shader of the Vulkan backend against the reference of its operation."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from golem_core.graph import PAGE, Graph, Rope, Tensor, compile
from golem_core.graph.ops import OPS
from golem_core.vulkan import lower, memory
from golem_core.vulkan.program import WIDTH
from golem_core.weights import FORMATS, Weights, open_weights

from .vulkan_tiny import (
    DIM,
    FEED,
    VOCABULARY,
    WIDE,
    Tiny,
    batch,
    close,
    on_device,
    tiny_tensors,
    write,
)

SHADERS = Path(lower.__file__).parent / "shaders"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weights]:
    path = write(tmp_path_factory.mktemp("plain") / "plain.gguf", tiny_tensors(), "F32")
    with open_weights(path) as weights:
        yield weights


# Without a device


# What a card does not do yet, and refuses by name: mixtures, states, sound, encoders, and what came
# with them.
ABSENT = {
    *("activate", "slice", "concat"),
    *("route", "linear_experts", "combine"),
    *("decay", "conv", "delta", "previous", "recall", "pass_on"),
    *("input", "split", "join", "convolve", "layer_norm"),
    *("attend_within", "pool"),
}


def test_every_operation_has_a_shader_and_every_shader_an_operation() -> None:
    assert set(lower.LOWER) == set(OPS) - ABSENT
    assert set(OPS) >= ABSENT
    sources = {path.stem for path in SHADERS.glob("*.comp")}
    assert sources == {path.stem for path in SHADERS.glob("*.spv")}
    assert sources == set(lower.LOWER) - {"reshape"} | {"upload"}


def test_constants_that_the_shaders_share() -> None:
    text = "".join(path.read_text() for path in SHADERS.iterdir() if path.suffix != ".spv")
    assert re.findall(r"WIDTH = (\d+);", text) == [str(WIDTH)]
    assert re.findall(r"MOST = (\d+);", text) == [str(lower.HEAD // 32)]
    assert PAGE == 32  # a tile of attend.comp
    numbers = ", ".join(f"{number} {name}" for name, (number, _) in memory.FORMATS.items())
    assert numbers in text
    acts = ", ".join(f"{number} {name}" for number, name in enumerate(lower.ACTS))
    assert acts in text


def test_spirv_is_what_the_sources_give() -> None:
    if shutil.which("glslangValidator") is None or shutil.which("spirv-val") is None:
        pytest.skip("no shader compiler: apt-get install glslang-tools spirv-tools")
    command = [str(ROOT / "bin" / "compile-shaders"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 3:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr


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
@pytest.mark.parametrize("name", memory.FORMATS)
def test_format(name: str, tmp_path: Path) -> None:
    """Every code of a format in rows and in products, from the file's own bytes."""
    with open_weights(write(tmp_path / "weights.gguf", tiny_tensors(), name)) as weights:
        g = Graph(weights)
        x = g.embed(g.weight("token_embd.weight", (VOCABULARY, WIDE)))
        g.result = g.pick(g.linear(x, g.weight("blk.0.ffn_gate.weight", (FEED, WIDE))))
        made, reference = compile(g, "vulkan"), compile(g, "reference")
        for first in range(0, VOCABULARY, 8):
            columns = batch([(range(first, first + 8), 0, (0,))], [0], groups=0)
            found, expected = made.trace(columns), reference.trace(columns)
            np.testing.assert_array_equal(found["token_embd"], expected["token_embd"])
            close(found["blk.0.ffn_gate"], expected["blk.0.ffn_gate"], 2e-6, name)
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


def test_formats_are_those_of_the_file() -> None:
    assert set(memory.FORMATS) <= set(FORMATS)
