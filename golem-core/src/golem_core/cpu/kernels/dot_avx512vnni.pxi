# integer words: avx512vnni
