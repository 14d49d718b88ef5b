"""The matrices that products read: packed for their kernels, or as they lie in the file.

They are packed once: a file keeps what was made (`packed.py`), and the next program maps it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from threading import Thread
from typing import Any

from golem_core.cpu import dispatch, packed
from golem_core.cpu.tape import Tape
from golem_core.errors import Unsupported
from golem_core.graph.record import Weight
from golem_core.graph.stages import ConvolveStage, ExpertStage, Product, ProductStage, Stage
from golem_core.weights import Weights


class Matrices:
    """The matrices of a program's stages, each once.

    places  by name, as a tape's job has it: the offset among the packed ones or None, the file's
            bytes or None, rows, columns, and the bytes of a panel of 16 rows
    """

    def __init__(self, tape: Tape, stages: Sequence[Stage]) -> None:
        self.tape, self.stages = tape, stages
        self.places: dict[str, tuple[Any, ...]] = {}

    def all(self) -> list[Weight]:
        """Every matrix that a product reads, once."""
        found: dict[str, Weight] = {}
        for stage in self.stages:
            products: list[Product] = []
            if isinstance(stage, (ProductStage, ExpertStage)):
                products = stage.products
            elif isinstance(stage, ConvolveStage):
                products = [stage.product]
            for product in products:
                for weight in (product.weight, product.gate):
                    if weight is not None:
                        found.setdefault(weight.name, weight)
        return list(found.values())

    def lay(self) -> tuple[list[tuple[Weight, int, int]], int]:
        """Gives each matrix that is packed its place; these, and the bytes of all of them.

        A matrix whose kernel reads the file's own layout stays where it is mapped.
        """
        where: list[tuple[Weight, int, int]] = []
        end = 0
        for weight in self.all():
            rows, cols = weight.shape[-2:]
            format = format_number(weight)
            panel = dispatch.panel_bytes(format, cols)
            if not dispatch.is_packed(format):
                self.places[weight.name] = (None, weight.stored.data, rows, cols, panel)
                continue
            self.places[weight.name] = (end, None, rows, cols, panel)
            where.append((weight, end, panel))
            end += -(-experts_of(weight) * -(-rows // 16) * panel // 256) * 256
        return where, end

    def bring(self, weights: Weights) -> None:
        """Brings matrices into the layout of their kernels, or maps them as they were brought once.

        The file's pages are let go of; a row of a table that is looked up comes from them again.
        """
        where, end = self.lay()
        if not end:
            return
        files = packed.PackedFiles.usual()
        key = packed.key(weights, [(weight.stored, at) for weight, at, _ in where])
        descriptor = files.find(key, end)
        if descriptor is not None:
            try:
                self.tape.map_weights(descriptor, packed.HEADER, end, False)
            finally:
                os.close(descriptor)
            Thread(target=self.tape.enter_weights, name="golem-pages", daemon=True).start()
            return
        made = files.create(end)
        if made is None:
            self.tape.reserve_weights(end)
        else:
            self.tape.map_weights(made.descriptor, packed.HEADER, end, True)
        try:
            for weight, offset, panel in where:
                self.pack(weight, offset, panel)
        except BaseException:
            if made is not None:
                made.discard()
            raise
        if made is not None:
            made.finish(key)

    def pack(self, weight: Weight, offset: int, panel: int) -> None:
        """One matrix, or those of all experts, to its place."""
        rows, cols = weight.shape[-2:]
        format, experts = format_number(weight), experts_of(weight)
        each = len(weight.stored.data) // experts
        for expert in range(experts):
            source = weight.stored.data[expert * each : (expert + 1) * each]
            self.tape.pack(format, source, rows, cols, panel, offset)
            offset += -(-rows // 16) * panel
        weight.stored.drop_pages()


def experts_of(weight: Weight) -> int:
    """How many matrices a weight has: one, or one an expert."""
    return weight.shape[0] if len(weight.shape) == 3 else 1


def format_number(weight: Weight) -> int:
    """The kernels' number of a weight's format; `Unsupported` names a format without kernels."""
    name = weight.stored.format.name
    if name not in dispatch.FORMATS:
        raise Unsupported(
            f"{weight.name} is {name}; the processor multiplies {', '.join(dispatch.FORMATS)}"
        )
    return dispatch.FORMATS[name]
