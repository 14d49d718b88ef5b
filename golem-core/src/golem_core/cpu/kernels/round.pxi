# Numbers to bf16, as the products of BF16 take columns and weights.


cdef inline unsigned int rounded_bf16(unsigned int word) noexcept nogil:
    """A float32's bits, rounded to nearest even so that the lower 16 are zeros.

    Below 2^-56 it becomes 0 (see float_products.pxi); a NaN stays one.
    """
    cdef unsigned int upper = (word + 0x7FFF + (word >> 16 & 1)) & <unsigned int>0xFFFF0000
    if word & 0x7FFFFFFF > 0x7F800000:
        upper = 0x7FC00000
    return 0 if upper & 0x7FFFFFFF < 0x23800000 else upper
