// What every shader knows of the pass, and the number of its workgroup.
//
// `state` is filled by the host before each pass (program.py writes it): how many columns and how
// many picked rows there are, then WIDTH entries each of ids, positions, the first position that a
// column's sequence has in this pass, and the picked columns. The sequence is recorded for WIDTH
// columns; what lies beyond the count returns at once.

const uint WIDTH = 8;
const uint IDS = 2;
const uint POSITIONS = IDS + WIDTH;
const uint SINCE = POSITIONS + WIDTH;
const uint OUTPUTS = SINCE + WIDTH;

layout(std430, binding = 0) readonly buffer State { uint state[]; };

// Workgroups in two dimensions, since one alone may hold no more than 65,535 of them.
uint group() { return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
