#version 450
#extension GL_GOOGLE_include_directive : require
// glu: act(gate) * up.
#include "pass.glsl"
#include "elements.glsl"

layout(std430, binding = 1) readonly buffer Gate { float gate[]; };
layout(std430, binding = 2) readonly buffer Up { float up[]; };
layout(std430, binding = 3) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows, size;
    uint act;   // 0 silu, 1 gelu_tanh, 2 gelu_erf; the order of ops.ACTIVATIONS
};

// Abramowitz and Stegun 7.1.26: within 1.5e-7 of erf.
float erf(float x) {
    float t = 1.0 / (1.0 + 0.3275911 * abs(x));
    float series = 1.421413741 + t * (-1.453152027 + t * 1.061405429);
    series = t * (0.254829592 + t * (-0.284496736 + t * series));
    return sign(x) * (1.0 - series * exp(-x * x));
}

void main() {
    if (beyond(rows, size)) return;
    float z = gate[invocation()];
    float activated;
    if (act == 0u) {
        activated = z / (1.0 + exp(-z));
    } else if (act == 1u) {
        // 0.5 z (1 + tanh(u)) = z / (1 + exp(-2 u))
        activated = z / (1.0 + exp(-1.5957691216057308 * (z + 0.044715 * z * z * z)));
    } else {
        activated = 0.5 * z * (1.0 + erf(z * 0.7071067811865476));
    }
    y[invocation()] = activated * up[invocation()];
}
