#version 450
#extension GL_GOOGLE_include_directive : require
// pick: the rows whose logits are wanted.
#include "pass.glsl"
#include "elements.glsl"

layout(std430, binding = 1) readonly buffer X { float x[]; };
layout(std430, binding = 2) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint size; };

void main() {
    if (beyond(1u, size)) return;
    uint row = state[OUTPUTS + invocation() / size];
    y[invocation()] = x[row * size + invocation() % size];
}
