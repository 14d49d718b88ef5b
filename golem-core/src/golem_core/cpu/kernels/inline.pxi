# Inlines every `cdef inline` of a module, since the bodies are written for constant arguments:
# a tile whose format, rows and columns were run-time values would unpack nothing ahead of time.

cdef extern from *:
    """
    #undef CYTHON_INLINE
    #define CYTHON_INLINE inline __attribute__((always_inline))
    """
