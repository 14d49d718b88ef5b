# Operations on single rows: included by tape.pyx.


cdef void walk_rows(Code* code, Stage* stage, atomic_int* counter, char* scratch,
                    int workers) noexcept nogil:
    """Takes rows that follow each other; what goes into pages goes there for all of them at once."""
    cdef Pass* p = &code.now
    cdef int rows = rows_of(code, stage), row, op, first, end
    cdef int some = max(1, min(<int>MOST_ROWS, rows // (4 * workers)))
    while True:
        first = some * take(counter)
        if first >= rows:
            return
        end = min(first + some, rows)
        for row in range(first, end):
            for op in range(stage.count):
                row_op(p, &stage.ops[op], row, p.outputs[row] if stage.picked else row, scratch)
        for op in range(stage.count):
            if stage.ops[op].kind == STORE:
                store_rows(p, &stage.ops[op], first, end)


cdef void store_rows(Pass* p, RowOp* op, int first, int end) noexcept nogil:
    """Keys and values of some rows into their pages: those of one page together."""
    cdef View view
    cdef int count
    while first < end:
        count = 1
        while (first + count < end and p.sequence[first + count] == p.sequence[first]
               and p.positions[first + count] == p.positions[first] + count
               and p.positions[first + count] % PAGE != 0):
            count += 1
        see(op.cache, p, p.sequence[first], &view)
        op.cache.store(&view, p.positions[first], count,
                       <const float*>at(&op.a, first, NULL), op.a.stride // 4,
                       <const float*>at(&op.b, first, NULL), op.b.stride // 4)
        first += count


cdef void row_op(Pass* p, RowOp* op, int row, int column, char* scratch) noexcept nogil:
    # `column` is the row's own among the columns of the pass, which picked rows are some of.
    cdef const Kernels* k = kernels()
    cdef float* a = <float*>at(&op.a, row, scratch)
    cdef float* b = <float*>at(&op.b, row, scratch)
    cdef float* out = <float*>at(&op.out, row, scratch)
    cdef Py_ssize_t i, blocks
    cdef double angle
    cdef float value
    if op.kind == NORM:
        for i in range(op.heads):
            k.rms_norm(a + i * op.dim, op.vector, op.dim, op.value, out + i * op.dim)
    elif op.kind == LAYER_NORM:
        for i in range(op.heads):
            k.layer_norm(a + i * op.dim, op.vector, op.bias, op.dim, op.value, out + i * op.dim)
    elif op.kind == ROPE:
        b = <float*>at(&op.b, column, scratch)
        for i in range(op.heads):
            op.rope(a + i * op.dim, b, b + op.half, op.half, op.dim, out + i * op.dim)
    elif op.kind == QUANTISE:
        blocks = op.size // op.dim
        op.quantise(a, op.size,
                    <signed char*>op.codes.codes + row * op.size,
                    <float*>op.codes.scales + row * blocks,
                    <int*>op.codes.sums + row * blocks,
                    <int*>op.codes.halves + row * 2 * blocks)
    elif op.kind == ROUND:
        op.round(a, op.size, out)
    elif op.kind == ADD:
        k.add(a, b, op.size, out)
    elif op.kind == GLU:
        op.act(a, b, op.size, out)
    elif op.kind == ACTIVATE:
        op.act(a, NULL, op.size, out)
    elif op.kind == GATE:
        op.act(a, NULL, 1, &value)
        k.scale(b, value, op.size, out)
    elif op.kind == CONCAT:
        for i in range(op.heads):
            memcpy(out + i * (op.dim + op.count), a + i * op.dim, 4 * op.dim)
            memcpy(out + i * (op.dim + op.count) + op.dim, b + i * op.count, 4 * op.count)
    elif op.kind == SLICE:
        for i in range(op.heads):
            memcpy(out + i * op.count, a + i * op.dim + op.start, 4 * op.count)
    elif op.kind == DECAY:
        for i in range(op.size):
            out[i] = <float>exp(op.vector[i] * softplus(a[i] + op.bias[i]))
    elif op.kind == ROUTE:
        choose(a, op.dim, op.heads, out)
    elif op.kind == COMBINE:
        combine(a, b, op.vector, op.heads, op.dim, out)
    elif op.kind == RECALL:
        if p.again:
            memcpy(out, op.state.passed + p.sequence[row] * op.state.size, 4 * op.state.size)
        else:
            recall(p, op.state, p.sequence[row], out)
    elif op.kind == PASS_ON:
        memcpy(op.state.passed + p.sequence[row] * op.state.size, a, 4 * op.state.size)
    elif op.kind == EMBED:
        i = op.start
        if op.by == 0:
            i += p.ids[row]
        elif op.by == 1:
            i += p.positions[row]
        elif op.by == 2 and p.kinds != NULL:
            i += p.kinds[row]
        op.dequantise(op.table + i * op.row_bytes, op.size, out)
    elif op.kind == POOL:
        pool(p, op, column, out)
    elif op.kind == PICK:
        memcpy(out, at(&op.a, column, scratch), 4 * op.size)
    elif op.kind == SCALE:
        k.scale(a, op.value, op.size, out)
    elif op.kind == MUL:
        k.mul(a, b, op.size, out)
    elif op.kind == SOFTCAP:
        k.softcap(a, op.value, op.size, out)
    elif op.kind == ANGLES:
        for i in range(op.half):
            angle = p.positions[row] * op.turns[i]
            out[i] = <float>(op.value * cos(angle))
            out[op.half + i] = <float>(op.value * sin(angle))


cdef void pool(Pass* p, RowOp* op, int column, float* out) noexcept nogil:
    """The mean of the columns of a column's text, summed in float64, ascending."""
    cdef int first = column, end = column + 1, i
    cdef Py_ssize_t at_, d, n
    cdef double[64] sums
    cdef const float* row
    while first > 0 and p.sequence[first - 1] == p.sequence[column]:
        first -= 1
    while end < p.n and p.sequence[end] == p.sequence[column]:
        end += 1
    for at_ in range(0, op.size, 64):
        n = min(<Py_ssize_t>64, op.size - at_)
        memset(sums, 0, sizeof(sums))
        for i in range(first, end):
            row = <const float*>at(&op.a, i, NULL) + at_
            for d in range(n):
                sums[d] += row[d]
        for d in range(n):
            out[at_ + d] = <float>(sums[d] / (end - first))
