cdef void fill_products(Kernels* k) noexcept:
    pass
