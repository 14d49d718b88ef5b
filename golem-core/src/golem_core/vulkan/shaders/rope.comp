#version 450
#extension GL_GOOGLE_include_directive : require
// rope: turns the first `dims` of each head by the row's angles.
//
// The host gives cos and sin of every row and pair: Vulkan's own may be off by 2^-11.
#include "pass.glsl"
#include "elements.glsl"

layout(std430, binding = 1) readonly buffer Turns { vec2 turns[]; };   // [row][pair]
layout(std430, binding = 2) readonly buffer X { float x[]; };
layout(std430, binding = 3) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows;
    uint heads;
    uint size;    // of a head
    uint dims;
    uint pairs;   // 1: elements 2i and 2i + 1 make a pair; 0: i and i + dims / 2
};

void main() {
    if (beyond(rows, heads * size)) return;
    uint at = invocation();
    uint i = at % size;
    if (i >= dims) {
        y[at] = x[at];
        return;
    }
    uint half_dims = dims / 2u;
    bool first = pairs != 0u ? (i & 1u) == 0u : i < half_dims;
    uint step = pairs != 0u ? 1u : half_dims;
    vec2 turn = turns[at / (heads * size) * half_dims + (pairs != 0u ? i / 2u : i % half_dims)];
    precise float turned = first ? x[at] * turn.x - x[at + step] * turn.y
                                 : x[at] * turn.x + x[at - step] * turn.y;
    y[at] = turned;
}
