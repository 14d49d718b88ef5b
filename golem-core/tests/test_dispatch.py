"""The choice of kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from golem_core.cpu import dispatch
from golem_core.errors import Unsupported


@pytest.fixture(autouse=True)
def restored():
    before = dispatch.layer()
    yield
    dispatch.use(before)


def python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_processor_has_the_generic_kernels():
    assert dispatch.LAYERS[0] == "generic"
    dispatch.use("generic")
    assert set(dispatch.origins().values()) == {"generic"}


@pytest.mark.parametrize("layer", dispatch.LAYERS)
def test_every_kernel_of_a_layer_has_an_origin_at_or_below_it(layer):
    dispatch.use(layer)
    assert dispatch.layer() == layer
    reached = dispatch.LAYERS[: dispatch.LAYERS.index(layer) + 1]
    origins = dispatch.origins()
    assert list(origins) == list(dispatch.NAMES)
    assert set(origins.values()) <= set(reached)
    assert None not in origins.values()


def test_a_layer_that_the_processor_lacks_is_refused():
    with pytest.raises(Unsupported, match="no kernels for 'sse9' on this processor, which runs g"):
        dispatch.use("sse9")


def test_pairs_of_bf16_are_multiplied_at_once_where_that_is_faster():
    if "avx512bf16" not in dispatch.LAYERS:
        pytest.skip("this processor has no AVX512-BF16")
    dispatch.use(dispatch.LAYERS[-1])
    amd = "AuthenticAMD" in Path("/proc/cpuinfo").read_text()
    assert (dispatch.origins()["product[BF16]"] == "avx512bf16") == amd
    assert dispatch.origins()["product[BF16]"] == dispatch.origins()["round_bf16"]


def test_golem_isa_stops_at_a_layer():
    code = "from golem_core.cpu import dispatch; print(dispatch.layer())"
    for layer in dispatch.LAYERS:
        assert python(code, GOLEM_ISA=layer).stdout.strip() == layer
    assert python(code, GOLEM_ISA="").stdout.strip() == dispatch.LAYERS[-1]
    assert (
        "GOLEM_ISA is 'sse9'; this processor runs generic" in python(code, GOLEM_ISA="sse9").stderr
    )


@pytest.mark.skipif("amx" not in dispatch.LAYERS, reason="this processor has no amx")
def test_where_the_system_denies_tiles_the_layer_is_refused():
    # Linux denies them to a process whose stack for signals has no room to save tiles.
    code = """
import ctypes

class Stack(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

room = ctypes.create_string_buffer(4096)
stack = Stack(ctypes.addressof(room), 0, len(room))
assert ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None) == 0
from golem_core.cpu import dispatch
print(dispatch.layer())
"""
    below = dispatch.LAYERS[dispatch.LAYERS.index("amx") - 1]
    assert python(code, GOLEM_ISA="").stdout.strip() == below
    assert "GOLEM_ISA is 'amx'; this processor runs" in python(code, GOLEM_ISA="amx").stderr


def test_only_the_layers_that_are_used_are_imported():
    code = (
        "import sys; from golem_core.cpu import dispatch;"
        "print([m for m in sys.modules if m.startswith('golem_core.cpu.kernels.')])"
    )
    found = python(code, GOLEM_ISA="generic").stdout
    assert "kernels.generic" in found
    assert "avx2" not in found


@pytest.mark.parametrize(
    ("format", "cols", "size"),
    [("Q4_0", 64, 576), ("Q4_1", 64, 640), ("Q5_0", 64, 704), ("Q5_1", 64, 768),
     ("Q8_0", 64, 1088), ("Q4_0", 32, 576), ("Q4_K", 256, 2368), ("Q5_K", 256, 2880),
     ("Q6_K", 256, 3392), ("F32", 3, 192), ("BF16", 3, 128), ("MXFP4", 32, 272),
     ("W8", 32, 1088), ("W8A8", 128, 2112)],
)  # fmt: skip
def test_the_size_of_a_panel(format, cols, size):
    number = dispatch.FORMATS[format]
    assert dispatch.panel_bytes(number, cols) == size
    assert dispatch.is_packed(number) == (format != "MXFP4")
