#version 450
#extension GL_GOOGLE_include_directive : require
// store: each column's keys and values into its sequence's page, two elements an invocation.
#include "pass.glsl"
#include "half.glsl"
#include "elements.glsl"

layout(constant_id = 0) const uint HALF = 1;   // 1: kept as fp16, 0: as float32
layout(std430, binding = 1) readonly buffer Table { uint table[]; };   // [row][first, pages..]
layout(std430, binding = 2) readonly buffer K { vec2 k[]; };
layout(std430, binding = 3) readonly buffer V { vec2 v[]; };
layout(std430, binding = 4) writeonly buffer Keys { uint keys[]; };    // [page][slot][head][dim]
layout(std430, binding = 5) writeonly buffer Values { uint values[]; };
layout(push_constant) uniform Push {
    uint rows;
    uint size;     // elements of a position: heads times dim
    uint stride;   // entries of the table for a row
};

void main() {
    uint pairs = size / 2u;
    if (beyond(rows, pairs)) return;
    uint row = invocation() / pairs;
    uint position = state[POSITIONS + row];
    uint page = table[row * stride + 1u + position / 32u - table[row * stride]];
    uint at = (page * 32u + position % 32u) * pairs + invocation() % pairs;
    vec2 key = k[invocation()];
    vec2 value = v[invocation()];
    if (HALF != 0u) {
        keys[at] = half_bits(key.x) | (half_bits(key.y) << 16);
        values[at] = half_bits(value.x) | (half_bits(value.y) << 16);
    } else {
        keys[2u * at] = floatBitsToUint(key.x);
        keys[2u * at + 1u] = floatBitsToUint(key.y);
        values[2u * at] = floatBitsToUint(value.x);
        values[2u * at + 1u] = floatBitsToUint(value.y);
    }
}
