# float words: avx512vnni
