// Two neighbouring elements of a stored matrix, decoded from the file's own bytes.
//
// WEIGHT is the binding. Rows have an even number of elements; in blocks of 32, a multiple of that.
// A block is an fp16 scale and 32 signed bytes (Q8_0, 34 bytes), or 16 bytes of nibbles of which
// the low ones come first (Q4_0, 18 bytes). Half-words, not words, are what blocks align to.

layout(constant_id = 0) const uint FORMAT = 0;   // 0 F32, 1 F16, 2 BF16, 3 Q8_0, 4 Q4_0: memory.py
layout(std430, binding = WEIGHT) readonly buffer Words { uint words[]; };

uint half_word(uint at) { return (words[at >> 1] >> ((at & 1u) * 16u)) & 0xffffu; }

vec2 weights(uint row, uint columns, uint pair) {
    if (FORMAT == 0u) {
        uint at = row * columns + 2u * pair;
        return vec2(uintBitsToFloat(words[at]), uintBitsToFloat(words[at + 1u]));
    }
    if (FORMAT == 1u) return unpackHalf2x16(words[row * (columns >> 1) + pair]);
    if (FORMAT == 2u) {
        uint two = words[row * (columns >> 1) + pair];
        return vec2(uintBitsToFloat(two << 16), uintBitsToFloat(two & 0xffff0000u));
    }
    uint block = (row * (columns >> 5) + (pair >> 4)) * (FORMAT == 3u ? 17u : 9u);
    float scale = unpackHalf2x16(half_word(block)).x;
    if (FORMAT == 3u) {
        int two = int(half_word(block + 1u + (pair & 15u)));
        return scale * vec2(bitfieldExtract(two, 0, 8), bitfieldExtract(two, 8, 8));
    }
    uint two = half_word(block + 1u + (pair & 7u)) >> ((pair & 8u) >> 1);
    return scale * (vec2(two & 15u, (two >> 8) & 15u) - 8.0);
}
