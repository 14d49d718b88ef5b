# How a tape is written, stage by stage: included by tape.pyx.
#
# What is given are the decisions of lower.py: places in the arena as (in the arena?, offset, bytes
# from a row to the next), formats as numbers, operations as a dict of what their kind needs.


cdef class _Writer(_Room):
    """The methods that `lower.py` calls, in the order of the stages, and `finish` at the end."""

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
            elif kind == "pass_on":
                op.kind = PASS_ON
                op.state = self.states[<int>given["state"]]
                self.passes_on = True
                if op.state.passed == NULL:
                    op.state.passed = <float*>PyMem_Calloc(
                        max(1, self.most_outputs) * op.state.size, sizeof(float))
                    if op.state.passed == NULL:
                        raise MemoryError()
            elif kind == "softcap":
                op.kind = SOFTCAP
            elif kind == "pick":
                op.kind = PICK
            elif kind == "pool":
                op.kind = POOL
            elif kind == "quantise":
                op.kind = QUANTISE
                op.codes = self.columns(given["codes"])
                op.quantise = table.quantise if op.dim == 32 else table.quantise_runs
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
