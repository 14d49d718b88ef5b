#version 450
#extension GL_GOOGLE_include_directive : require
// linear: one output element of every row, a workgroup; the weight is read and decoded once.
//
// Lane l sums the pairs l, l + 32, ...; the 32 sums are added in order. So a row's result does not
// depend on how many rows there are.
#include "pass.glsl"
#define WEIGHT 1
#include "weight.glsl"

layout(local_size_x = 32) in;
layout(std430, binding = 2) readonly buffer Bias { float bias[]; };
layout(std430, binding = 3) readonly buffer X { vec2 x[]; };
layout(std430, binding = 4) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows;      // which count of the state: columns or picked rows
    uint inputs;
    uint outputs;
    uint first;     // the matrix may lie in several buffers: this one's first output,
    uint count;     // and how many it has
    uint biased;
};

shared float sums[WIDTH][32];

void main() {
    uint o = group();
    if (o >= count) return;
    uint lane = gl_LocalInvocationID.x;
    uint pairs = inputs / 2u;
    uint n = min(state[rows], WIDTH);
    precise float sum[WIDTH];
    for (uint r = 0u; r < WIDTH; ++r) sum[r] = 0.0;
    for (uint p = lane; p < pairs; p += 32u) {
        vec2 w = weights(o, inputs, p);
        for (uint r = 0u; r < WIDTH; ++r) {   // unrolled, so that the sums stay in registers
            if (r < n) {
                vec2 v = x[r * pairs + p];
                sum[r] = sum[r] + (w.x * v.x + w.y * v.y);
            }
        }
    }
    for (uint r = 0u; r < WIDTH; ++r) sums[r][lane] = sum[r];
    barrier();
    if (lane >= n) return;
    precise float total = 0.0;
    for (uint l = 0u; l < 32u; ++l) total = total + sums[lane][l];
    if (biased != 0u) total = total + bias[first + o];
    y[lane * outputs + first + o] = total;
}
