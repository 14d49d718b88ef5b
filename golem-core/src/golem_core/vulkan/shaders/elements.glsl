// An operation of one invocation per element of a pass's rows.

layout(local_size_x = 64) in;

// Whether this invocation's element belongs to a row that the pass has.
bool beyond(uint rows, uint size) { return invocation() >= state[rows] * size; }
