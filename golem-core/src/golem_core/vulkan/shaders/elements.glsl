// An operation of one invocation per element of a pass's rows.

layout(local_size_x = 64) in;

// gl_WorkGroupSize is 1 wherever it is read above the layout: glslang 12 says nothing.
uint invocation() { return group() * 64u + gl_LocalInvocationID.x; }

// Whether this invocation's element belongs to a row that the pass has.
bool beyond(uint rows, uint size) { return invocation() >= state[rows] * size; }
