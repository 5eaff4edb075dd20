"""The ground everything stands on: compiling kernels, interrupts, limits, numbers. It knows nothing of circuits."""
