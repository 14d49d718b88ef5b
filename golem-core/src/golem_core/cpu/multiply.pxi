# Products of columns with matrices, tile by tile: included by tape.pyx.


cdef inline Py_ssize_t panels_of(const Packed* weight) noexcept nogil:
    return (weight.rows + 15) // 16


cdef inline Py_ssize_t panels_at_once(Py_ssize_t columns, Py_ssize_t panels,
                                      int workers) noexcept nogil:
    """Panels of a tile of so many columns: fewer where a worker would not find eight tiles."""
    cdef Py_ssize_t least = 2 if columns <= NARROW else 4
    return max(least, min(min(<Py_ssize_t>TILE_PANELS, TILE_SUMS // columns),
                          panels // (workers * 8)) & ~1)


cdef void walk_product(Code* code, Stage* stage, atomic_int* counter, char* scratch,
                       int workers) noexcept nogil:
    """Takes (job, block of columns, chunk of panels); a block's chunks follow each other."""
    cdef Py_ssize_t columns = rows_of(code, stage)
    cdef Py_ssize_t block, blocks, chunk, total = 0, first, width, chunks, unit, j
    cdef Job* job
    if columns == 0:
        return
    for j in range(stage.count):
        total += panels_of(&stage.jobs[j].weight)
    block = min(columns, columns_at_once(stage.cols))
    blocks = (columns + block - 1) // block
    chunk = panels_at_once(block, total * blocks, workers)
    while True:
        unit = take(counter)
        for j in range(stage.count):
            job = &stage.jobs[j]
            chunks = (panels_of(&job.weight) + chunk - 1) // chunk
            if unit < chunks * blocks:
                break
            unit -= chunks * blocks
        else:
            return
        first = unit // chunks * block
        width = min(block, columns - first)
        tile(code, &stage.x, job, unit % chunks * chunk, chunk, first, width, 0, NULL, scratch)


cdef void tile(Code* code, const Columns* x, Job* job, Py_ssize_t panel, Py_ssize_t chunk,
               Py_ssize_t column, Py_ssize_t columns, Py_ssize_t lead, const int* places,
               char* scratch) noexcept nogil:
    """One tile of a product, finished: bias, gate, activation, residual.

    Column c's result is row c - lead of what is written, or row places[c].
    """
    cdef const Kernels* k = kernels()
    cdef float* values = <float*>scratch
    cdef float* gates = values + code.tile_floats // 2
    cdef float* spare = values + code.tile_floats
    cdef Py_ssize_t panels = min(chunk, panels_of(&job.weight) - panel)
    cdef Py_ssize_t stride = 16 * panels
    cdef Py_ssize_t row = 16 * panel
    cdef Py_ssize_t rows = min(stride, job.weight.rows - row)
    cdef Py_ssize_t c
    cdef float* y
    cdef float* out
    job.product(&job.weight, panel, panels, x, column, columns, values, stride, spare)
    if job.gate.data != NULL:
        job.product(&job.gate, panel, panels, x, column, columns, gates, stride, spare)
    for c in range(columns):
        y = values + c * stride
        out = <float*>at(&job.out, places[column + c] if places != NULL else column + c - lead, NULL) + row
        if job.bias != NULL:
            k.add(y, job.bias + row, rows, y)
        if job.gate.data != NULL:
            if job.gate_bias != NULL:
                k.add(gates + c * stride, job.gate_bias + row, rows, gates + c * stride)
            job.act(gates + c * stride, y, rows, out)
        elif job.residual.base != NULL:
            k.add(y, <float*>at(&job.residual, column + c - lead, NULL) + row, rows, out)
        elif job.act != NULL:
            job.act(y, NULL, rows, out)
        else:
            memcpy(out, y, 4 * rows)
