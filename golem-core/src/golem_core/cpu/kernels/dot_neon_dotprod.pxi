# integer words: neon_dotprod
