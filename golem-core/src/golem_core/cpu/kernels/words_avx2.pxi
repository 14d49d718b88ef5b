# float words: avx2
