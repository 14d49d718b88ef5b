# Attention of some rows of one sequence over its pages, with one running softmax a pair.
#
# A pair is a row and a query head. Pages pass once for up to PAIRS pairs, four pairs at a time:
# 32 scores each (a lane is a position), the new maximum, the weights, then the values. What a
# pair computes depends on its own position alone: dimensions ascend in a score, positions ascend
# in a sum of values, and who shares its tile decides nothing.
#
# A position that a pair does not see never enters its sums, whatever its page holds there: its
# weight is 0 for the sum of weights, and its value is not even multiplied.

cdef enum:
    PAIRS = 24                  # 8 rows of 3 heads; their sums stay in the first cache
    TILE = 4

# What a call works on; every pointer lies in its scratch.
cdef struct Attention:
    const View* view
    bint half                       # pages hold half precision, or else float32
    const unsigned short* keys      # of the page in hand, [dim, 32], where they are halves
    const unsigned short* values    # [32, padded]
    const float* wide_keys          # the same where they are float32, or widened for many tiles
    const float* wide_values
    float* q                        # [PAIRS, dim], scaled
    float* sums                     # [PAIRS + 1, padded]: sums of weighted values; one is spare
    float* totals                   # [PAIRS, 16]: sums of weights, by lane
    float* peaks                    # [PAIRS]: the largest score so far
    float* scores                   # [TILE, 32], then weights
    float softcap
    Py_ssize_t window

# Pairs side by side; places past `count` repeat the last pair, and their results are dropped.
cdef struct Tile:
    Py_ssize_t count
    Py_ssize_t pair[TILE]
    Py_ssize_t low[TILE]            # the slots of the page that the pair sees, low <= slot < high
    Py_ssize_t high[TILE]


cdef inline f32x16 widened(const unsigned short* half, const float* wide, Py_ssize_t at,
                           bint ready) noexcept nogil:
    return load(wide + at) if ready else load_half(half + at)


# Scores of `span` words of positions, from slot `at`, for a tile.
cdef inline void score_words(Attention* t, const Tile* tile, Py_ssize_t at, int span,
                             bint ready) noexcept nogil:
    cdef Py_ssize_t dim = t.view.dim, d
    cdef const float* qa = t.q + tile.pair[0] * dim
    cdef const float* qb = t.q + tile.pair[1] * dim
    cdef const float* qc = t.q + tile.pair[2] * dim
    cdef const float* qd = t.q + tile.pair[3] * dim
    cdef const unsigned short* half = t.keys + at
    cdef const float* wide = t.wide_keys + at
    cdef f32x16 a = zero(), b = zero(), c = zero(), e = zero()
    cdef f32x16 a2 = zero(), b2 = zero(), c2 = zero(), e2 = zero()
    cdef f32x16 k, k2, x
    for d in range(dim):
        k = widened(half, wide, PAGE * d, ready)
        if span == 2:
            k2 = widened(half, wide, PAGE * d + 16, ready)
        x = splat(qa[d])
        a = fma(x, k, a)
        if span == 2:
            a2 = fma(x, k2, a2)
        x = splat(qb[d])
        b = fma(x, k, b)
        if span == 2:
            b2 = fma(x, k2, b2)
        x = splat(qc[d])
        c = fma(x, k, c)
        if span == 2:
            c2 = fma(x, k2, c2)
        x = splat(qd[d])
        e = fma(x, k, e)
        if span == 2:
            e2 = fma(x, k2, e2)
    store(t.scores + at, a)
    store(t.scores + PAGE + at, b)
    store(t.scores + 2 * PAGE + at, c)
    store(t.scores + 3 * PAGE + at, e)
    if span == 2:
        store(t.scores + at + 16, a2)
        store(t.scores + PAGE + at + 16, b2)
        store(t.scores + 2 * PAGE + at + 16, c2)
        store(t.scores + 3 * PAGE + at + 16, e2)


# Scores to weights: exp(score - peak), 0 where unseen. Leaves in `faded` what each pair's earlier
# sums are worth now that its peak has risen: exp(old peak - new peak).
cdef inline void weigh(Attention* t, const Tile* tile, float* faded) noexcept nogil:
    cdef Py_ssize_t j, pair
    cdef f32x16 s, s2, unseen = splat(-INFINITY), low, high
    cdef float peak
    cdef bint risen = False
    store(faded, zero())
    for j in range(tile.count):
        pair = tile.pair[j]
        s = load(t.scores + PAGE * j)
        s2 = load(t.scores + PAGE * j + 16)
        if t.softcap > 0:
            s = cap(s, t.softcap)
            s2 = cap(s2, t.softcap)
        if tile.low[j] > 0 or tile.high[j] < PAGE:
            low = splat(<float> tile.low[j])
            high = splat(<float> tile.high[j])
            s = select_lt(load(SLOTS), high, s, unseen)
            s = select_lt(load(SLOTS), low, unseen, s)
            s2 = select_lt(load(SLOTS + 16), high, s2, unseen)
            s2 = select_lt(load(SLOTS + 16), low, unseen, s2)
        store(t.scores + PAGE * j, s)
        store(t.scores + PAGE * j + 16, s2)
        peak = hmax(max_(s, s2))
        if peak > t.peaks[pair]:
            faded[j] = t.peaks[pair] - peak
            t.peaks[pair] = peak
            risen = True
    store(faded, exp_(load(faded)) if risen else splat(1.0))
    for j in range(tile.count):
        pair = tile.pair[j]
        low = splat(t.peaks[pair])
        s = exp_(sub(load(t.scores + PAGE * j), low))
        s2 = exp_(sub(load(t.scores + PAGE * j + 16), low))
        store(t.scores + PAGE * j, s)
        store(t.scores + PAGE * j + 16, s2)
        store(t.totals + 16 * pair,
              fma(load(t.totals + 16 * pair), splat(faded[j]), add(s, s2)))


# Adds the values of slots low <= slot < high to the sums of a tile, `span` words from `at`.
cdef inline void value_words(Attention* t, const Tile* tile, const float* faded, Py_ssize_t low,
                             Py_ssize_t high, Py_ssize_t at, int span, bint ready) noexcept nogil:
    cdef Py_ssize_t padded = t.view.padded, slot
    cdef float* pa = t.sums + tile.pair[0] * padded + at
    cdef float* pb = t.sums + (tile.pair[1] if tile.count > 1 else PAIRS) * padded + at
    cdef float* pc = t.sums + (tile.pair[2] if tile.count > 2 else PAIRS) * padded + at
    cdef float* pe = t.sums + (tile.pair[3] if tile.count > 3 else PAIRS) * padded + at
    cdef const float* weights = t.scores
    cdef const unsigned short* half = t.values + at
    cdef const float* wide = t.wide_values + at
    cdef f32x16 x = splat(faded[0])
    cdef f32x16 a = mul(load(pa), x), a2 = mul(load(pa + 16 * (span - 1)), x)
    x = splat(faded[1])
    cdef f32x16 b = mul(load(pb), x), b2 = mul(load(pb + 16 * (span - 1)), x)
    x = splat(faded[2])
    cdef f32x16 c = mul(load(pc), x), c2 = mul(load(pc + 16 * (span - 1)), x)
    x = splat(faded[3])
    cdef f32x16 e = mul(load(pe), x), e2 = mul(load(pe + 16 * (span - 1)), x)
    cdef f32x16 v, v2
    for slot in range(low, high):
        v = widened(half, wide, padded * slot, ready)
        if span == 2:
            v2 = widened(half, wide, padded * slot + 16, ready)
        x = splat(weights[slot])
        a = fma(x, v, a)
        if span == 2:
            a2 = fma(x, v2, a2)
        x = splat(weights[PAGE + slot])
        b = fma(x, v, b)
        if span == 2:
            b2 = fma(x, v2, b2)
        x = splat(weights[2 * PAGE + slot])
        c = fma(x, v, c)
        if span == 2:
            c2 = fma(x, v2, c2)
        x = splat(weights[3 * PAGE + slot])
        e = fma(x, v, e)
        if span == 2:
            e2 = fma(x, v2, e2)
    store(pa, a)
    store(pb, b)
    store(pc, c)
    store(pe, e)
    if span == 2:
        store(pa + 16, a2)
        store(pb + 16, b2)
        store(pc + 16, c2)
        store(pe + 16, e2)


# The same for one pair of a tile; fades its sums where `fade` is not 1.
cdef void value_alone(Attention* t, const Tile* tile, Py_ssize_t j, float fade, Py_ssize_t low,
                      Py_ssize_t high, bint ready) noexcept nogil:
    cdef Py_ssize_t padded = t.view.padded, at, slot
    cdef float* p = t.sums + tile.pair[j] * padded
    cdef f32x16 a
    for at in range(0, padded, 16):
        a = mul(load(p + at), splat(fade))
        for slot in range(low, high):
            a = fma(splat(t.scores[PAGE * j + slot]),
                    widened(t.values, t.wide_values, padded * slot + at, ready), a)
        store(p + at, a)


# One page for one tile. `ready`: its keys and values are in wide_keys and wide_values.
cdef inline void tile_page(Attention* t, Tile* tile, bint ready) noexcept nogil:
    cdef Py_ssize_t padded = t.view.padded, i, j, low = 0, high = PAGE
    cdef float faded[16]
    for j in range(tile.count, TILE):
        tile.pair[j] = tile.pair[tile.count - 1]
    for i in range(2 // SPAN):
        score_words(t, tile, 16 * SPAN * i, SPAN, ready)
    weigh(t, tile, faded)
    # The slots that all pairs see go together; before and after them each pair goes alone.
    for j in range(tile.count):
        low = most(low, tile.low[j])
        high = least(high, tile.high[j])
    if low >= high:
        for j in range(tile.count):
            value_alone(t, tile, j, faded[j], tile.low[j], tile.high[j], ready)
        return
    for j in range(tile.count):
        if tile.low[j] < low:
            value_alone(t, tile, j, faded[j], tile.low[j], low, ready)
            faded[j] = 1.0
    for i in range(padded // (16 * SPAN)):
        value_words(t, tile, faded, low, high, 16 * SPAN * i, SPAN, ready)
    if padded % (16 * SPAN):
        value_words(t, tile, faded, low, high, padded - 16, 1, ready)
    for j in range(tile.count):
        if tile.high[j] > high:
            value_alone(t, tile, j, 1.0, high, tile.high[j], ready)


cdef void tile_half(Attention* t, Tile* tile) noexcept nogil:
    tile_page(t, tile, False)


cdef void tile_wide(Attention* t, Tile* tile) noexcept nogil:
    tile_page(t, tile, True)


# A page's keys and values to float32, once for all its tiles.
cdef inline void widen(const unsigned short* half, Py_ssize_t n, float* wide) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(0, n, 16):
        store(wide + i, load_half(half + i))


# The first position that a row sees.
cdef inline Py_ssize_t earliest(Py_ssize_t position, Py_ssize_t window) noexcept nogil:
    return most(0, position - window + 1) if window > 0 else 0


cdef void attend_pairs(Attention* t, Py_ssize_t head, const int* positions, Py_ssize_t count,
                       Py_ssize_t first, Py_ssize_t pairs, float* wide) noexcept nogil:
    """Pairs first..first+pairs: pair i is row i / count, and query head i % count of the call."""
    cdef Py_ssize_t dim = t.view.dim, padded = t.view.padded
    cdef Py_ssize_t page, at, i, position, start
    cdef Py_ssize_t begin = positions[first // count], end = 0
    cdef Tile tile
    cdef bint ready = pairs > TILE or not t.half
    for i in range(first // count, (first + pairs - 1) // count + 1):
        begin = least(begin, earliest(positions[i], t.window))
        end = most(end, positions[i])
    for page in range(begin // PAGE, end // PAGE + 1):
        at = t.view.table[page] * t.view.heads + head
        if t.half:
            t.keys = <const unsigned short*> t.view.keys + at * dim * PAGE
            t.values = <const unsigned short*> t.view.values + at * PAGE * padded
            if ready:
                widen(t.keys, dim * PAGE, wide)
                widen(t.values, PAGE * padded, wide + dim * PAGE)
        else:
            t.wide_keys = <const float*> t.view.keys + at * dim * PAGE
            t.wide_values = <const float*> t.view.values + at * PAGE * padded
        tile.count = 0
        for i in range(pairs):
            position = positions[(first + i) // count]
            start = earliest(position, t.window)
            if PAGE * page <= position and start < PAGE * (page + 1):
                tile.pair[tile.count] = i
                tile.low[tile.count] = most(start - PAGE * page, 0)
                tile.high[tile.count] = least(position + 1 - PAGE * page, PAGE)
                tile.count += 1
            if tile.count == TILE or (i == pairs - 1 and tile.count > 0):
                if ready:
                    tile_wide(t, &tile)
                else:
                    tile_half(t, &tile)
                tile.count = 0


cdef void attend(bint half, const View* view, Py_ssize_t head, Py_ssize_t first,
                 Py_ssize_t count, const float* q, Py_ssize_t q_stride, const int* positions,
                 Py_ssize_t rows, float scale, float softcap, Py_ssize_t window,
                 float* out, Py_ssize_t out_stride, float* scratch) noexcept nogil:
    cdef Py_ssize_t dim = view.dim, padded = view.padded
    cdef Py_ssize_t block, at, i, d, n, pairs, place
    cdef f32x16 inverse
    cdef Attention t
    t.view = view
    t.half = half
    t.softcap = softcap
    t.window = window
    t.q = scratch
    t.sums = t.q + PAIRS * dim
    t.totals = t.sums + (PAIRS + 1) * padded
    t.scores = t.totals + PAIRS * 16
    t.peaks = t.scores + TILE * PAGE
    cdef float* wide = t.peaks + 32
    t.wide_keys = wide
    t.wide_values = wide + dim * PAGE
    for block in range((rows * count + PAIRS - 1) // PAIRS):
        at = PAIRS * block
        pairs = least(PAIRS, rows * count - at)
        for i in range(pairs):
            place = (at + i) // count * q_stride + (first + (at + i) % count) * dim
            for d in range(0, dim, 16):
                n = least(dim - d, 16)
                store_n(t.q + i * dim + d, mul(load_n(q + place + d, n), splat(scale)), n)
            t.peaks[i] = -INFINITY
        memset(t.totals, 0, PAIRS * 16 * sizeof(float))
        memset(t.sums, 0, (PAIRS + 1) * padded * sizeof(float))
        memset(t.scores, 0, TILE * PAGE * sizeof(float))
        attend_pairs(&t, head, positions, count, at, pairs, wide)
        for i in range(pairs):
            place = (at + i) // count * out_stride + (first + (at + i) % count) * dim
            inverse = splat(<float> 1.0 / hsum(load(t.totals + 16 * i)))
            for d in range(0, dim, 16):
                n = least(dim - d, 16)
                store_n(out + place + d, mul(load(t.sums + i * padded + d), inverse), n)


cdef void attend_half(const View* view, Py_ssize_t head, Py_ssize_t first, Py_ssize_t count,
                      const float* q, Py_ssize_t q_stride, const int* positions,
                      Py_ssize_t rows, float scale, float softcap, Py_ssize_t window,
                      float* out, Py_ssize_t out_stride, float* scratch) noexcept nogil:
    attend(True, view, head, first, count, q, q_stride, positions, rows, scale, softcap, window,
           out, out_stride, scratch)


cdef void attend_float(const View* view, Py_ssize_t head, Py_ssize_t first, Py_ssize_t count,
                       const float* q, Py_ssize_t q_stride, const int* positions,
                       Py_ssize_t rows, float scale, float softcap, Py_ssize_t window,
                       float* out, Py_ssize_t out_stride, float* scratch) noexcept nogil:
    attend(False, view, head, first, count, q, q_stride, positions, rows, scale, softcap, window,
           out, out_stride, scratch)
