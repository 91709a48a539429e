"""From a reference to a frozen ladder and tuned kernels."""
