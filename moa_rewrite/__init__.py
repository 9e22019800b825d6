"""moarw: verified term rewriting for the Mathematics of Arrays (MoA)."""

__version__ = "0.1.0"
