# Attention of some rows of one sequence over its pages, with one running softmax a pair.
#
# A pair is a row and a query head; an item is a pair and a page that it sees. Up to PAIRS items go
# together, of one page if there are many pairs, of several if there are few: first all scores,
# then the weights, then the values. So no step waits for the end of another's chain. Scores and
# values go in tiles, TILE items of one page at a time, that share each load of the page.
#
# A page lies anywhere, so no processor guesses the next one: while a page is worked on the memory
# of the next is asked for. With few pairs that is all that takes time; many pairs read a page
# once, as float32.
#
# What a pair computes depends on its own position alone: dimensions ascend in a score, positions
# in a sum of values, pages in the running softmax, and who shares its tile decides nothing.
# A position that a pair does not see never enters its sums, whatever its page holds there: its
# weight is 0 in the sum of weights, and its value is not even multiplied.

cdef extern from *:
    void __builtin_prefetch(const void*, int, int) nogil

cdef enum:
    PAIRS = 64                  # so many share a page: what they keep stays in the second cache

# What a call works on. The float pointers lie in its scratch.
cdef struct Attention:
    const View* view
    bint half                       # pages hold half precision, or else float32
    bint ready                      # they are read as float32: either held so, or widened first
    float softcap
    Py_ssize_t window
    float* q                        # [PAIRS, dim], scaled
    float* beside                   # [PAIRS / TILE + 1, dim, TILE]: those of a tile side by side,
    Py_ssize_t held[PAIRS + TILE]   # which are these pairs'
    float* sums                     # [PAIRS + 1, padded] of weighted values; the last is spare
    float* totals                   # [PAIRS, 16] of weights, by lane
    float* peaks                    # [PAIRS] largest scores so far
    float* scores                   # [PAIRS + TILE, 32] of the items, then their weights
    float* faded                    # [PAIRS + 16]: what an item's earlier sums are worth:
                                    # exp(old - new peak)
    float* wide                     # [padded, 32], a page's keys or values, widened
    const char* ahead               # what is read next, in `lines` lines of the cache
    Py_ssize_t lines
    Py_ssize_t items
    Py_ssize_t pair[PAIRS]          # of each item
    Py_ssize_t low[PAIRS]           # the slots that it sees of its page: low <= slot < high
    Py_ssize_t high[PAIRS]


# A word of a page.
cdef inline f32x16 page_word(const void* page, Py_ssize_t at, bint ready) noexcept nogil:
    return load(<const float*> page + at) if ready else load_half(<const unsigned short*> page + at)


# Asks for one of `tiles` equal parts of what is read next.
cdef inline void ask(Attention* t, Py_ssize_t tile, Py_ssize_t tiles) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(t.lines * tile // tiles, t.lines * (tile + 1) // tiles):
        __builtin_prefetch(t.ahead + 64 * i, 0, 2)


# Scores of `count` <= `width` items from `item`, for SPAN words of slots from `slot`.
cdef inline void score_tile(Attention* t, const void* keys, Py_ssize_t item, Py_ssize_t count,
                            int width, Py_ssize_t slot, bint ready) noexcept nogil:
    cdef Py_ssize_t dim = t.view.dim, d
    cdef const float* q[TILE]
    cdef const float* beside = t.beside + item // TILE * TILE * dim
    cdef f32x16 sums[TILE]
    cdef f32x16 sums2[TILE]
    cdef f32x16 k, k2, x
    cdef int j
    for j in range(width):  # places past count repeat an item; their results are overwritten
        q[j] = t.q + t.pair[item + (j if j < count else 0)] * dim
        sums[j] = zero()
        sums2[j] = zero()
    for d in range(dim):
        if not ready:
            __builtin_prefetch(t.ahead + 64 * d, 0, 3)
        k = page_word(keys, PAGE * d + slot, ready)
        if SPAN == 2:
            k2 = page_word(keys, PAGE * d + slot + 16, ready)
        for j in range(width):
            x = splat(beside[TILE * d + j] if width == TILE else q[j][d])
            sums[j] = fma(x, k, sums[j])
            if SPAN == 2:
                sums2[j] = fma(x, k2, sums2[j])
    for j in range(width):
        store(t.scores + PAGE * (item + j) + slot, sums[j])
        if SPAN == 2:
            store(t.scores + PAGE * (item + j) + slot + 16, sums2[j])


# Puts what a whole tile of items multiplies side by side, if it is not so from the page before.
cdef inline void lay_beside(Attention* t, Py_ssize_t item, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t dim = t.view.dim, d, j, tile = item // TILE
    cdef Py_ssize_t* held = t.held + TILE * tile
    cdef float* to = t.beside + TILE * tile * dim
    cdef const float* q
    cdef Py_ssize_t pair
    for j in range(TILE):
        pair = t.pair[item + (j if j < count else 0)]
        if held[j] != pair:
            held[j] = pair
            q = t.q + pair * dim
            for d in range(dim):
                to[TILE * d + j] = q[d]


# Scores of one item, all 32 slots.
cdef inline void score_alone(Attention* t, const void* keys, Py_ssize_t item,
                             bint ready) noexcept nogil:
    cdef const float* q = t.q + t.pair[item] * t.view.dim
    cdef f32x16 a = zero(), b = zero(), x
    cdef Py_ssize_t d
    for d in range(t.view.dim):
        if not ready:
            __builtin_prefetch(t.ahead + 64 * d, 0, 3)
        x = splat(q[d])
        a = fma(x, page_word(keys, PAGE * d, ready), a)
        b = fma(x, page_word(keys, PAGE * d + 16, ready), b)
    store(t.scores + PAGE * item, a)
    store(t.scores + PAGE * item + 16, b)


# Scores to weights, for all items: exp(score - peak), 0 where unseen.
cdef void weigh(Attention* t) noexcept nogil:
    cdef f32x16 s, s2, low, high, unseen = splat(-INFINITY)
    cdef Py_ssize_t i, pair
    cdef float* scores = t.scores
    cdef float peak
    for i in range(t.items):
        pair = t.pair[i]
        s = load(scores + PAGE * i)
        s2 = load(scores + PAGE * i + 16)
        if t.softcap > 0:
            s = cap(s, t.softcap)
            s2 = cap(s2, t.softcap)
        if t.low[i] > 0 or t.high[i] < PAGE:
            low = splat(<float> t.low[i])
            high = splat(<float> t.high[i])
            s = select_lt(load(SLOTS), high, s, unseen)
            s = select_lt(load(SLOTS), low, unseen, s)
            s2 = select_lt(load(SLOTS + 16), high, s2, unseen)
            s2 = select_lt(load(SLOTS + 16), low, unseen, s2)
        peak = hmax(max_(s, s2))
        peak = peak if peak > t.peaks[pair] else t.peaks[pair]
        t.faded[i] = t.peaks[pair] - peak
        t.peaks[pair] = peak
        store(scores + PAGE * i, sub(s, splat(peak)))
        store(scores + PAGE * i + 16, sub(s2, splat(peak)))
    for i in range(0, t.items, 16):
        store(t.faded + i, exp_(load(t.faded + i)))  # exactly 1 where the peak stayed
    for i in range(t.items):
        s = exp_(load(scores + PAGE * i))
        s2 = exp_(load(scores + PAGE * i + 16))
        store(scores + PAGE * i, s)
        store(scores + PAGE * i + 16, s2)
        pair = t.pair[i]
        store(t.totals + 16 * pair,
              fma(load(t.totals + 16 * pair), splat(t.faded[i]), add(s, s2)))


# Adds the values of a slot, `span` words of them, to the sums of `width` items.
cdef inline void value_slot(Attention* t, const void* values, const float* weights,
                            Py_ssize_t slot, Py_ssize_t at, int width, int span, bint ready,
                            f32x16* sums) noexcept nogil:
    cdef Py_ssize_t begin = t.view.padded * slot + at
    cdef f32x16 v[TILE * SPAN]
    cdef f32x16 x
    cdef int i, j
    for i in range(span):
        if not ready and not i & 1:
            __builtin_prefetch(t.ahead + 2 * (begin + 16 * i), 0, 3)
        v[i] = page_word(values, begin + 16 * i, ready)
    for j in range(width):
        x = splat(weights[PAGE * j + slot])
        for i in range(span):
            sums[span * j + i] = fma(x, v[i], sums[span * j + i])


# Fades the sums of `count` <= `width` items from `item` and adds the values of slots low..high,
# for `span` words from `at`.
cdef inline void value_tile(Attention* t, const void* values, Py_ssize_t item, Py_ssize_t count,
                            int width, Py_ssize_t low, Py_ssize_t high, Py_ssize_t at, int span,
                            bint ready) noexcept nogil:
    cdef Py_ssize_t padded = t.view.padded, slot
    cdef const float* weights = t.scores + PAGE * item
    cdef float* p[TILE]
    cdef f32x16 sums[TILE * SPAN]
    cdef f32x16 x
    cdef int i, j
    for j in range(width):
        p[j] = t.sums + (t.pair[item + j] if j < count else PAIRS) * padded + at
        x = splat(t.faded[item + j])
        for i in range(span):
            sums[span * j + i] = mul(load(p[j] + 16 * i), x)
    for slot in range(low, high):
        value_slot(t, values, weights, slot, at, width, span, ready, sums)
    for j in range(width):
        for i in range(span):
            store(p[j] + 16 * i, sums[span * j + i])


# The same for as many times `span` words from `at` as there are. Gives where they end.
cdef inline Py_ssize_t value_span(Attention* t, const void* values, Py_ssize_t item,
                                  Py_ssize_t count, int width, Py_ssize_t low, Py_ssize_t high,
                                  Py_ssize_t at, int span, bint ready) noexcept nogil:
    while t.view.padded - at >= 16 * span:
        value_tile(t, values, item, count, width, low, high, at, span, ready)
        at += 16 * span
    return at


# The same for all words. A tile of fewer items has the more words, for as many sums.
cdef inline void value_words(Attention* t, const void* values, Py_ssize_t item, Py_ssize_t count,
                             int width, Py_ssize_t low, Py_ssize_t high, bint ready) noexcept nogil:
    cdef int span = least(8, TILE * SPAN // width)
    cdef Py_ssize_t at = value_span(t, values, item, count, width, low, high, 0, span, ready)
    if span > 1:
        at = value_span(t, values, item, count, width, low, high, at, span // 2, ready)
    if span > 3:
        at = value_span(t, values, item, count, width, low, high, at, span // 4, ready)
    if span > 7:
        value_span(t, values, item, count, width, low, high, at, span // 8, ready)


# The same for one item. What it fades it does not fade again.
cdef void value_alone(Attention* t, const void* values, Py_ssize_t item, Py_ssize_t low,
                      Py_ssize_t high, bint ready) noexcept nogil:
    if ready:
        value_words(t, values, item, 1, 1, low, high, True)
    else:
        value_words(t, values, item, 1, 1, low, high, False)
    t.faded[item] = 1.0


cdef inline void score_items(Attention* t, const void* keys, Py_ssize_t first, Py_ssize_t last,
                             bint ready) noexcept nogil:
    cdef Py_ssize_t item, tile, count, i, tiles = (last - first + TILE - 1) // TILE
    for tile in range(tiles):
        item = first + TILE * tile
        count = least(TILE, last - item)
        if ready:
            ask(t, tile, tiles)
        if count == 1:
            score_alone(t, keys, item, ready)
            continue
        if count > TILE // 2:
            lay_beside(t, item, count)
        for i in range(2 // SPAN):
            if count > TILE // 2:
                score_tile(t, keys, item, count, TILE, 16 * SPAN * i, ready)
            elif count > 2:
                score_tile(t, keys, item, count, TILE // 2, 16 * SPAN * i, ready)
            else:
                score_tile(t, keys, item, count, 2, 16 * SPAN * i, ready)


cdef inline void value_items(Attention* t, const void* values, Py_ssize_t first, Py_ssize_t last,
                             bint ready) noexcept nogil:
    cdef Py_ssize_t item, tile, count, low, high, i, tiles = (last - first + TILE - 1) // TILE
    for tile in range(tiles):
        item = first + TILE * tile
        count = least(TILE, last - item)
        if ready:
            ask(t, tile, tiles)
        # The slots that all items see go together; before and after them each item goes alone.
        low = 0
        high = PAGE
        for i in range(item, item + count):
            low = most(low, t.low[i])
            high = least(high, t.high[i])
        if count == 1 or low >= high:
            for i in range(item, item + count):
                value_alone(t, values, i, t.low[i], t.high[i], ready)
            continue
        for i in range(item, item + count):
            if t.low[i] < low:
                value_alone(t, values, i, t.low[i], low, ready)
        if count > TILE // 2:
            value_words(t, values, item, count, TILE, low, high, ready)
        elif count > 2:
            value_words(t, values, item, count, TILE // 2, low, high, ready)
        else:
            value_words(t, values, item, count, 2, low, high, ready)
        for i in range(item, item + count):
            if high < t.high[i]:
                t.faded[i] = 1.0
                value_alone(t, values, i, high, t.high[i], ready)


# Where head `head` of page `page` begins, of `count` elements.
cdef inline const void* begins(Attention* t, const void* pages, Py_ssize_t page, Py_ssize_t head,
                               Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t at = (t.view.table[page] * t.view.heads + head) * count
    if t.half:
        return <const unsigned short*> pages + at
    return <const float*> pages + at


# The same in float32, if pages are read so.
cdef inline const void* opened(Attention* t, const void* data, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i
    if not t.half or not t.ready:
        return data
    for i in range(0, count, 16):
        store(t.wide + i, load_half(<const unsigned short*> data + i))
    return t.wide


# What will be read after keys (or values) of page `page`: those of the next page of these, or what
# `other` has at page `after`, if that is at most `last`.
cdef inline void look_ahead(Attention* t, const void* mine, const void* other, Py_ssize_t page,
                            Py_ssize_t end, Py_ssize_t after, Py_ssize_t last, Py_ssize_t head,
                            Py_ssize_t count, Py_ssize_t others) noexcept nogil:
    if page + 1 < end:
        t.ahead = <const char*> begins(t, mine, page + 1, head, count)
    elif after <= last:
        t.ahead = <const char*> begins(t, other, after, head, others)
        count = others
    else:
        t.ahead = <const char*> begins(t, mine, page, head, count)
    t.lines = count * (2 if t.half else 4) // 64


# The first position that a row sees.
cdef inline Py_ssize_t earliest(Py_ssize_t position, Py_ssize_t window) noexcept nogil:
    return most(0, position - window + 1) if window > 0 else 0


# Pairs first..first+pairs: pair i is row i / count and the call's query head i % count.
cdef void attend_pairs(Attention* t, Py_ssize_t head, const int* positions, Py_ssize_t count,
                       Py_ssize_t first, Py_ssize_t pairs) noexcept nogil:
    cdef Py_ssize_t dim = t.view.dim, padded = t.view.padded
    cdef Py_ssize_t pages, page, base, i, position, start
    cdef Py_ssize_t begin = positions[first // count], end = 0
    cdef Py_ssize_t items[PAIRS + 1]    # where each page's items begin
    cdef const void* data
    t.ready = pairs > TILE or not t.half
    for i in range(first // count, (first + pairs - 1) // count + 1):
        begin = least(begin, earliest(positions[i], t.window))
        end = most(end, positions[i])
    base = begin // PAGE
    while PAGE * base <= end:
        pages = least(PAIRS // pairs, end // PAGE + 1 - base)
        t.items = 0
        for page in range(pages):
            items[page] = t.items
            for i in range(pairs):
                position = positions[(first + i) // count] - PAGE * (base + page)
                start = earliest(positions[(first + i) // count], t.window) - PAGE * (base + page)
                if position >= 0 and start < PAGE:
                    t.pair[t.items] = i
                    t.low[t.items] = most(start, 0)
                    t.high[t.items] = least(position + 1, PAGE)
                    t.items += 1
            items[page + 1] = t.items
            if items[page] < t.items:
                look_ahead(t, t.view.keys, t.view.values, base + page, base + pages, base,
                           end // PAGE, head, dim * PAGE, PAGE * padded)
                data = opened(t, begins(t, t.view.keys, base + page, head, dim * PAGE), dim * PAGE)
                if t.ready:
                    score_items(t, data, items[page], t.items, True)
                else:
                    score_items(t, data, items[page], t.items, False)
        weigh(t)
        for page in range(pages):
            if items[page] < items[page + 1]:
                look_ahead(t, t.view.values, t.view.keys, base + page, base + pages, base + pages,
                           end // PAGE, head, PAGE * padded, dim * PAGE)
                data = opened(t, begins(t, t.view.values, base + page, head, PAGE * padded),
                              PAGE * padded)
                if t.ready:
                    value_items(t, data, items[page], items[page + 1], True)
                else:
                    value_items(t, data, items[page], items[page + 1], False)
        base += pages


cdef inline void attend(bint half, const View* view, Py_ssize_t head, Py_ssize_t first,
                        Py_ssize_t count, const float* q, Py_ssize_t q_stride,
                        const int* positions, Py_ssize_t rows, float scale, float softcap,
                        Py_ssize_t window, float* out, Py_ssize_t out_stride,
                        float* scratch) noexcept nogil:
    cdef Py_ssize_t dim = view.dim, padded = view.padded
    cdef Py_ssize_t block, at, i, d, n, pairs, place
    cdef f32x16 inverse
    cdef Attention t
    t.view = view
    t.half = half
    t.softcap = softcap
    t.window = window
    t.wide = <float*> ((<size_t> scratch + 63) & ~<size_t> 63)
    t.sums = t.wide + PAGE * padded
    t.totals = t.sums + (PAIRS + 1) * padded
    t.scores = t.totals + PAIRS * 16
    t.faded = t.scores + (PAIRS + TILE) * PAGE
    t.peaks = t.faded + PAIRS + 16
    t.q = t.peaks + PAIRS
    t.beside = t.q + PAIRS * dim
    memset(t.scores, 0, (PAIRS + TILE) * PAGE * sizeof(float))
    memset(t.faded, 0, (PAIRS + 16) * sizeof(float))
    for block in range((rows * count + PAIRS - 1) // PAIRS):
        at = PAIRS * block
        pairs = least(PAIRS, rows * count - at)
        for i in range(pairs):
            place = (at + i) // count * q_stride + (first + (at + i) % count) * dim
            for d in range(0, dim, 16):
                n = least(dim - d, 16)
                store_n(t.q + i * dim + d, mul(load_n(q + place + d, n), splat(scale)), n)
            t.peaks[i] = -INFINITY
        for i in range(PAIRS + TILE):
            t.held[i] = -1
        memset(t.totals, 0, PAIRS * 16 * sizeof(float))
        memset(t.sums, 0, (PAIRS + 1) * padded * sizeof(float))
        attend_pairs(&t, head, positions, count, at, pairs)
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
