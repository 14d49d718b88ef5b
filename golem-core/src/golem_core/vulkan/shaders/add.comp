#version 450
#extension GL_GOOGLE_include_directive : require
// add: a + b.
#include "pass.glsl"
#include "elements.glsl"

layout(std430, binding = 1) readonly buffer A { float a[]; };
layout(std430, binding = 2) readonly buffer B { float b[]; };
layout(std430, binding = 3) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint rows, size; };

void main() {
    if (beyond(rows, size)) return;
    y[invocation()] = a[invocation()] + b[invocation()];
}
