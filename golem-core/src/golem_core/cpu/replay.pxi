# How the workers replay a tape: included by tape.pyx. Nothing here allocates or holds a Python
# object.

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int, timespec*)
    const int CLOCK_MONOTONIC

cdef extern from "<stdatomic.h>" nogil:
    ctypedef int atomic_int
    int atomic_fetch_add_explicit(atomic_int*, int, int)
    void atomic_store_explicit(atomic_int*, int, int)
    const int memory_order_relaxed

cdef enum:
    ROWS = 0
    PRODUCT = 1
    ATTEND = 2
    SORT = 3                # rows by expert
    SPREAD = 4              # what the experts read, in this order
    EXPERTS = 5
    CONV = 6
    DELTA = 7
    PREVIOUS = 8
    LEAD = 9                # what a convolution reads: rows behind those before them
    WINDOWS = 10            # its product
    WITHIN_TEXT = 11        # attention within texts

cdef enum:
    NARROW = 8              # columns up to which a product is bound by reading its weights
    TILE_PANELS = 4         # panels of 16 rows of a wide tile
    NARROW_PANELS = 32      # most panels of a narrow one
    CHANNELS = 256          # of a convolution that a worker takes at a time
    LED = 64                # rows of a lead that it does
    MOST_ROWS = 32          # of a stage of rows that a worker takes at a time
    SHARES = 64             # that many rows are cut into at least
    LED_BLOCKS = 128        # most blocks of 32 of a row of a lead that is quantised
    LED_SIZE = 32 * LED_BLOCKS
    TEXT_ROWS = 4 * WITHIN  # rows of a text that a worker attends with at a time


cdef struct Run:
    # Successive columns of one sequence: a part that an attention kernel takes, or all of them.
    int first
    int rows
    int sequence


cdef struct Pass:
    # The numbers of one pass.
    int n
    int m
    const int* ids
    const int* positions
    const int* sequence
    const int* outputs
    const int* tables[16]
    Py_ssize_t table_width[16]
    const int* states           # [sequences]; NULL where nothing is carried
    const int* keeps            # [n]; NULL: nothing is kept
    const int* kinds            # [n]; NULL: all 0
    int runs
    int spans
    int picked_runs
    int* picked_positions       # [m]: of the picked rows


cdef struct Mixture:
    # The rows of a pass sorted by expert; pair p is the p % used-th expert of row p / used.
    int* order                  # pairs by expert
    int* begin                  # [experts + 1]: where each expert's pairs begin
    int* active                 # the experts that have pairs
    int count                   # of these
    int most                    # pairs of the one that has most


# Everything that the workers of a tape see.
cdef struct Code:
    Shared* shared
    Stage* stages
    atomic_int* counters    # for each stage: how much of it has been taken
    int stage_count
    int drafting            # the first stage of the drafting pass
    int first               # stages of the pass that is going on
    int end
    Run* runs               # of at most ATTEND_ROWS columns
    Run* picked             # the same of the picked rows
    Run* spans              # a sequence's columns as they stand together
    Mixture mixture
    char* scratch
    size_t scratch_bytes    # of one worker
    Py_ssize_t tile_floats  # at the start of a worker's scratch: two tiles of a product
    Pass now
    double* times           # [stages, workers, 2]: begin and end of each walk; NULL: not wanted


cdef double now() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return t.tv_sec + 1e-9 * t.tv_nsec


cdef inline char* at(const Operand* operand, Py_ssize_t row, char* scratch) noexcept nogil:
    if operand.base == NULL:
        return scratch + operand.offset
    return operand.base + row * operand.stride


cdef void walk(void* argument, int worker, int workers) noexcept nogil:
    """A worker's way through the tape.

    Between two stages the workers meet. Row stages of a single row are not shared out: whoever
    comes last to the meeting does them, and the others wait for one barrier instead of two.
    """
    cdef Code* code = <Code*>argument
    cdef char* scratch = code.scratch + worker * code.scratch_bytes
    cdef int s = code.first, after
    while s < code.end:
        after = s + 1
        if single(code, s):
            # Only at the beginning: elsewhere the stage before has taken it along.
            after = s
        else:
            walk_stage(code, s, worker, workers, scratch)
        s = after
        while s < code.end and single(code, s):
            s += 1
        meet(code, after, s, worker, workers, scratch)


cdef inline bint single(Code* code, int s) noexcept nogil:
    """Whether a stage is of rows and has one at most, or is for one worker anyway."""
    cdef Stage* stage = &code.stages[s]
    if stage.kind == ROWS or stage.kind == SPREAD:
        return rows_of(code, stage) <= 1
    return stage.kind == SORT


cdef inline int rows_of(Code* code, Stage* stage) noexcept nogil:
    return code.now.m if stage.picked else code.now.n * stage.rate


cdef inline void meet(Code* code, int first, int end, int worker, int workers,
                      char* scratch) noexcept nogil:
    """The workers meet, and one of them does stages first..end, which are single rows."""
    cdef int s
    if arrive(code.shared):
        for s in range(first, end):
            walk_stage(code, s, worker, workers, scratch)
        proceed(code.shared)


cdef inline void walk_stage(Code* code, int s, int worker, int workers,
                            char* scratch) noexcept nogil:
    cdef Stage* stage = &code.stages[s]
    cdef double* times = code.times
    if times != NULL:
        times += 2 * (s * workers + worker)
        times[0] = now()
    if stage.kind == ROWS:
        walk_rows(code, stage, &code.counters[s], scratch)
    elif stage.kind == PRODUCT:
        walk_product(code, stage, &code.counters[s], scratch, workers)
    elif stage.kind == ATTEND:
        walk_attend(code, stage, &code.counters[s], scratch, workers)
    elif stage.kind == SORT:
        sort_rows(code, stage)
    elif stage.kind == SPREAD:
        walk_spread(code, stage, &code.counters[s])
    elif stage.kind == EXPERTS:
        walk_experts(code, stage, &code.counters[s], scratch, workers)
    elif stage.kind == WITHIN_TEXT:
        walk_within(code, stage, &code.counters[s], <float*>scratch)
    elif stage.kind == LEAD:
        walk_lead(code, stage, &code.counters[s])
    elif stage.kind == WINDOWS:
        walk_windows(code, stage, &code.counters[s], scratch, workers)
    else:
        walk_scan(code, stage, &code.counters[s], <float*>scratch)
    if times != NULL:
        times[1] = now()


cdef inline int take(atomic_int* counter) noexcept nogil:
    return atomic_fetch_add_explicit(counter, 1, memory_order_relaxed)


cdef void walk_rows(Code* code, Stage* stage, atomic_int* counter, char* scratch) noexcept nogil:
    cdef Pass* p = &code.now
    cdef int rows = rows_of(code, stage), block, row, op
    # One row at a time where rows are few; where there are thousands, as of sound, they are short.
    cdef int some = min(MOST_ROWS, max(1, rows // SHARES))
    while True:
        block = take(counter) * some
        if block >= rows:
            return
        for row in range(block, min(rows, block + some)):
            for op in range(stage.count):
                row_op(p, &stage.ops[op], row, p.outputs[row] if stage.picked else row, scratch)


cdef void row_op(Pass* p, RowOp* op, int row, int column, char* scratch) noexcept nogil:
    # `column` is the row's own among the columns of the pass, which picked rows are some of.
    cdef const Kernels* k = kernels()
    cdef float* a = <float*>at(&op.a, row, scratch)
    cdef float* b = <float*>at(&op.b, row, scratch)
    cdef float* out = <float*>at(&op.out, row, scratch)
    cdef Py_ssize_t i, blocks
    cdef View view
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
        blocks = op.size // 32
        k.quantise(a, op.size,
                   <signed char*>op.codes.codes + row * op.size,
                   <float*>op.codes.scales + row * blocks,
                   <int*>op.codes.sums + row * blocks,
                   <int*>op.codes.halves + row * 2 * blocks)
    elif op.kind == ROUND:
        op.round(a, op.size, out)
    elif op.kind == STORE:
        see(op.cache, p, p.sequence[row], &view)
        op.cache.store(&view, p.positions[row], a, b)
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
        recall(op.state, p.states[p.sequence[row]], out)
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


cdef inline void see(Kept* cache, Pass* p, int sequence, View* view) noexcept nogil:
    view.keys = cache.keys
    view.values = cache.values
    view.table = p.tables[cache.group] + sequence * p.table_width[cache.group]
    view.heads = cache.heads
    view.dim = cache.dim
    view.padded = cache.padded


cdef void walk_attend(Code* code, Stage* stage, atomic_int* counter, char* scratch,
                      int workers) noexcept nogil:
    """Takes (key head, run, part of the query heads that read it).

    The runs of a head follow each other, so that its pages are in a cache; the longest go first.
    """
    cdef Pass* p = &code.now
    cdef Py_ssize_t heads = stage.cache.heads
    cdef Py_ssize_t group = stage.query_heads // heads
    cdef Py_ssize_t parts = 1, part, head, most, first, count
    cdef int unit, units, runs = p.picked_runs if stage.picked else p.runs
    cdef Run* made = code.picked if stage.picked else code.runs
    cdef const int* positions = p.positions
    cdef Run* run
    cdef View view
    if stage.picked:
        positions = p.picked_positions
    # A single column has few heads to share out: its groups of query heads are cut.
    while parts < group and runs * heads * parts < 2 * workers:
        parts += 1
    most = (group + parts - 1) // parts
    units = runs * heads * parts
    while True:
        unit = take(counter)
        if unit >= units:
            return
        head = unit // (runs * parts)
        run = &made[runs - 1 - unit // parts % runs]
        part = unit % parts
        first = head * group + part * most
        count = min(most, (head + 1) * group - first)
        if count <= 0:
            continue
        see(stage.cache, p, run.sequence, &view)
        stage.cache.attend(
            &view, head, first, count,
            <const float*>at(&stage.q, run.first, NULL), stage.q.stride // 4,
            positions + run.first, run.rows, stage.scale, stage.softcap, stage.cache.window,
            <float*>at(&stage.out, run.first, NULL), stage.out.stride // 4, <float*>scratch)


cdef void walk_within(Code* code, Stage* stage, atomic_int* counter, float* scratch) noexcept nogil:
    """Takes (piece of a text, head)."""
    cdef Pass* p = &code.now
    cdef Py_ssize_t heads = stage.query_heads, group = heads // stage.key_heads, head, first
    cdef Py_ssize_t before, after
    cdef int unit, span = 0, done = 0, pieces, piece
    cdef const float* bias
    cdef Run* text
    while True:
        unit = take(counter)
        piece = unit // heads
        head = unit % heads
        # Units ascend, so the text of this one is that of the last or comes after it.
        while span < p.spans:
            pieces = (code.spans[span].rows + TEXT_ROWS - 1) // TEXT_ROWS
            if piece < done + pieces:
                break
            done += pieces
            span += 1
        if span >= p.spans:
            return
        text = &code.spans[span]
        first = (piece - done) * TEXT_ROWS
        before = text.rows if stage.before < 0 else stage.before
        after = text.rows if stage.after < 0 else stage.after
        bias = stage.bias
        if bias != NULL:
            bias += head * (2 * stage.size - 1) + stage.size - 1
        stage.within(
            <const float*>at(&stage.inputs[0], text.first, NULL) + head * stage.dim,
            stage.inputs[0].stride // 4,
            <const float*>at(&stage.inputs[1], text.first, NULL) + head // group * stage.dim,
            stage.inputs[1].stride // 4,
            <const float*>at(&stage.inputs[2], text.first, NULL) + head // group * stage.dim,
            stage.inputs[2].stride // 4,
            text.rows, stage.dim, first, min(<Py_ssize_t>TEXT_ROWS, text.rows - first),
            stage.scale, before, after,
            bias,
            <float*>at(&stage.out, text.first, NULL) + head * stage.dim, stage.out.stride // 4,
            scratch)


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


cdef inline Py_ssize_t panels_of(const Packed* weight) noexcept nogil:
    return (weight.rows + 15) // 16


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
    if columns <= NARROW:
        block = columns
        chunk = min(<Py_ssize_t>NARROW_PANELS, max(<Py_ssize_t>2, total // (workers * 8) & ~1))
    else:
        block = columns_at_once(stage.cols)
        chunk = TILE_PANELS
    blocks = (columns + block - 1) // block
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
