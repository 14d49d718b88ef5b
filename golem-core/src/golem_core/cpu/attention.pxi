# Attention over the pages of conversations, and within texts: included by tape.pyx.


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


cdef inline Py_ssize_t rows_within(Stage* stage, Py_ssize_t columns, int workers) noexcept nogil:
    """Rows of a text that a worker attends with at a time.

    All of them, since keys and values are laid out for each piece, but where heads are too few to
    share out, or where a piece needs few of the keys.
    """
    cdef Py_ssize_t pieces = (4 * workers + stage.query_heads - 1) // stage.query_heads
    if stage.before >= 0 and stage.after >= 0:
        return TEXT_ROWS
    return max(<Py_ssize_t>TEXT_ROWS,
               ((columns + pieces - 1) // pieces + WITHIN - 1) // WITHIN * WITHIN)


cdef void walk_within(Code* code, Stage* stage, atomic_int* counter, float* scratch,
                      int workers) noexcept nogil:
    """Takes (piece of a text, head)."""
    cdef Pass* p = &code.now
    cdef Py_ssize_t heads = stage.query_heads, group = heads // stage.key_heads, head, first
    cdef Py_ssize_t before, after, most = rows_within(stage, p.n, workers)
    cdef int unit, span = 0, done = 0, pieces, piece
    cdef const float* bias
    cdef Run* text
    while True:
        unit = take(counter)
        piece = unit // heads
        head = unit % heads
        # Units ascend, so the text of this one is that of the last or comes after it.
        while span < p.spans:
            pieces = <int>((code.spans[span].rows + most - 1) // most)
            if piece < done + pieces:
                break
            done += pieces
            span += 1
        if span >= p.spans:
            return
        text = &code.spans[span]
        first = (piece - done) * most
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
            text.rows, stage.dim, first, min(most, text.rows - first),
            stage.scale, before, after,
            bias,
            <float*>at(&stage.out, text.first, NULL) + head * stage.dim, stage.out.stride // 4,
            scratch)
