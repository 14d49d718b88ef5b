"""The kernels: one extension module for each instruction set, see `table.pxd`."""
