"""The routes, a file for each API; every module here has ``add(app)``, which adds its own."""
