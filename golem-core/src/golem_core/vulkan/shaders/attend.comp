#version 450
#extension GL_GOOGLE_include_directive : require
// attend: one query head of one row, a workgroup; softmax in one walk over the pages.
//
// A tile is one page: lane l scores position l of it, then lane l sums the value's elements l,
// l + 32, ... Tiles begin at absolute positions, so the order of the sums depends on the position
// alone. Positions that belong to this very pass are read from its own k and v, rounded as they
// are kept: `store` may run beside this, and no barrier is needed on the pages.
#include "pass.glsl"
#include "half.glsl"

layout(local_size_x = 32) in;
layout(constant_id = 0) const uint HALF = 1;   // 1: kept as fp16, 0: as float32
const uint MOST = 8;                           // times 32: the largest head
layout(std430, binding = 1) readonly buffer Table { uint table[]; };   // [row][first, pages..]
layout(std430, binding = 2) readonly buffer Q { float q[]; };
layout(std430, binding = 3) readonly buffer K { float k[]; };
layout(std430, binding = 4) readonly buffer V { float v[]; };
layout(std430, binding = 5) readonly buffer Keys { uint keys[]; };     // [page][slot][head][dim]
layout(std430, binding = 6) readonly buffer Values { uint values[]; };
layout(std430, binding = 7) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows;
    uint heads;      // of the queries
    uint kv_heads;
    uint size;       // of a head
    uint window;     // 0: all positions
    float scale;
    float softcap;   // 0: none
    uint stride;     // entries of the table for a row
};

shared float scores[32];
shared float shares[32];

float kept(float x) { return HALF != 0u ? from_half(half_bits(x)) : x; }
float key(uint at) {
    return HALF != 0u ? from_half((keys[at >> 1] >> ((at & 1u) * 16u)) & 0xffffu)
                      : uintBitsToFloat(keys[at]);
}
float value(uint at) {
    return HALF != 0u ? from_half((values[at >> 1] >> ((at & 1u) * 16u)) & 0xffffu)
                      : uintBitsToFloat(values[at]);
}

void main() {
    uint row = group() / heads;
    if (row >= state[rows]) return;
    uint head = group() % heads;
    uint kv_head = head / (heads / kv_heads);
    uint lane = gl_LocalInvocationID.x;
    uint position = state[POSITIONS + row];
    uint since = state[SINCE + row];
    uint first = window == 0u || position < window ? 0u : position + 1u - window;
    uint query = group() * size;

    float top = -3.0e38;
    precise float total = 0.0;
    precise float sum[MOST];
    for (uint c = 0u; c < MOST; ++c) sum[c] = 0.0;

    for (uint tile = first / 32u; tile <= position / 32u; ++tile) {
        uint page = table[row * stride + 1u + tile - table[row * stride]];
        uint low = max(first, tile * 32u) - tile * 32u;
        uint high = min(position - tile * 32u, 31u);

        precise float score = 0.0;
        if (lane >= low && lane <= high) {
            uint at = tile * 32u + lane;
            if (at >= since) {
                uint from = ((row - (position - at)) * kv_heads + kv_head) * size;
                for (uint d = 0u; d < size; ++d) score = score + q[query + d] * kept(k[from + d]);
            } else {
                uint from = ((page * 32u + lane) * kv_heads + kv_head) * size;
                for (uint d = 0u; d < size; ++d) score = score + q[query + d] * key(from + d);
            }
            score = score * scale;
            // tanh(s) = 1 - 2 / (exp(2 s) + 1), which is right where exp overflows too.
            if (softcap != 0.0) {
                score = softcap * (1.0 - 2.0 / (exp(2.0 * score / softcap) + 1.0));
            }
        }
        scores[lane] = score;
        barrier();
        float peak = top;
        for (uint l = low; l <= high; ++l) peak = max(peak, scores[l]);
        shares[lane] = exp(score - peak);
        float shrink = exp(top - peak);
        barrier();

        total = total * shrink;
        for (uint c = 0u; c < MOST; ++c) sum[c] = sum[c] * shrink;
        for (uint l = low; l <= high; ++l) {
            float share = shares[l];
            total = total + share;
            uint at = tile * 32u + l;
            bool here = at >= since;
            uint from = here ? ((row - (position - at)) * kv_heads + kv_head) * size
                             : ((page * 32u + l) * kv_heads + kv_head) * size;
            for (uint c = 0u; c < MOST; ++c) {
                uint d = lane + 32u * c;
                if (d < size) {
                    sum[c] = sum[c] + share * (here ? kept(v[from + d]) : value(from + d));
                }
            }
        }
        top = peak;
    }
    for (uint c = 0u; c < MOST; ++c) {
        uint d = lane + 32u * c;
        if (d < size) y[query + d] = sum[c] / total;
    }
}
