# The functions of a word that no processor has: exp, tanh, the gelu of erf.
#
# Polynomials are minimax fits in monomials (Lawson's iteration on Chebyshev nodes, mpmath at 40
# digits). A NaN comes out as a NaN.


# At most 2 ulp from -86.6 to 88.7; exactly 0 below (where float32 loses digits), inf above.
cdef inline f32x16 exp_(f32x16 x) noexcept nogil:
    cdef f32x16 held = max_(splat(-87.0), min_(splat(89.0), x))
    # 1.5 * 2^23 + n rounds x / log 2 to an integer n and leaves it in the low bits.
    cdef f32x16 magic = splat(12582912.0)
    cdef f32x16 shifted = fma(held, splat(1.44269504088896340736), magic)
    cdef f32x16 n = sub(shifted, magic)
    # log 2 in two parts, the first with few enough digits that n * part is exact.
    cdef f32x16 r = fnma(n, splat(0.693145751953125), held)
    r = fnma(n, splat(1.4286068203094172e-06), r)
    cdef f32x16 p = splat(0.0013951717410236597)
    p = fma(p, r, splat(0.008369598537683487))
    p = fma(p, r, splat(0.0416661873459816))
    p = fma(p, r, splat(0.16666512191295624))
    p = fma(p, r, splat(0.5))
    p = fma(p, mul(r, r), r)
    # 2^(n - 1) twice, as n may be 128. The low byte of magic's bits is 0, so 126 is the bias.
    cdef f32x16 power = from_bits(shift_23(iadd(bits(shifted), isplat(126))))
    p = fma(p, power, power)
    return select_lt(x, splat(-86.6), zero(), add(p, p))


# e^x - 1 for x of 0 or less, at most 3 ulp. Near 0, where e^x - 1 cancels, its series.
cdef inline f32x16 expm1_(f32x16 x) noexcept nogil:
    cdef f32x16 p = splat(2.7557319e-06)  # 1 / 9!
    p = fma(p, x, splat(2.4801587e-05))
    p = fma(p, x, splat(0.00019841270))
    p = fma(p, x, splat(0.0013888889))
    p = fma(p, x, splat(0.0083333333))
    p = fma(p, x, splat(0.041666667))
    p = fma(p, x, splat(0.16666667))
    p = fma(p, x, splat(0.5))
    p = fma(mul(p, x), x, x)
    return select_lt(x, splat(-0.7), sub(exp_(x), splat(1.0)), p)


# At most 3 ulp. An odd polynomial near 0, where 1 - 2 / (e^2x + 1) cancels.
cdef inline f32x16 tanh_(f32x16 x) noexcept nogil:
    cdef f32x16 a = max_(sub(zero(), x), x)
    cdef f32x16 one = splat(1.0)
    cdef f32x16 far = sub(one, div(splat(2.0), add(exp_(add(a, a)), one)))
    far = select_lt(x, zero(), sub(zero(), far), far)
    cdef f32x16 z = mul(x, x)
    cdef f32x16 p = splat(-0.006653567310422659)
    p = fma(p, z, splat(0.021301699802279472))
    p = fma(p, z, splat(-0.05389996990561485))
    p = fma(p, z, splat(0.13332970440387726))
    p = fma(p, z, splat(-0.333333283662796))
    return select_lt(a, splat(0.5), fma(p, mul(z, x), x), far)


# x times the normal distribution up to x, which is max(x, 0) - |x| times the tail beyond |x|: within
# 2.3e-7, and 6e-8 of the product near 0. The tail is a polynomial in |x|, even and odd powers by
# themselves, fitted so that its product with |x| is within 5e-8; from 5.5 on that is below 1.1e-7.
cdef inline f32x16 gelu_(f32x16 x) noexcept nogil:
    cdef f32x16 a = min_(splat(5.5), from_bits(iand(bits(x), isplat(0x7FFFFFFF))))
    cdef f32x16 u = fma(a, splat(0.36363637), splat(-1.0)), z = mul(u, u)
    cdef f32x16 p = splat(0.002017647260800004), q = splat(-0.007706962991505861)
    p = fma(p, z, splat(-0.0011133417719975114))
    q = fma(q, z, splat(0.0370236337184906))
    p = fma(p, z, splat(-0.03543535992503166))
    q = fma(q, z, splat(-0.057906582951545715))
    p = fma(p, z, splat(0.12818320095539093))
    q = fma(q, z, splat(-0.029241956770420074))
    p = fma(p, z, splat(-0.1614493429660797))
    q = fma(q, z, splat(0.21650812029838562))
    p = fma(p, z, splat(-0.05164392665028572))
    q = fma(q, z, splat(-0.17683662474155426))
    p = fma(p, z, splat(0.2719035744667053))
    q = fma(q, z, splat(-0.20683220028877258))
    p = fma(p, z, splat(0.09455792605876923))
    q = fma(q, z, splat(-0.025007564574480057))
    p = fma(p, z, splat(0.0029797705356031656))
    return fnma(a, fma(q, u, p), max_(zero(), x))
