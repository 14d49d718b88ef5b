"""The schemas of the OpenAPI document: a file for each API, each a table of components by name."""
