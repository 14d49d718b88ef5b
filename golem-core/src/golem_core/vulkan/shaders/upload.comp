#version 450
// upload: words from a buffer that the host writes into one that only the device reads.

layout(local_size_x = 64) in;
layout(std430, binding = 0) readonly buffer From { uint from[]; };
layout(std430, binding = 1) writeonly buffer To { uint to[]; };
layout(push_constant) uniform Push { uint offset, count; };

void main() {
    uint at = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * 64u
            + gl_LocalInvocationID.x;
    if (at < count) to[offset + at] = from[at];
}
