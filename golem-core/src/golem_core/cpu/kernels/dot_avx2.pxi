# integer words: avx2
