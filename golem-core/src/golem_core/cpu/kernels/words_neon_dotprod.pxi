# float words: neon_dotprod
