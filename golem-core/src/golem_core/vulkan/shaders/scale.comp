#version 450
#extension GL_GOOGLE_include_directive : require
// scale: x times a number.
#include "pass.glsl"
#include "elements.glsl"

layout(std430, binding = 1) readonly buffer X { float x[]; };
layout(std430, binding = 2) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint rows, size; float factor; };

void main() {
    if (beyond(rows, size)) return;
    y[invocation()] = x[invocation()] * factor;
}
