#version 450
#extension GL_GOOGLE_include_directive : require
// softcap: cap * tanh(x / cap).
#include "pass.glsl"
#include "elements.glsl"

layout(std430, binding = 1) readonly buffer X { float x[]; };
layout(std430, binding = 2) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint rows, size; float cap; };

void main() {
    if (beyond(rows, size)) return;
    // tanh(s) = 1 - 2 / (exp(2 s) + 1), which is right where exp overflows too.
    y[invocation()] = cap * (1.0 - 2.0 / (exp(2.0 * x[invocation()] / cap) + 1.0));
}
