"""The processor backend: a tape of stages, a pool of workers, kernels by instruction set."""
