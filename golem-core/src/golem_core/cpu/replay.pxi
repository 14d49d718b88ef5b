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
    int atomic_load_explicit(const atomic_int*, int)
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
    TILE_PANELS = 32        # most panels of 16 rows of a tile,
    TILE_SUMS = 1024        # and most times its columns
    CHANNELS = 256          # of a convolution that a worker takes at a time
    LED = 64                # rows of a lead that it does
    MOST_ROWS = 32          # of a stage of rows that a worker takes at a time: a page's
    DELTA_ROW = DELTA_LANES + 16  # floats of a remembered column after its key: v, decay, beta
    LED_BLOCKS = 128        # most blocks of 32 of a row of a lead that is quantised
    LED_SIZE = 32 * LED_BLOCKS
    TEXT_ROWS = 4 * WITHIN  # least rows of a text that a worker attends with at a time


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
    const int* replays          # [sequences]: columns after the kept ones; NULL: none
    const int* keeps            # [n]; NULL: nothing is kept
    const int* kinds            # [n]; NULL: all 0
    bint again                  # the drafting pass goes on from the one before
    const atomic_int* stop      # not 0: the stage before which the pass is given up; NULL: none
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
    bint stopped            # the pass was given up: one worker says so while the others wait
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
    comes last to the meeting does them, and the others wait for one barrier instead of two. The
    same one looks whether the pass is to go on.
    """
    cdef Code* code = <Code*>argument
    cdef char* scratch = code.scratch + worker * code.scratch_bytes
    cdef int s = code.first, after
    while s < code.end and not code.stopped:
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
        code.stopped = given_up(code, first)
        if not code.stopped:
            for s in range(first, end):
                walk_stage(code, s, worker, workers, scratch)
        proceed(code.shared)


cdef inline bint given_up(Code* code, int next) noexcept nogil:
    """Whether somebody asked, before stage `next` is begun, that it is not."""
    cdef int before
    if code.now.stop == NULL or next >= code.end:
        return False
    before = atomic_load_explicit(code.now.stop, memory_order_relaxed)
    return before != 0 and next >= before


cdef inline void walk_stage(Code* code, int s, int worker, int workers,
                            char* scratch) noexcept nogil:
    cdef Stage* stage = &code.stages[s]
    cdef double* times = code.times
    if times != NULL:
        times += 2 * (s * workers + worker)
        times[0] = now()
    if stage.kind == ROWS:
        walk_rows(code, stage, &code.counters[s], scratch, workers)
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
        walk_within(code, stage, &code.counters[s], <float*>scratch, workers)
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
