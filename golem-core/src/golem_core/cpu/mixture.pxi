# How a mixture of experts is replayed: included by tape.pyx.
#
# A pass of few rows asks each expert for a column or two, a wide one for many: either way an
# expert's matrix is read once, for all the columns that have chosen it.


cdef void choose(const float* scores, Py_ssize_t experts, Py_ssize_t used,
                 float* out) noexcept nogil:
    """The `used` best of the scores, best first, of equals the lower; below them their softmax."""
    cdef Py_ssize_t slot, other, i, best
    cdef double sum = 0.0
    cdef float* weights = out + used
    for slot in range(used):
        best = -1
        for i in range(experts):
            for other in range(slot):
                if <Py_ssize_t>out[other] == i:
                    break
            else:
                if best < 0 or scores[i] > scores[best]:
                    best = i
        out[slot] = <float>best
    for slot in range(used):
        sum += exp(<double>scores[<Py_ssize_t>out[slot]] - scores[<Py_ssize_t>out[0]])
    for slot in range(used):
        weights[slot] = <float>(
            exp(<double>scores[<Py_ssize_t>out[slot]] - scores[<Py_ssize_t>out[0]]) / sum)


cdef void combine(const float* x, const float* routing, const float* scales, Py_ssize_t used,
                  Py_ssize_t size, float* out) noexcept nogil:
    """The sum of x [used, size], by weight and scale, in the order of the routing."""
    cdef const Kernels* k = kernels()
    cdef Py_ssize_t slot
    cdef float weight
    for slot in range(used):
        weight = routing[used + slot]
        if scales != NULL:
            weight = weight * scales[<Py_ssize_t>routing[slot]]
        if slot == 0:
            k.scale(x, weight, size, out)
        else:
            k.axpy(x + slot * size, weight, size, out)


cdef void sort_rows(Code* code, Stage* stage) noexcept nogil:
    """Counts, then deals: an expert's pairs stay in the order of the rows."""
    cdef Mixture* mixture = &code.mixture
    cdef int rows = rows_of(code, stage), used = stage.used, row, slot, expert, place
    cdef const float* chosen
    memset(mixture.begin, 0, (stage.experts + 1) * sizeof(int))
    for row in range(rows):
        chosen = <const float*>at(&stage.routing, row, NULL)
        for slot in range(used):
            mixture.begin[<int>chosen[slot] + 1] += 1
    mixture.count = mixture.most = 0
    for expert in range(stage.experts):
        if mixture.begin[expert + 1]:
            mixture.active[mixture.count] = expert
            mixture.count += 1
            mixture.most = max(mixture.most, mixture.begin[expert + 1])
        mixture.begin[expert + 1] += mixture.begin[expert]
    for row in range(rows):
        chosen = <const float*>at(&stage.routing, row, NULL)
        for slot in range(used):
            place = mixture.begin[<int>chosen[slot]]
            mixture.order[place] = row * used + slot
            mixture.begin[<int>chosen[slot]] = place + 1
    # Every begin has run to its end, which is the next one's begin.
    for expert in range(stage.experts, 0, -1):
        mixture.begin[expert] = mixture.begin[expert - 1]
    mixture.begin[0] = 0


cdef void walk_spread(Code* code, Stage* stage, atomic_int* counter) noexcept nogil:
    """Puts what pair j of the order reads to column j of the stage's x."""
    cdef int pairs = rows_of(code, stage) * stage.used, j
    while True:
        j = take(counter)
        if j >= pairs:
            return
        spread(code, stage, j)


cdef void spread(Code* code, Stage* stage, Py_ssize_t j) noexcept nogil:
    cdef Py_ssize_t cols = stage.cols, blocks = cols // 32, even = cols + (cols & 1)
    cdef Py_ssize_t pair = code.mixture.order[j], row = pair // stage.used
    cdef const float* source = NULL
    cdef signed char* codes = <signed char*>stage.x.codes + j * cols
    cdef float* scales = <float*>stage.x.scales + j * blocks
    cdef int* sums = <int*>stage.x.sums + j * blocks
    cdef int* halves = <int*>stage.x.halves + j * 2 * blocks
    if stage.each or stage.floating:
        source = <const float*>at(&stage.source, row, NULL)
    if stage.each:
        source += pair % stage.used * cols
    if stage.floating:
        memcpy(<float*>stage.x.floats + j * cols, source, 4 * cols)
    if stage.rounding and stage.each:
        stage.round(source, cols, <float*>stage.x.rounded + j * even)
    elif stage.rounding:
        memcpy(<float*>stage.x.rounded + j * even, stage.codes.rounded + row * even, 4 * even)
    if stage.coded and stage.each:
        kernels().quantise(source, cols, codes, scales, sums, halves)
    elif stage.coded:
        memcpy(codes, stage.codes.codes + row * cols, cols)
        memcpy(scales, stage.codes.scales + row * blocks, 4 * blocks)
        memcpy(sums, stage.codes.sums + row * blocks, 4 * blocks)
        memcpy(halves, stage.codes.halves + row * 2 * blocks, 8 * blocks)


cdef void walk_experts(Code* code, Stage* stage, atomic_int* counter, char* scratch,
                       int workers) noexcept nogil:
    """Takes (job, expert, chunk of panels), for all the columns of the expert."""
    cdef Mixture* mixture = &code.mixture
    cdef Py_ssize_t block, chunk, chunks = 0, total = 0, unit, j, expert, first, end
    cdef Job job
    for j in range(stage.count):
        total += panels_of(&stage.jobs[j].weight) * mixture.count
    block = min(<Py_ssize_t>max(mixture.most, 1), columns_at_once(stage.cols))
    chunk = panels_at_once(block, total, workers)
    while True:
        unit = take(counter)
        for j in range(stage.count):
            chunks = (panels_of(&stage.jobs[j].weight) + chunk - 1) // chunk
            if unit < chunks * mixture.count:
                break
            unit -= chunks * mixture.count
        else:
            return
        expert = mixture.active[unit // chunks]
        job = stage.jobs[j]
        job.weight.data += expert * job.expert
        if job.gate.data != NULL:
            job.gate.data += expert * job.gate_expert
        first, end = mixture.begin[expert], mixture.begin[expert + 1]
        while first < end:
            tile(code, &stage.x, &job, unit % chunks * chunk, chunk, first,
                 min(block, end - first), 0, mixture.order, scratch)
            first += block
