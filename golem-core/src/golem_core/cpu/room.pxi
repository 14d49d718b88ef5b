# The memory of a tape: weights, values, and what conversations keep: included by tape.pyx.


cdef class _Room:
    """What a tape points into, from its first stage to `close`."""

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
    cdef int guesses            # columns after a kept one that are remembered
    cdef bint passes_on         # from one drafting pass to the next
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

    def enter_weights(self):
        """Enters the pages of mapped matrices into the process's table.

        They would be faults of the first pass. A thread may do this beside all else: it holds no
        GIL, takes little at a time, as no other memory is given meanwhile, and ends where the tape
        is closed.
        """
        cdef char* first = self.weights
        cdef size_t at = 0
        with nogil:
            while at < self.weight_bytes and self.weights == first and first != NULL:
                if madvise(first + at, min(<size_t>ENTERED, self.weight_bytes - at),
                           MADV_POPULATE_READ):
                    break
                at += ENTERED

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
        cdef Py_ssize_t tile = 16 * TILE_SUMS
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

    def add_state(self, Py_ssize_t size, int slots, Py_ssize_t row, int guesses):
        """Room for `slots` states of `size` floats, and for `guesses` columns after each.

        row  floats that a column brings; 0 where none is remembered

        Gives its number.
        """
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
        self.slots, self.guesses = slots, guesses
        state.size = size
        state.row = row
        state.guesses = guesses if row else 0
        state.after_bytes = max(64, 4 * row * state.guesses * slots)
        state.after = <float*>reserve(state.after_bytes)
        state.nbytes = max(64, 4 * size * slots)
        state.slots = <float*>reserve(state.nbytes)
        return self.state_count - 1

    def view(self, Py_ssize_t offset, Py_ssize_t rows, Py_ssize_t size):
        """Float32 [rows, size] of the arena, not copied; it keeps the arena alive."""
        if offset < 0 or offset + 4 * rows * size > <Py_ssize_t>self.arena_bytes:
            raise ValueError("outside the arena")
        cdef Window window = Window()
        window.room = self
        window.data = <float*>(self.arena + offset)
        window.shape[0], window.shape[1] = rows, size
        window.strides[0], window.strides[1] = 4 * size, 4
        return np.asarray(window)

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
            release(self.states[i].after, self.states[i].after_bytes)
            PyMem_Free(self.states[i].passed)
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


cdef class Window:
    """A part of an arena, as a buffer."""

    cdef _Room room
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
