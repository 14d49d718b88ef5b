# integer words: neon
