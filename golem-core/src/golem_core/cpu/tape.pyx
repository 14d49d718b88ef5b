"""A program of the processor: a tape of stages that a pool of workers replays.

`lower.py` writes a tape once. A pass hands it the pass's numbers and is one call without the GIL:
the workers walk the stages together, take rows, tiles or heads from a counter of each stage until
it is used up, and meet at a barrier. Nothing is allocated and no Python runs in a pass.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
from libc.math cimport cos, exp, ldexp, log1p, sin
from libc.string cimport memcpy, memset

import numpy as np

from golem_core.cpu.dispatch cimport TILE_COLUMNS, columns_at_once, kernels
from golem_core.cpu.kernels.table cimport (
    ATTEND_ROWS, ATTEND_SCRATCH, DELTA_LANES, PAGE, Attend, Columns, Glu, Kernels, Pack, Packed,
    Product, Rope, View, WITHIN,
)
from golem_core.cpu.pool cimport Pool, Shared, arrive, proceed

include "replay.pxi"
include "mixture.pxi"
include "scan.pxi"
include "convolve.pxi"
include "kept.pxi"
include "memory.pxi"


cdef class Tape:
    """See the module. The methods up to `finish` write the tape; `run` replays it."""

    cdef readonly Pool pool
    cdef readonly int width
    cdef readonly int most_outputs
    cdef int workers
    cdef list alive             # arrays and mappings that the tape points into
    cdef Code code
    cdef Kept** caches
    cdef int cache_count
    cdef Carried** states
    cdef int state_count
    cdef int slots              # of each state
    cdef int most_pairs         # rows and experts of a mixture at most
    cdef int most_experts
    cdef char* arena
    cdef size_t arena_bytes
    cdef char* weights
    cdef size_t weight_bytes
    cdef int vocabulary_rows    # ids must be below
    cdef int position_rows      # positions must be below
    cdef int kind_rows          # kinds must be below
    cdef int groups
    cdef list group_pages

    def __cinit__(self, Pool pool, int width, int outputs, list group_pages):
        if len(group_pages) > 16:
            raise ValueError("a program has at most 16 groups of pages")
        self.pool = pool
        self.workers = pool.workers
        self.code.shared = pool.shared
        self.width = width
        self.most_outputs = outputs
        self.group_pages = group_pages
        self.groups = len(group_pages)
        self.alive = []
        self.vocabulary_rows = self.position_rows = self.kind_rows = 2**31 - 1
        self.code.runs = <Run*>PyMem_Calloc(max(width, outputs), sizeof(Run))
        self.code.spans = <Run*>PyMem_Calloc(max(width, outputs), sizeof(Run))
        self.code.picked = <Run*>PyMem_Calloc(max(1, outputs), sizeof(Run))
        self.code.now.picked_positions = <int*>PyMem_Calloc(max(1, outputs), sizeof(int))
        if (self.code.runs == NULL or self.code.spans == NULL or self.code.picked == NULL
                or self.code.now.picked_positions == NULL):
            raise MemoryError()

    # Writing

    def reserve_weights(self, size_t nbytes):
        """Room for all packed matrices, in huge pages where the kernel has them."""
        self.weights = <char*>reserve(nbytes)
        self.weight_bytes = nbytes
        madvise(self.weights, nbytes, MADV_HUGEPAGE)

    def map_weights(self, int descriptor, Py_ssize_t offset, size_t nbytes, bint writable):
        """The packed matrices are, or with `writable` come to be, the bytes of a file."""
        self.weights = <char*>reserve(nbytes)
        self.weight_bytes = nbytes
        lay_file(self.weights, descriptor, offset, nbytes, writable)
        if not writable:
            madvise(self.weights, nbytes, MADV_WILLNEED)

    def pack(self, int format, const unsigned char[::1] source, Py_ssize_t rows,
             Py_ssize_t cols, Py_ssize_t panel, Py_ssize_t offset):
        """Packs a matrix from its layout in the file to `offset` of the weights."""
        cdef Packing job
        cdef const Kernels* table = kernels()
        job.pack = table.pack[format]
        if job.pack == NULL:
            raise ValueError(f"no kernel packs format {format}")
        job.source = &source[0]
        job.rows = rows
        job.cols = cols
        job.panels = (rows + 15) // 16
        if offset < 0 or offset + job.panels * panel > <Py_ssize_t>self.weight_bytes:
            raise ValueError("a matrix does not fit the room for weights")
        job.out = <unsigned char*>self.weights + offset
        atomic_store_explicit(&job.next, 0, memory_order_relaxed)
        with nogil:
            self.pool.run(pack_some, &job)

    def reserve_arena(self, size_t nbytes, size_t row_scratch, size_t product_scratch,
                      size_t scan_scratch):
        """Room for the values, and for every worker what its stages need for themselves.

        row_scratch      bytes of the values that live in one row stage only
        product_scratch  floats that the products of dequantised tiles need
        scan_scratch     floats of the part of a state that a worker has in hand
        """
        cdef Py_ssize_t tile = 16 * max(TILE_PANELS * TILE_COLUMNS, NARROW_PANELS * NARROW)
        cdef size_t products, attends = 4 * ATTEND_SCRATCH
        self.arena_bytes = max(nbytes, <size_t>64)
        self.arena = <char*>reserve(self.arena_bytes)
        madvise(self.arena, self.arena_bytes, MADV_HUGEPAGE)
        self.code.tile_floats = 2 * tile
        products = 4 * (<size_t>self.code.tile_floats + product_scratch)
        self.code.scratch_bytes = max(max(row_scratch, 4 * scan_scratch), max(products, attends))
        self.code.scratch_bytes = (self.code.scratch_bytes + 4095) // 4096 * 4096
        self.code.scratch = <char*>reserve(self.code.scratch_bytes * self.pool.workers)

    def add_cache(self, int group, Py_ssize_t heads, Py_ssize_t dim, window, str kv):
        """The pages of a layer. Gives its number."""
        cdef const Kernels* table = kernels()
        cdef Kept* kept = <Kept*>PyMem_Calloc(1, sizeof(Kept))
        cdef Kept** caches
        cdef Py_ssize_t item = 2 if kv == "f16" else 4
        if kept == NULL:
            raise MemoryError()
        caches = <Kept**>PyMem_Realloc(self.caches, (self.cache_count + 1) * sizeof(Kept*))
        if caches == NULL:
            PyMem_Free(kept)
            raise MemoryError()
        self.caches = caches
        self.caches[self.cache_count] = kept
        self.cache_count += 1
        kept.heads = heads
        kept.dim = dim
        kept.padded = (dim + 15) // 16 * 16
        kept.key_page = heads * dim * PAGE * item
        kept.value_page = heads * kept.padded * PAGE * item
        kept.group = group
        kept.window = window or 0
        kept.half = kv == "f16"
        kept.store = table.store_half if kv == "f16" else table.store_float
        kept.attend = table.attend_half if kv == "f16" else table.attend_float
        kept.key_bytes = max(64, self.group_pages[group] * kept.key_page)
        kept.keys = <char*>reserve(kept.key_bytes)
        kept.value_bytes = max(64, self.group_pages[group] * kept.value_page)
        kept.values = <char*>reserve(kept.value_bytes)
        return self.cache_count - 1

    def add_state(self, Py_ssize_t size, int slots):
        """Room for `slots` states of `size` floats. Gives its number."""
        cdef Carried* state = <Carried*>PyMem_Calloc(1, sizeof(Carried))
        cdef Carried** states
        if state == NULL:
            raise MemoryError()
        states = <Carried**>PyMem_Realloc(self.states, (self.state_count + 1) * sizeof(Carried*))
        if states == NULL:
            PyMem_Free(state)
            raise MemoryError()
        self.states = states
        self.states[self.state_count] = state
        self.state_count += 1
        self.slots = slots
        state.size = size
        state.nbytes = max(64, 4 * size * slots)
        state.slots = <float*>reserve(state.nbytes)
        return self.state_count - 1

    cdef Stage* add_stage(self, int kind, bint picked, int count) except NULL:
        cdef Stage* stages = <Stage*>PyMem_Realloc(
            self.code.stages, (self.code.stage_count + 1) * sizeof(Stage))
        cdef Stage* stage
        if stages == NULL:
            raise MemoryError()
        self.code.stages = stages
        stage = &self.code.stages[self.code.stage_count]
        memset(stage, 0, sizeof(Stage))
        self.code.stage_count += 1
        stage.kind = kind
        stage.picked = picked
        stage.rate = 1
        if kind == ROWS:
            stage.ops = <RowOp*>PyMem_Calloc(count, sizeof(RowOp))
        elif kind in (PRODUCT, EXPERTS, WINDOWS):
            stage.jobs = <Job*>PyMem_Calloc(count, sizeof(Job))
        return stage

    cdef Operand operand(self, tuple where):
        """(in the arena?, offset, stride in bytes) as the tape has it."""
        cdef Operand made
        made.base = self.arena + <Py_ssize_t>where[1] if where[0] else NULL
        made.offset = where[1]
        made.stride = where[2]
        return made

    cdef const float* floats(self, vector) except? NULL:
        """A float32 vector that lives as long as the tape; NULL for None."""
        cdef const float[::1] view
        if vector is None:
            return NULL
        kept = np.ascontiguousarray(vector, dtype=np.float32).reshape(-1)
        self.alive.append(kept)
        view = kept
        return &view[0]

    cdef Columns columns(self, tuple x):
        """The layout of a quantised input, (offset, cols, rows), in the arena."""
        cdef Columns made
        cdef Py_ssize_t offset = x[0], cols = x[1], rows = x[2]
        memset(&made, 0, sizeof(Columns))
        made.codes = <const signed char*>(self.arena + offset)
        offset += (rows * cols + 63) // 64 * 64
        made.scales = <const float*>(self.arena + offset)
        offset += (rows * (cols // 32) * 4 + 63) // 64 * 64
        made.sums = <const int*>(self.arena + offset)
        offset += (rows * (cols // 32) * 4 + 63) // 64 * 64
        made.halves = <const int*>(self.arena + offset)
        return made

    def add_rows(self, bint picked, int rate, list ops):
        """A stage of row operations, each a dict of what its kind needs (see `lower.py`)."""
        cdef const Kernels* table = kernels()
        cdef Stage* stage = self.add_stage(ROWS, picked, len(ops))
        cdef RowOp* op
        cdef const double[::1] turns
        cdef const unsigned char[::1] source
        stage.rate = rate
        for given in ops:
            op = &stage.ops[stage.count]
            kind = given["kind"]
            op.a = self.operand(given.get("a", (True, 0, 0)))
            op.b = self.operand(given.get("b", (True, 0, 0)))
            op.out = self.operand(given.get("out", (True, 0, 0)))
            op.size = given.get("size", 0)
            op.heads = given.get("heads", 1)
            op.dim = given.get("dim", op.size)
            op.half = given.get("half", 0)
            op.start = given.get("start", 0)
            op.count = given.get("count", 0)
            op.value = given.get("value", 0.0)
            if kind == "angles":
                op.kind = ANGLES
                self.alive.append(given["turns"])
                turns = given["turns"]
                op.turns = &turns[0]
            elif kind == "embed":
                op.kind = EMBED
                self.alive.append(given["table"])
                source = given["table"]
                op.table = &source[0]
                op.row_bytes = given["row_bytes"]
                op.dequantise = table.dequantise[<int>given["format"]]
                op.by = ("ids", "positions", "kinds", "").index(given["by"])
                if op.by == 0:
                    self.vocabulary_rows = min(self.vocabulary_rows, given["rows"])
                elif op.by == 1:
                    self.position_rows = min(self.position_rows, given["rows"])
                elif op.by == 2:
                    self.kind_rows = min(self.kind_rows, given["rows"])
                if op.dequantise == NULL:
                    raise ValueError(f"no kernel reads format {given['format']}")
            elif kind == "rms_norm":
                op.kind = NORM
                op.vector = self.floats(given["vector"])
            elif kind == "layer_norm":
                op.kind = LAYER_NORM
                op.vector = self.floats(given["vector"])
                op.bias = self.floats(given["bias"])
            elif kind == "rope":
                op.kind = ROPE
                op.rope = table.rope_half if given["layout"] == "half" else table.rope_pairs
            elif kind == "store":
                op.kind = STORE
                op.cache = self.caches[<int>given["cache"]]
            elif kind == "add":
                op.kind = ADD
            elif kind == "mul":
                op.kind = MUL
            elif kind == "scale":
                op.kind = SCALE
            elif kind == "glu":
                op.kind = GATE if given["single"] else GLU
                op.act = self.act(given["act"])
            elif kind == "activate":
                op.kind = ACTIVATE
                op.act = self.act(given["act"])
            elif kind == "slice":
                op.kind = SLICE
            elif kind == "concat":
                op.kind = CONCAT
            elif kind == "decay":
                op.kind = DECAY
                op.vector = self.floats(given["vector"])
                op.bias = self.floats(given["bias"])
            elif kind == "route":
                op.kind = ROUTE
            elif kind == "combine":
                op.kind = COMBINE
                op.vector = self.floats(given["vector"])
            elif kind == "recall":
                op.kind = RECALL
                op.state = self.states[<int>given["state"]]
            elif kind == "softcap":
                op.kind = SOFTCAP
            elif kind == "pick":
                op.kind = PICK
            elif kind == "pool":
                op.kind = POOL
            elif kind == "quantise":
                op.kind = QUANTISE
                op.codes = self.columns(given["codes"])
            elif kind == "round":
                op.kind = ROUND
                op.round = table.round_bf16
            else:
                raise ValueError(f"no row operation {kind!r}")
            stage.count += 1

    cdef Glu act(self, str name) except NULL:
        cdef const Kernels* table = kernels()
        if name == "silu":
            return table.silu
        if name == "gelu_tanh":
            return table.gelu_tanh
        if name == "gelu_erf":
            return table.gelu_erf
        if name == "sigmoid":
            return table.sigmoid
        if name == "elu":
            return table.elu
        raise ValueError(f"no activation {name!r}")

    cdef Packed packed(self, tuple weight):
        """(offset or None, the file's bytes, rows, cols, bytes of a panel) as kernels have it."""
        cdef Packed made
        cdef const unsigned char[::1] source
        if weight[0] is None:
            self.alive.append(weight[1])
            source = weight[1]
            made.data = &source[0]
        else:
            made.data = <const unsigned char*>self.weights + <Py_ssize_t>weight[0]
        made.rows = weight[2]
        made.cols = weight[3]
        made.panel = weight[4]
        return made

    def add_product(self, bint picked, int rate, x, codes, rounded, Py_ssize_t cols, list jobs):
        """A stage of products with the columns at `x` (floats), `codes` and `rounded`, or None."""
        cdef Stage* stage = self.add_stage(PRODUCT, picked, len(jobs))
        cdef Operand floats
        if codes is not None:
            stage.x = self.columns(codes)
        if x is not None:
            floats = self.operand(x)
            stage.x.floats = <const float*>floats.base
            stage.x.stride = floats.stride // 4
        if rounded is not None:
            stage.x.rounded = <const float*>self.operand(rounded).base
        stage.cols = cols
        stage.rate = rate
        self.add_jobs(stage, jobs)

    def add_convolution(self, int state, int rate, int past, tuple x, tuple lead, codes,
                        Py_ssize_t size, str act, dict job):
        """Rows of x [size], activated, put to `lead` behind the `past` before; their windows' product.

        codes  where the windows' codes go, (offset, cols, windows), for a product that reads them
        """
        cdef Stage* stage = self.add_stage(LEAD, False, 0)
        cdef Columns windows
        memset(&windows, 0, sizeof(Columns))
        if codes is not None:
            if size > LED_SIZE or size % 32:
                raise ValueError(f"rows of {size} are not quantised for a convolution")
            windows = self.columns(codes)
            stage.coded = True
            stage.x = windows
        stage.state = self.states[state]
        stage.inputs[0] = self.operand(x)
        stage.out = self.operand(lead)
        stage.size, stage.past, stage.rate = size, past, rate
        if act:
            stage.act = self.act(act)
        stage = self.add_stage(WINDOWS, False, 1)
        stage.past, stage.rate = past, rate
        stage.coded = codes is not None
        stage.x = windows
        stage.x.floats = <const float*>self.operand(lead).base
        stage.x.stride = size
        self.add_jobs(stage, [job])

    cdef int add_jobs(self, Stage* stage, list jobs) except -1:
        cdef const Kernels* table = kernels()
        cdef Job* job
        for given in jobs:
            job = &stage.jobs[stage.count]
            job.product = table.product[<int>given["format"]]
            if job.product == NULL:
                raise ValueError(f"no kernel multiplies format {given['format']}")
            job.weight = self.packed(given["weight"])
            job.bias = self.floats(given["bias"])
            job.out = self.operand(given["out"])
            if given["residual"] is not None:
                job.residual = self.operand(given["residual"])
            if given["gate"] is not None:
                job.gate = self.packed(given["gate"])
                job.gate_bias = self.floats(given["gate_bias"])
            if given["act"]:
                job.act = self.act(given["act"])
            stage.count += 1
        return 0

    def add_sort(self, bint picked, tuple routing, int used, int experts):
        """The rows of a pass by the experts that they have chosen."""
        cdef Stage* stage = self.add_stage(SORT, picked, 0)
        stage.routing = self.operand(routing)
        stage.used = used
        stage.experts = experts
        self.most_pairs = max(self.most_pairs, used * max(self.width, self.most_outputs))
        self.most_experts = max(self.most_experts, experts)

    def add_experts(self, bint picked, int used, int experts, source, codes, rounded, tuple room,
                    bint coded, bint floating, bint rounding, bint each, list jobs):
        """What sorted rows read, put beside each other, and the products with it.

        source    the rows' floats, and with `each` those of every expert of a row
        codes     the rows' codes, where the experts read the row itself and some read codes
        rounded   the rows rounded to bf16, likewise
        room      where sorted columns lie: (offset, cols, pairs), floats behind the codes, then
                  rounded ones
        coded     whether products read codes; floating: whether some read floats; rounding:
                  whether some read rounded columns
        """
        cdef Stage* stage = self.add_stage(SPREAD, picked, 0)
        cdef Columns x
        cdef Py_ssize_t offset = room[0], cols = room[1], pairs = room[2]
        cdef Job* job
        cdef int j
        stage.used = used
        stage.experts = experts
        stage.cols = cols
        stage.coded = coded
        stage.floating = floating
        stage.rounding = rounding
        stage.round = kernels().round_bf16
        stage.each = each
        if source is not None:
            stage.source = self.operand(source)
        if codes is not None:
            stage.codes = self.columns(codes)
        if rounded is not None:
            stage.codes.rounded = <const float*>self.operand(rounded).base
        x = self.columns(room)
        offset = (<const char*>(x.halves + pairs * (cols // 16)) - self.arena + 63) // 64 * 64
        if floating:
            x.floats = <const float*>(self.arena + offset)
            x.stride = cols
            offset = (offset + 4 * pairs * cols + 63) // 64 * 64
        if rounding:
            x.rounded = <const float*>(self.arena + offset)
        stage.x = x
        stage = self.add_stage(EXPERTS, picked, len(jobs))
        stage.x = x
        stage.used = used
        stage.cols = cols
        self.add_jobs(stage, jobs)
        for j in range(stage.count):
            job = &stage.jobs[j]
            job.out.stride //= used  # every pair has its own row
            job.expert = self.expert_bytes(jobs[j]["weight"], experts)
            if job.gate.data != NULL:
                job.gate_expert = self.expert_bytes(jobs[j]["gate"], experts)

    cdef Py_ssize_t expert_bytes(self, tuple weight, int experts) except -1:
        """From one expert's matrix to the next, packed or as in the file."""
        if weight[0] is None:
            return len(weight[1]) // experts
        return (weight[2] + 15) // 16 * weight[4]

    def add_conv(self, int state, tuple x, tuple out, taps):
        """A convolution with `taps` [taps, channels]."""
        cdef Stage* stage = self.add_stage(CONV, False, 0)
        stage.state = self.states[state]
        stage.inputs[0] = self.operand(x)
        stage.out = self.operand(out)
        stage.past, stage.size = taps.shape[0] - 1, taps.shape[1]
        stage.taps = self.floats(taps)

    def add_delta(self, int state, list inputs, tuple out, Py_ssize_t key_heads, Py_ssize_t keys,
                  Py_ssize_t heads, Py_ssize_t size):
        """A delta net over q, k, v, decay and beta."""
        cdef Stage* stage = self.add_stage(DELTA, False, 0)
        stage.state = self.states[state]
        for i in range(5):
            stage.inputs[i] = self.operand(inputs[i])
        stage.out = self.operand(out)
        stage.key_heads, stage.keys, stage.heads, stage.size = key_heads, keys, heads, size

    def add_previous(self, int state, tuple x, tuple out, Py_ssize_t size):
        """The row before."""
        cdef Stage* stage = self.add_stage(PREVIOUS, False, 0)
        stage.state = self.states[state]
        stage.inputs[0] = self.operand(x)
        stage.out = self.operand(out)
        stage.size = size

    def add_attend(self, bint picked, int cache, tuple q, tuple out, Py_ssize_t query_heads,
                   float scale, float softcap):
        """The attention of one layer."""
        cdef Stage* stage = self.add_stage(ATTEND, picked, 0)
        stage.cache = self.caches[cache]
        stage.q = self.operand(q)
        stage.out = self.operand(out)
        stage.query_heads = query_heads
        stage.scale = scale
        stage.softcap = softcap

    def add_within(self, list inputs, tuple out, Py_ssize_t heads, Py_ssize_t key_heads,
                   Py_ssize_t dim, float scale, Py_ssize_t reach, bint causal, bias):
        """An attention of texts to themselves; a reach of -1 has no end."""
        cdef Stage* stage = self.add_stage(WITHIN_TEXT, False, 0)
        for i in range(3):
            stage.inputs[i] = self.operand(inputs[i])
        stage.out = self.operand(out)
        stage.query_heads, stage.key_heads, stage.dim = heads, key_heads, dim
        stage.scale = scale
        stage.before = reach
        stage.after = 0 if causal else reach
        stage.size = self.width
        stage.bias = self.floats(bias)
        stage.within = kernels().attend_within

    def begin_drafting(self):
        """What is written from now on is the drafting pass."""
        self.code.drafting = self.code.stage_count

    def finish(self):
        """The tape is written."""
        cdef Mixture* mixture = &self.code.mixture
        if self.most_experts:
            mixture.order = <int*>PyMem_Calloc(self.most_pairs, sizeof(int))
            mixture.begin = <int*>PyMem_Calloc(self.most_experts + 1, sizeof(int))
            mixture.active = <int*>PyMem_Calloc(self.most_experts, sizeof(int))
            if mixture.order == NULL or mixture.begin == NULL or mixture.active == NULL:
                raise MemoryError()
        self.code.counters = <atomic_int*>PyMem_Calloc(max(self.code.stage_count, 1), sizeof(atomic_int))
        if self.code.counters == NULL:
            raise MemoryError()

    def view(self, Py_ssize_t offset, Py_ssize_t rows, Py_ssize_t size):
        """Float32 [rows, size] of the arena, not copied; it keeps the arena alive."""
        if offset < 0 or offset + 4 * rows * size > <Py_ssize_t>self.arena_bytes:
            raise ValueError("outside the arena")
        cdef Window window = Window()
        window.tape = self
        window.data = <float*>(self.arena + offset)
        window.shape[0], window.shape[1] = rows, size
        window.strides[0], window.strides[1] = 4 * size, 4
        return np.asarray(window)

    # Keys and values from outside a pass

    @property
    def caches(self):
        """How many there are."""
        return self.cache_count

    def put(self, int cache, const int[::1] table, Py_ssize_t first, const float[:, :, ::1] keys,
            const float[:, :, ::1] values):
        """Keeps keys and values [positions, heads, dim] at positions from `first` on."""
        cdef Kept* kept = self.kept(cache, table, first + keys.shape[0])
        if keys.shape[0] == 0:
            return
        if first < 0 or keys.shape[1] != kept.heads or keys.shape[2] != kept.dim or (
                values.shape[0] != keys.shape[0] or values.shape[1] != kept.heads
                or values.shape[2] != kept.dim):
            raise ValueError(f"keys and values of {kept.heads} heads of {kept.dim} were expected")
        put_kept(kept, &table[0], first, keys.shape[0], &keys[0, 0, 0], &values[0, 0, 0])

    def page(self, int cache, int page):
        """The keys and values [32, heads, dim] of a page, float32."""
        cdef Kept* kept = self.kept(cache, np.array([page], np.int32), 1)
        cdef float[:, :, ::1] keys = np.empty((PAGE, kept.heads, kept.dim), np.float32)
        cdef float[:, :, ::1] values = np.empty((PAGE, kept.heads, kept.dim), np.float32)
        get_kept(kept, page, &keys[0, 0, 0], &values[0, 0, 0])
        return np.asarray(keys), np.asarray(values)

    cdef Kept* kept(self, int cache, const int[::1] table, Py_ssize_t end) except NULL:
        """A cache whose pages up to position `end` exist."""
        cdef Py_ssize_t i
        if not 0 <= cache < self.cache_count:
            raise ValueError(f"cache {cache} of {self.cache_count}")
        if end > table.shape[0] * PAGE:
            raise ValueError(f"{end} positions in {table.shape[0]} pages")
        for i in range((end + PAGE - 1) // PAGE):
            if not 0 <= table[i] < self.group_pages[self.caches[cache].group]:
                raise ValueError(f"page {table[i]} at position {i * PAGE}")
        return self.caches[cache]

    # Replaying

    def run(self, const int[::1] ids, const int[::1] positions, const int[::1] sequence,
            tables, const int[::1] outputs, const int[::1] states, const int[::1] keeps,
            bint drafting, const int[::1] kinds=None):
        """One pass; the shapes are those of `golem_core.graph.Batch`."""
        cdef int most = self.most_outputs if drafting else self.width
        cdef Pass* p = &self.code.now
        cdef const int[:, ::1] table
        cdef int group, sequences
        p.n = ids.shape[0]
        p.m = outputs.shape[0]
        if self.code.counters == NULL:
            raise ValueError("the tape is not finished, or closed")
        if not 1 <= p.n <= most:
            raise ValueError(f"a pass of {p.n} columns; this program takes 1 to {most}")
        if p.m > self.most_outputs:
            raise ValueError(f"{p.m} rows of logits; this program gives {self.most_outputs}")
        if positions.shape[0] != p.n or sequence.shape[0] != p.n:
            raise ValueError("ids, positions and sequence differ in length")
        if len(tables) != self.groups:
            raise ValueError(f"{len(tables)} page tables for {self.groups} groups")
        p.ids = &ids[0]
        p.positions = &positions[0]
        p.sequence = &sequence[0]
        p.outputs = &outputs[0] if p.m else NULL
        p.kinds = NULL
        if kinds is not None:
            if kinds.shape[0] != p.n:
                raise ValueError(f"{kinds.shape[0]} kinds for {p.n} columns")
            p.kinds = &kinds[0]
        sequences = 0
        for group in range(self.groups):
            table = tables[group]
            sequences = table.shape[0]
            p.tables[group] = &table[0, 0]
            p.table_width[group] = table.shape[1]
            self.check_table(table, positions, sequence, group)
        self.check_columns(sequences)
        p.states = p.keeps = NULL
        if self.state_count:
            self.check_states(states, keeps, drafting)
        self.code.first = self.code.drafting if drafting else 0
        self.code.end = self.code.stage_count if drafting else self.code.drafting
        with nogil:
            self.replay()

    cdef int check_columns(self, int sequences) except -1:
        """Ids, sequences and outputs in range; makes the runs."""
        cdef Pass* p = &self.code.now
        cdef int i, column
        # Long runs read a page for many rows; short ones are more pieces to share out.
        cdef int most = max(8, min(<int>ATTEND_ROWS, p.n // (2 * self.workers)))
        cdef Run* run = NULL
        cdef Run* span = NULL
        p.runs = p.spans = 0
        for i in range(p.n):
            if not 0 <= p.ids[i] < self.vocabulary_rows:
                raise ValueError(f"token id {p.ids[i]} is outside 0..{self.vocabulary_rows - 1}")
            if p.kinds != NULL and not 0 <= p.kinds[i] < self.kind_rows:
                raise ValueError(f"kind {p.kinds[i]} is outside 0..{self.kind_rows - 1}")
            if not 0 <= p.positions[i] < self.position_rows:
                raise ValueError(
                    f"position {p.positions[i]} is outside 0..{self.position_rows - 1}")
            if self.groups and not 0 <= p.sequence[i] < sequences:
                raise ValueError(f"sequence {p.sequence[i]} of {sequences}")
            if (run == NULL or run.rows == most or run.sequence != p.sequence[i]
                    or p.positions[i] != p.positions[i - 1] + 1):
                run = &self.code.runs[p.runs]
                p.runs += 1
                run.first = i
                run.rows = 0
                run.sequence = p.sequence[i]
            run.rows += 1
            if (span == NULL or span.sequence != p.sequence[i]
                    or p.positions[i] != p.positions[i - 1] + 1):
                span = &self.code.spans[p.spans]
                p.spans += 1
                span.first = i
                span.rows = 0
                span.sequence = p.sequence[i]
            span.rows += 1
        run = NULL
        p.picked_runs = 0
        for i in range(p.m):
            column = p.outputs[i]
            if not 0 <= column < p.n:
                raise ValueError(f"output row {column} of {p.n} columns")
            p.picked_positions[i] = p.positions[column]
            if (run == NULL or run.rows == most or run.sequence != p.sequence[column]
                    or p.picked_positions[i] != p.picked_positions[i - 1] + 1):
                run = &self.code.picked[p.picked_runs]
                p.picked_runs += 1
                run.first = i
                run.rows = 0
                run.sequence = p.sequence[column]
            run.rows += 1
        return 0

    cdef int check_states(self, const int[::1] states, const int[::1] keeps,
                          bint drafting) except -1:
        """Slots exist; a sequence's columns stand together."""
        cdef Pass* p = &self.code.now
        cdef int i, j
        if states is None or (keeps is None and not drafting):
            raise ValueError("a program with states needs to know the slots of a pass")
        for i in range(p.spans):
            for j in range(i):
                if self.code.spans[j].sequence == self.code.spans[i].sequence:
                    raise ValueError(f"sequence {self.code.spans[i].sequence} stands in two places")
            if self.code.spans[i].sequence >= states.shape[0]:
                raise ValueError(f"sequence {self.code.spans[i].sequence} has no slot")
        for i in range(states.shape[0]):
            if not -1 <= states[i] < self.slots:
                raise ValueError(f"slot {states[i]} of {self.slots}")
        p.states = &states[0]
        if keeps is not None:
            if keeps.shape[0] != p.n:
                raise ValueError(f"{keeps.shape[0]} slots for {p.n} columns")
            for i in range(p.n):
                if not -1 <= keeps[i] < self.slots:
                    raise ValueError(f"slot {keeps[i]} of {self.slots}")
            p.keeps = &keeps[0]
        return 0

    cdef int check_table(self, const int[:, ::1] table, const int[::1] positions,
                         const int[::1] sequence, int group) except -1:
        """Every page that a column may read or write exists."""
        cdef int i, page, first, pages = self.group_pages[group]
        cdef Py_ssize_t window = 0
        cdef int c
        for c in range(self.cache_count):
            if self.caches[c].group == group:
                window = self.caches[c].window
        for i in range(positions.shape[0]):
            if positions[i] < 0 or positions[i] // PAGE >= table.shape[1]:
                raise ValueError(f"position {positions[i]} has no entry in the page table")
            if not 0 <= sequence[i] < table.shape[0]:
                raise ValueError(f"sequence {sequence[i]} of {table.shape[0]}")
            # Within a prompt's chunk a row differs from the one before it by its newest page only.
            first = 0 if window == 0 else max(0, positions[i] - window + 1) // PAGE
            if i > 0 and sequence[i] == sequence[i - 1] and positions[i] == positions[i - 1] + 1:
                first = positions[i] // PAGE
            for page in range(first, positions[i] // PAGE + 1):
                if not 0 <= table[sequence[i], page] < pages:
                    raise ValueError(
                        f"page {table[sequence[i], page]} of {pages} at position {page * PAGE}")
        return 0

    cdef void replay(self) noexcept nogil:
        cdef int s
        for s in range(self.code.first, self.code.end):
            atomic_store_explicit(&self.code.counters[s], 0, memory_order_relaxed)
        self.pool.run(walk, &self.code)

    def time_stages(self):
        """From now on, notes when workers begin and end the stages of a pass.

        Gives the array of the notes, float64 [stages, workers, 2], seconds of the monotonic clock;
        0 where a worker had no part in a stage. Every pass overwrites it.
        """
        cdef double[:, :, ::1] times = np.zeros((self.code.stage_count, self.workers, 2))
        self.code.times = &times[0, 0, 0]
        self.alive.append(times)
        return np.asarray(times)

    def close(self):
        """Gives the memory back, but for the arena, which goes with the last view of it."""
        self.free()
        self.alive.clear()

    cdef void free(self) noexcept:
        cdef int i
        if self.code.stages != NULL:
            for i in range(self.code.stage_count):
                PyMem_Free(self.code.stages[i].ops)
                PyMem_Free(self.code.stages[i].jobs)
            PyMem_Free(self.code.stages)
            self.code.stages = NULL
            self.code.stage_count = 0
        for i in range(self.cache_count):
            release(self.caches[i].keys, self.caches[i].key_bytes)
            release(self.caches[i].values, self.caches[i].value_bytes)
            PyMem_Free(self.caches[i])
        self.cache_count = 0
        for i in range(self.state_count):
            release(self.states[i].slots, self.states[i].nbytes)
            PyMem_Free(self.states[i])
        self.state_count = 0
        PyMem_Free(self.states)
        self.states = NULL
        PyMem_Free(self.code.mixture.order)
        PyMem_Free(self.code.mixture.begin)
        PyMem_Free(self.code.mixture.active)
        memset(&self.code.mixture, 0, sizeof(Mixture))
        PyMem_Free(self.caches)
        self.caches = NULL
        PyMem_Free(self.code.counters)
        self.code.counters = NULL
        release(self.weights, self.weight_bytes)
        self.weights = NULL
        if self.code.scratch != NULL:
            release(self.code.scratch, self.code.scratch_bytes * self.workers)
        self.code.scratch = NULL

    def __dealloc__(self):
        # No Python object may be touched here: a collected cycle has taken them away.
        self.free()
        release(self.arena, self.arena_bytes)
        PyMem_Free(self.code.runs)
        PyMem_Free(self.code.spans)
        PyMem_Free(self.code.picked)
        PyMem_Free(self.code.now.picked_positions)


def within_floats(Py_ssize_t length, Py_ssize_t dim):
    """Floats of scratch that an attention within a text of so many rows needs."""
    cdef Py_ssize_t positions = (length + 15) // 16 * 16, wide = (dim + 15) // 16 * 16
    return 16 + (2 * wide + WITHIN) * positions + 2 * WITHIN * wide


cdef class Window:
    """A part of an arena, as a buffer."""

    cdef Tape tape
    cdef float* data
    cdef Py_ssize_t[2] shape
    cdef Py_ssize_t[2] strides

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        buffer.buf = self.data
        buffer.obj = self
        buffer.len = 4 * self.shape[0] * self.shape[1]
        buffer.itemsize = 4
        buffer.readonly = 0
        buffer.format = "f"
        buffer.ndim = 2
        buffer.shape = self.shape
        buffer.strides = self.strides
        buffer.suboffsets = NULL
        buffer.internal = NULL
