"""A GGUF file with every tensor written out as float32, by `gguf` alone.

On such a file neither engine rounds anything but keys and values, so what they compute from a real
model's numbers can be compared far closer than on the quantised file itself.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize

SKIPPED = ("GGUF.", "general.architecture", "general.file_type", "general.quantization_version")


def expand(source: Path, target: Path) -> None:
    """Writes the model of `source` to `target` in float32, a tensor at a time."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, str(reader.fields["general.architecture"].contents()))
    for name, field in reader.fields.items():
        if not name.startswith(SKIPPED):
            inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=inner)
    for tensor in reader.tensors:
        shape = [int(size) for size in reversed(tensor.shape)]
        size = 4 * int(tensor.n_elements)
        writer.add_tensor_info(tensor.name, shape, np.dtype(np.float32), size)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in reader.tensors:
        floats = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.write_tensor_data(np.ascontiguousarray(floats))
    writer.close()
