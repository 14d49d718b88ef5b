# How states are carried from row to row: included by tape.pyx.
#
# A state is as large as many rows of what makes it, and guesses are often wrong. So the columns
# after one whose state is kept are remembered by what they brought, and replayed if they were right.
#
# A worker takes a part of a state and goes through all the columns that a sequence has in the
# pass, so the result does not depend on how a text is cut into passes.


cdef inline double softplus(double x) noexcept nogil:
    """log(1 + e^x), without overflow."""
    return x + log1p(exp(-x)) if x > 0 else log1p(exp(x))


cdef inline float* row_after(Carried* state, int slot, Py_ssize_t number) noexcept nogil:
    """What column `number` of those after the slot's own brought."""
    return state.after + (slot * state.guesses + number) * state.row


cdef inline int replays_of(Pass* p, int sequence) noexcept nogil:
    """How many columns after its slot's own a sequence goes on from."""
    return 0 if p.replays == NULL else p.replays[sequence]


cdef void recall(Pass* p, Carried* state, int sequence, float* out) noexcept nogil:
    """A state that is the last column's row, or that nothing is remembered after."""
    cdef int slot = p.states[sequence], replays = replays_of(p, sequence)
    if slot < 0:
        memset(out, 0, 4 * state.size)
    elif replays:
        memcpy(out, row_after(state, slot, replays - 1), 4 * state.size)
    else:
        memcpy(out, state.slots + slot * state.size, 4 * state.size)


cdef inline int kept_at(Pass* p, Py_ssize_t column) noexcept nogil:
    """The slot that has the state after a column; -1: none."""
    return -1 if p.keeps == NULL else p.keeps[column]


cdef void walk_scan(Code* code, Stage* stage, atomic_int* counter, float* scratch) noexcept nogil:
    """Takes (span, part of the state)."""
    cdef Py_ssize_t parts = 1, unit, part
    cdef Run* span
    if stage.kind == CONV:
        parts = (stage.size + CHANNELS - 1) // CHANNELS
    elif stage.kind == DELTA:
        parts = stage.heads * ((stage.size + DELTA_LANES - 1) // DELTA_LANES)
    while True:
        unit = take(counter)
        if unit >= parts * code.now.spans:
            return
        span = &code.spans[unit // parts]
        part = unit % parts
        if stage.kind == CONV:
            scan_conv(&code.now, stage, span, part * CHANNELS, scratch)
        elif stage.kind == DELTA:
            scan_delta(&code.now, stage, span, part, scratch)
        else:
            scan_previous(&code.now, stage, span)


cdef inline Py_ssize_t followers(Stage* stage, Run* span, Py_ssize_t column) noexcept nogil:
    """How many columns after a kept one are remembered with it."""
    return min(<Py_ssize_t>stage.state.guesses, span.rows - 1 - column)


cdef void scan_conv(Pass* p, Stage* stage, Run* span, Py_ssize_t first,
                    float* before) noexcept nogil:
    """So many channels from `first` on. What came before is copied: its slot may be written."""
    cdef Carried* state = stage.state
    cdef Py_ssize_t size = stage.size, past = stage.past, count = min(size - first, CHANNELS)
    cdef Py_ssize_t stride = stage.inputs[0].stride // 4, t, column, row
    cdef const float* x = <const float*>at(&stage.inputs[0], span.first, NULL) + first
    cdef const float* source
    cdef int slot = p.states[span.sequence], replays = replays_of(p, span.sequence)
    for t in range(past):
        row = replays + t
        if slot < 0:
            memset(before + t * count, 0, 4 * count)
            continue
        if row < past:
            source = state.slots + slot * state.size + row * size
        else:
            source = row_after(state, slot, row - past)
        memcpy(before + t * count, source + first, 4 * count)
    kernels().conv(x, stride, stage.taps + first, size, past + 1, count, before, count, span.rows,
                   <float*>at(&stage.out, span.first, NULL) + first, stage.out.stride // 4)
    for column in range(span.rows):
        slot = kept_at(p, span.first + column)
        if slot < 0:
            continue
        for t in range(past):
            row = column - past + 1 + t
            source = x + row * stride if row >= 0 else before + (past + row) * count
            memcpy(state.slots + slot * state.size + t * size + first, source, 4 * count)
        for t in range(followers(stage, span, column)):
            memcpy(row_after(state, slot, t) + first, x + (column + 1 + t) * stride, 4 * count)


cdef void scan_delta(Pass* p, Stage* stage, Run* span, Py_ssize_t part,
                     float* held) noexcept nogil:
    """DELTA_LANES values of a head, from one column whose state is kept to the next.

    `held` has room for these of the state, and for as many values of a row.
    """
    cdef Carried* state = stage.state
    cdef Py_ssize_t blocks = (stage.size + DELTA_LANES - 1) // DELTA_LANES
    cdef Py_ssize_t head = part // blocks, lane = part % blocks * DELTA_LANES
    cdef Py_ssize_t lanes = min(stage.size - lane, DELTA_LANES)
    cdef Py_ssize_t elements = stage.keys * DELTA_LANES, key = head % stage.key_heads * stage.keys
    cdef Py_ssize_t first = 0, column, t, at_row
    cdef int slot = p.states[span.sequence], replays = replays_of(p, span.sequence)
    cdef float* after
    if slot < 0:
        memset(held, 0, 4 * elements)
    else:
        memcpy(held, state.slots + slot * state.size + part * elements, 4 * elements)
    if replays:
        after = row_after(state, slot, 0) + part * (stage.keys + DELTA_ROW)
        kernels().delta(
            held, stage.keys, lanes, after, state.row, after, state.row,
            after + stage.keys, state.row, after + stage.keys + DELTA_LANES, state.row,
            after + stage.keys + DELTA_LANES + 1, state.row, replays, held + elements, 0)
    for column in range(span.rows):
        slot = kept_at(p, span.first + column)
        if slot < 0 and column < span.rows - 1:
            continue
        at_row = span.first + first
        kernels().delta(
            held, stage.keys, lanes,
            <const float*>at(&stage.inputs[0], at_row, NULL) + key, stage.inputs[0].stride // 4,
            <const float*>at(&stage.inputs[1], at_row, NULL) + key, stage.inputs[1].stride // 4,
            <const float*>at(&stage.inputs[2], at_row, NULL) + head * stage.size + lane,
            stage.inputs[2].stride // 4,
            <const float*>at(&stage.inputs[3], at_row, NULL) + head, stage.inputs[3].stride // 4,
            <const float*>at(&stage.inputs[4], at_row, NULL) + head, stage.inputs[4].stride // 4,
            column + 1 - first,
            <float*>at(&stage.out, at_row, NULL) + head * stage.size + lane,
            stage.out.stride // 4)
        first = column + 1
        if slot < 0:
            continue
        memcpy(state.slots + slot * state.size + part * elements, held, 4 * elements)
        for t in range(followers(stage, span, column)):
            at_row = span.first + column + 1 + t
            after = row_after(state, slot, t) + part * (stage.keys + DELTA_ROW)
            memcpy(after, <float*>at(&stage.inputs[1], at_row, NULL) + key, 4 * stage.keys)
            after += stage.keys
            memcpy(after, <float*>at(&stage.inputs[2], at_row, NULL) + head * stage.size + lane,
                   4 * lanes)
            after[DELTA_LANES] = (<float*>at(&stage.inputs[3], at_row, NULL))[head]
            after[DELTA_LANES + 1] = (<float*>at(&stage.inputs[4], at_row, NULL))[head]


cdef void scan_previous(Pass* p, Stage* stage, Run* span) noexcept nogil:
    """The first row is what the state says, which is read before anything is kept."""
    cdef Carried* state = stage.state
    cdef Py_ssize_t column, t
    cdef int slot
    recall(p, state, span.sequence, <float*>at(&stage.out, span.first, NULL))
    for column in range(span.rows):
        if column:
            memcpy(at(&stage.out, span.first + column, NULL),
                   at(&stage.inputs[0], span.first + column - 1, NULL), 4 * stage.size)
        slot = kept_at(p, span.first + column)
        if slot < 0:
            continue
        memcpy(state.slots + slot * state.size,
               at(&stage.inputs[0], span.first + column, NULL), 4 * stage.size)
        for t in range(followers(stage, span, column)):
            memcpy(row_after(state, slot, t),
                   at(&stage.inputs[0], span.first + column + 1 + t, NULL), 4 * stage.size)
