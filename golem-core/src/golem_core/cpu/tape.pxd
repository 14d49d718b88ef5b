"""The structures of a tape: what a program is on the processor, see tape.pyx."""

from golem_core.cpu.kernels.table cimport (
    Attend, Columns, Dequantise, Glu, Packed, Product, Rope, Store,
)

# Where a value's rows lie: row r at base + r * stride bytes. Without a base the row lies at
# `offset` in the worker's own scratch memory, and lives for the operations of one stage only.
cdef struct Operand:
    char* base
    Py_ssize_t offset
    Py_ssize_t stride

# What a row operation does; tape.pyx has one line for each.
cdef enum:
    ANGLES, EMBED, NORM, ROPE, STORE, ADD, MUL, SCALE, GLU, SOFTCAP, PICK, QUANTISE

cdef struct RowOp:
    int kind
    Operand a
    Operand b
    Operand out
    Py_ssize_t size             # elements of a row
    Py_ssize_t heads            # norm and rope: so many pieces
    Py_ssize_t dim              # of so many elements
    Py_ssize_t half             # rope: pairs that turn
    float value                 # epsilon, factor or cap
    const float* vector         # norm: weight or NULL
    const double* turns         # angles: radians a position, [half]
    const unsigned char* table  # embed: the file's rows
    Py_ssize_t row_bytes
    Dequantise dequantise
    Glu act
    Rope rope
    Kept* cache
    Columns codes               # quantise: where to

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
    Store store
    Attend attend

cdef struct Job:
    Product product
    Packed weight
    Packed gate                 # data NULL: no gate
    const float* bias
    const float* gate_bias
    Operand residual            # base NULL: none
    Operand out
    Glu act

cdef struct Stage:
    int kind                    # 0 rows, 1 product, 2 attend
    int picked                  # rows are those of the logits, not the columns
    int count                   # of ops or jobs
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
