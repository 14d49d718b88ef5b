# Convolutions over rows: included by tape.pyx.
#
# A sequence's rows lie behind the rows before them, so a window is `taps` rows as they lie, and
# windows are columns of a product that overlap. Where the product reads codes, a row is quantised
# once and its codes are put into each of the windows that it is in.


cdef inline float* led(Stage* stage, Run* span, int number, Py_ssize_t row) noexcept nogil:
    """Row `row` of a span as a convolution reads it; the rows before are -past to -1."""
    cdef Py_ssize_t at_row = span.first * stage.rate + (number + 1) * stage.past + row
    return <float*>(stage.out.base + at_row * stage.out.stride)


cdef inline void bring(Stage* stage, Py_ssize_t row, float* out) noexcept nogil:
    """A row of what is convolved, activated."""
    cdef const float* x = <const float*>at(&stage.inputs[0], row, NULL)
    if stage.act != NULL:
        stage.act(x, NULL, stage.size, out)
    else:
        memcpy(out, x, 4 * stage.size)


cdef inline void quantise_led(Stage* stage, Run* span, int number, Py_ssize_t row,
                              Py_ssize_t rows) noexcept nogil:
    """A led row's codes, put into the windows of its span that it is in."""
    cdef Py_ssize_t size = stage.size, taps = stage.past + 1, blocks = size // 32, place
    cdef Py_ssize_t window, first = max(row, <Py_ssize_t>0), end = min(row + taps, rows)
    cdef signed char[LED_SIZE] codes
    cdef float[LED_BLOCKS] scales
    cdef int[LED_BLOCKS] sums
    cdef int[2 * LED_BLOCKS] halves
    kernels().quantise(led(stage, span, number, row), size, codes, scales, sums, halves)
    for window in range(first, end):
        # The row's place among all taps of all windows.
        place = (span.first * stage.rate + window) * taps + row - window + stage.past
        memcpy(<signed char*>stage.x.codes + place * size, codes, size)
        memcpy(<float*>stage.x.scales + place * blocks, scales, 4 * blocks)
        memcpy(<int*>stage.x.sums + place * blocks, sums, 4 * blocks)
        memcpy(<int*>stage.x.halves + place * 2 * blocks, halves, 8 * blocks)


cdef void walk_lead(Code* code, Stage* stage, atomic_int* counter) noexcept nogil:
    """Takes (span, block of rows)."""
    cdef Py_ssize_t unit, blocks, rows, row
    cdef int number
    cdef Run* span
    while True:
        unit = take(counter)
        for number in range(code.now.spans):
            span = &code.spans[number]
            rows = span.rows * stage.rate
            blocks = (rows + LED - 1) // LED
            if unit < blocks:
                break
            unit -= blocks
        else:
            return
        if unit == 0:
            lead_state(&code.now, stage, span, number)
            if stage.coded:
                for row in range(-stage.past, 0):
                    quantise_led(stage, span, number, row, rows)
        for row in range(unit * LED, min(rows, (unit + 1) * LED)):
            bring(stage, span.first * stage.rate + row, led(stage, span, number, row))
            if stage.coded:
                quantise_led(stage, span, number, row, rows)


cdef void lead_state(Pass* p, Stage* stage, Run* span, int number) noexcept nogil:
    """The rows before, which are read before any slot is written, and what is kept."""
    cdef Carried* state = stage.state
    cdef Py_ssize_t past = stage.past, size = stage.size, column, t, row
    cdef int slot
    cdef float* kept
    recall(p, state, span.sequence, led(stage, span, number, -past))
    for column in range(span.rows):
        slot = kept_at(p, span.first + column)
        if slot < 0:
            continue
        kept = state.slots + slot * state.size
        for t in range(past):
            row = (column + 1) * stage.rate - past + t
            if row < 0:
                memcpy(kept + t * size, led(stage, span, number, row), 4 * size)
            else:
                bring(stage, span.first * stage.rate + row, kept + t * size)


cdef void walk_windows(Code* code, Stage* stage, atomic_int* counter, char* scratch,
                       int workers) noexcept nogil:
    """Takes (span, block of its windows, chunk of panels)."""
    cdef Job* job = stage.jobs
    cdef Py_ssize_t panels = panels_of(&job.weight), columns = rows_of(code, stage)
    cdef Py_ssize_t block = max(<Py_ssize_t>1, min(columns, <Py_ssize_t>TILE_COLUMNS))
    cdef Py_ssize_t chunk, chunks, blocks, rows, unit, first, lead
    cdef int number
    cdef Run* span
    chunk = panels_at_once(block, panels * ((columns + block - 1) // block), workers)
    chunks = (panels + chunk - 1) // chunk
    while True:
        unit = take(counter)
        for number in range(code.now.spans):
            span = &code.spans[number]
            rows = span.rows * stage.rate
            blocks = (rows + TILE_COLUMNS - 1) // TILE_COLUMNS
            if unit < blocks * chunks:
                break
            unit -= blocks * chunks
        else:
            return
        first = unit // chunks * TILE_COLUMNS
        lead = 0 if stage.coded else number * stage.past  # coded windows do not overlap
        tile(code, &stage.x, job, unit % chunks * chunk, chunk,
             span.first * stage.rate + lead + first, min(<Py_ssize_t>TILE_COLUMNS, rows - first),
             lead, NULL, scratch)
