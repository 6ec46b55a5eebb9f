"""Settings that hold for all tests."""

from __future__ import annotations

import os

# Read when torch._inductor is imported. A pool of compile workers is forked from a process that has threads already:
# slow for the few kernels compiled here, and now and then it never comes down again.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
