"""The structures of a tape: what a program is on the processor, see tape.pyx."""

from golem_core.cpu.kernels.table cimport (
    Attend, Columns, Dequantise, Glu, Packed, Product, Quantise, Rope, Round, Store, Within,
)

# Where a value's rows lie: row r at base + r * stride bytes. Without a base the row lies at
# `offset` in the worker's own scratch memory, and lives for the operations of one stage only.
cdef struct Operand:
    char* base
    Py_ssize_t offset
    Py_ssize_t stride

# What a row operation does; rows.pxi has one line for each.
cdef enum:
    ANGLES, EMBED, NORM, ROPE, STORE, ADD, MUL, SCALE, GLU, SOFTCAP, PICK, QUANTISE
    ACTIVATE, GATE, SLICE, CONCAT, DECAY, ROUTE, COMBINE, RECALL, PASS_ON, LAYER_NORM, POOL, ROUND

cdef struct RowOp:
    int kind
    Operand a
    Operand b
    Operand out
    Py_ssize_t size             # elements of a row
    Py_ssize_t heads            # so many pieces; of a mixture: the experts that are asked
    Py_ssize_t dim              # of so many elements; quantise: those that have a scale
    Py_ssize_t half             # rope: pairs that turn
    Py_ssize_t start            # slice: the first element of each piece; embed: the first row
    Py_ssize_t count            # slice: how many; concat: elements of each of b's pieces
    float value                 # epsilon, factor, cap or magnitude
    const float* vector         # norms: weight or NULL; decay: a; combine: scales or NULL
    const float* bias           # decay, layer norm
    const double* turns         # angles: radians a position, [half]
    const unsigned char* table  # embed: the file's rows
    Py_ssize_t row_bytes
    int by                      # embed: by ids, positions, kinds, or one row for all
    Dequantise dequantise
    Glu act
    Rope rope
    Round round
    Quantise quantise
    Kept* cache
    Carried* state              # recall
    Columns codes               # quantise: where to

# One state, for every slot.
cdef struct Carried:
    float* slots
    Py_ssize_t size             # floats from one slot to the next
    size_t nbytes               # of all slots
    float* after                # [slots, guesses, row]: what the columns after a kept one brought
    Py_ssize_t row              # floats; 0: nothing is remembered of them
    int guesses
    size_t after_bytes
    float* passed               # [most outputs, size]: from one drafting pass to the next

# The pages of one layer, for all sequences.
cdef struct Kept:
    char* keys
    char* values
    size_t key_bytes            # of all pages
    size_t value_bytes
    Py_ssize_t heads
    Py_ssize_t dim
    Py_ssize_t padded
    Py_ssize_t key_page         # bytes from one page to the next
    Py_ssize_t value_page
    int group
    Py_ssize_t window           # 0: none
    int half                    # whether numbers are kept in half precision
    Store store
    Attend attend

cdef struct Job:
    Product product
    Packed weight
    Packed gate                 # data NULL: no gate
    Py_ssize_t expert           # bytes from one expert's matrix to the next
    Py_ssize_t gate_expert
    const float* bias
    const float* gate_bias
    Operand residual            # base NULL: none
    Operand out
    Glu act

cdef struct Stage:
    int kind                    # of those in replay.pxi
    int picked                  # rows are those of the logits, not the columns
    int count                   # of ops or jobs
    int rate                    # rows of a column, where they are not picked
    RowOp* ops
    Job* jobs
    Columns x
    Py_ssize_t cols             # product: length of the sums
    # attend
    Kept* cache
    Operand q
    Operand out
    Py_ssize_t query_heads
    float scale
    float softcap
    # attention within texts: q is in[0], k in[1], v in[2]
    Within within
    Py_ssize_t dim
    Py_ssize_t before           # rows that a row sees before it; -1: all
    Py_ssize_t after
    const float* bias           # [query heads, 2 * width - 1], or NULL
    # a mixture: rows sorted by `routing`, `x` beside each other, then products with these
    Operand routing
    int used
    int experts
    int coded
    int floating
    int rounding
    Round round
    int each                    # every expert of a row reads a row of its own
    Operand source              # the rows' floats
    Columns codes               # the rows' codes, and rounded rows, where they are not `each`
    # a convolution over rows: the lead puts act(in[0]) to `out` behind the `past` rows before, the
    # product reads these as `x`
    Glu act
    # a scan: conv reads in[0], delta q, k, v, decay, beta
    Carried* state
    Operand inputs[5]
    const float* taps           # conv: [past + 1, channels]
    Py_ssize_t past
    Py_ssize_t heads            # delta: value heads,
    Py_ssize_t key_heads
    Py_ssize_t keys             # elements of a key head,
    Py_ssize_t size             # of a value head; of a row of conv and previous
