// Two neighbouring elements of a stored matrix, decoded from the file's own bytes.
//
// WEIGHT is the binding. Rows have an even number of elements; of Q8_0 a multiple of 32, in blocks
// of 34 bytes: an fp16 scale and 32 signed bytes. Half-words, not words, are what these align to.

layout(constant_id = 0) const uint FORMAT = 0;   // 0 F32, 1 F16, 2 Q8_0; see memory.py
layout(std430, binding = WEIGHT) readonly buffer Words { uint words[]; };

uint half_word(uint at) { return (words[at >> 1] >> ((at & 1u) * 16u)) & 0xffffu; }

vec2 weights(uint row, uint columns, uint pair) {
    if (FORMAT == 0u) {
        uint at = row * columns + 2u * pair;
        return vec2(uintBitsToFloat(words[at]), uintBitsToFloat(words[at + 1u]));
    }
    if (FORMAT == 1u) return unpackHalf2x16(words[row * (columns >> 1) + pair]);
    uint block = (row * (columns >> 5) + (pair >> 4)) * 17u;
    float scale = unpackHalf2x16(half_word(block)).x;
    int two = int(half_word(block + 1u + (pair & 15u)));
    return scale * vec2(bitfieldExtract(two, 0, 8), bitfieldExtract(two, 8, 8));
}
