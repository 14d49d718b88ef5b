#version 450
#extension GL_GOOGLE_include_directive : require
// rms_norm: x / sqrt(mean(x^2) + eps) * weight over one vector, a workgroup.
#include "pass.glsl"

layout(local_size_x = 32) in;
layout(std430, binding = 1) readonly buffer Weight { float weight[]; };
layout(std430, binding = 2) readonly buffer X { float x[]; };
layout(std430, binding = 3) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows;
    uint vectors;   // in a row
    uint size;      // of a vector
    float eps;
    uint weighted;
};

shared float sums[32];

void main() {
    if (group() >= state[rows] * vectors) return;
    uint lane = gl_LocalInvocationID.x;
    uint at = group() * size;
    precise float sum = 0.0;
    for (uint i = lane; i < size; i += 32u) sum = sum + x[at + i] * x[at + i];
    sums[lane] = sum;
    barrier();
    precise float total = 0.0;
    for (uint l = 0u; l < 32u; ++l) total = total + sums[l];
    precise float norm = 1.0 / sqrt(total / float(size) + eps);
    for (uint i = lane; i < size; i += 32u) {
        float scaled = x[at + i] * norm;
        y[at + i] = weighted != 0u ? scaled * weight[i] : scaled;
    }
}
