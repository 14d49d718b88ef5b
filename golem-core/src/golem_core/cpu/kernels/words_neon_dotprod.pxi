# Float words for AArch64 with dot products (Cortex-A76 2018, Apple M1): those of every 64-bit Arm.

include "words_neon.pxi"
