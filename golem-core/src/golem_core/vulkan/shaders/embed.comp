#version 450
#extension GL_GOOGLE_include_directive : require
// embed: the row of the table that each column's token names, two elements an invocation.
#include "pass.glsl"
#define WEIGHT 1
#include "weight.glsl"
#include "elements.glsl"

layout(std430, binding = 2) writeonly buffer Y { vec2 y[]; };
layout(push_constant) uniform Push {
    uint size;    // elements in a row
    uint first;   // the table may lie in several buffers: this one's first row,
    uint count;   // and how many it has
};

void main() {
    if (beyond(0u, size / 2u)) return;
    uint at = invocation();
    uint id = state[IDS + at / (size / 2u)];
    if (id < first || id - first >= count) return;
    y[at] = weights(id - first, size, at % (size / 2u));
}
