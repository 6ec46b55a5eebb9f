"""The process that owns a GPU: loads kernels, checks their results, times them."""
