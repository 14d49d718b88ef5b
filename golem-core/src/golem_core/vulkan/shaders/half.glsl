// fp16 in pairs of a 32-bit word, so that no device needs 16-bit storage.

// packHalf2x16 may round either way (Vulkan leaves it open); this is to nearest, ties to even.
uint half_bits(float x) {
    uint bits = floatBitsToUint(x);
    uint sign = (bits >> 16) & 0x8000u;
    uint magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | 0x7e00u;    // not a number
    if (magnitude >= 0x477ff000u) return sign | 0x7c00u;   // 65,520 and more: infinity
    if (magnitude < 0x38800000u) {                         // below 2^-14: a multiple of 2^-24
        return sign | uint(roundEven(uintBitsToFloat(magnitude) * 16777216.0));
    }
    return sign | ((magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13);
}

float from_half(uint bits) { return unpackHalf2x16(bits).x; }
