# Tile words for AMX-INT8 (Sapphire Rapids and later): products of 8-bit matrices.
#
# Tiles are named by literals, since an instruction names its registers: 0 to 3 hold sums, 4 and 5
# columns, 6 and 7 rows. What a compiler knows of these instructions differs: GCC sees neither that
# loads of tiles read memory nor that a configuration is more than its first 8 bytes, and would
# drop or move what was written there. So whoever writes what tiles read says `written` after it.

cdef extern from "immintrin.h" nogil:
    void _tile_loadconfig(const void*)
    void _tile_release()
    void _tile_loadd(int, const void*, Py_ssize_t)
    void _tile_stored(int, void*, Py_ssize_t)
    void _tile_zero(int)
    void _tile_dpbssd(int, int, int)
    __m512i _mm512_sub_epi8(__m512i, __m512i)
    __m512i _mm512_add_epi16(__m512i, __m512i)
    __m512i _mm512_sub_epi16(__m512i, __m512i)
    __m512i _mm512_set4_epi32(int, int, int, int)
    __m512i _mm512_xor_si512(__m512i, __m512i)
    __m512i _mm512_maddubs_epi16(__m512i, __m512i)
    __m512i _mm512_i32gather_epi32(__m512i, const void*, int)

cdef extern from *:
    """
    #define written(p) __asm__ volatile("" : : "r"(p) : "memory")
    """
    void written(const void*) nogil

# What `ldtilecfg` reads.
cdef struct Configuration:
    unsigned char palette
    unsigned char start_row
    unsigned char[14] reserved
    unsigned short[16] row_bytes
    unsigned char[16] rows


cdef inline void configure(int columns, bint wide) noexcept nogil:
    """Tiles for the 32 codes of so many columns, and for those of 16 rows: [8, row, 4].

    wide: of 64 codes.
    """
    cdef Configuration c
    cdef int i
    memset(&c, 0, sizeof(Configuration))
    c.palette = 1
    for i in range(4):
        c.rows[i] = columns
        c.row_bytes[i] = 64
    for i in range(2):
        c.rows[4 + i] = columns
        c.row_bytes[4 + i] = 64 if wide else 32
        c.rows[6 + i] = 16 if wide else 8
        c.row_bytes[6 + i] = 64
    written(&c)
    _tile_loadconfig(&c)


cdef inline bytes64 signed_codes(bytes64 v, int offset) noexcept nogil:
    """Codes as they count from their offset."""
    if offset == 0:
        return v
    return _mm512_sub_epi8(v, _mm512_set1_epi8(<char>offset))


cdef inline i32x16 gathered(const int* p, i32x16 where) noexcept nogil:
    """Element where[i] of p in lane i."""
    return _mm512_i32gather_epi32(where, p, 4)


# Codes of Q6_K times their scales, less 32 times these: 14 bits, signed, as 256 * high + low.
cdef inline i32x16 row_scales(const unsigned char* p) noexcept nogil:
    """A signed byte for each row, in every of the four bytes of its lane."""
    return _mm512_shuffle_epi8(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(<const __m128i*>p)),
        _mm512_set4_epi32(0x0C0C0C0C, 0x08080808, 0x04040404, 0))


cdef inline i32x16 less_32(i32x16 products, i32x16 scale) noexcept nogil:
    """Products of bytes with scale less 32 times scale, and 128: so the high byte is rounded."""
    cdef __m512i much = _mm512_maddubs_epi16(_mm512_set1_epi32(0x00200020), scale)
    return _mm512_add_epi16(products, _mm512_sub_epi16(_mm512_set1_epi32(0x00800080), much))


cdef inline i32x16 times_even(bytes64 v, i32x16 scale) noexcept nogil:
    """(v - 32) * scale + 128 of the bytes 0 and 2 of every lane, in 16 bits."""
    return less_32(_mm512_maddubs_epi16(
        _mm512_and_si512(v, _mm512_set1_epi32(0x00FF00FF)), scale), scale)


cdef inline i32x16 times_odd(bytes64 v, i32x16 scale) noexcept nogil:
    """The same of the bytes 1 and 3."""
    return less_32(_mm512_maddubs_epi16(
        _mm512_and_si512(v, _mm512_set1_epi32(<int>0xFF00FF00)), scale), scale)


cdef inline bytes64 high_bytes(i32x16 even, i32x16 odd) noexcept nogil:
    """The upper bytes of 16-bit numbers, in the places of their codes."""
    return _mm512_ternarylogic_epi32(
        _mm512_srli_epi16(even, 8), odd, _mm512_set1_epi32(0x00FF00FF), 0xE4)


cdef inline bytes64 low_bytes(i32x16 even, i32x16 odd) noexcept nogil:
    """The lower bytes less 128, as signed ones."""
    return _mm512_xor_si512(_mm512_set1_epi8(<char>128), _mm512_ternarylogic_epi32(
        even, _mm512_slli_epi16(odd, 8), _mm512_set1_epi32(0x00FF00FF), 0xE4))
