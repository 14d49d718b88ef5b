# float words: neon
