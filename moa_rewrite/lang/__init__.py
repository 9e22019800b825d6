"""The language: text to syntax tree to elaborated kernel, formatter, reference interpreter, in-source tests."""

from .binding import bind_sizes, check_where
from .formatter import format
from .program import Program, elaborate, interpret, load, load_file

__all__ = ["Program", "bind_sizes", "check_where", "elaborate", "format", "interpret", "load", "load_file"]
