"""Kernels of the sweep: their sources, families that serve many sizes, compiling them without a GPU."""
