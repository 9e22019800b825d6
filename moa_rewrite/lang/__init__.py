"""The language: text to syntax tree to elaborated kernel, formatter, reference interpreter, in-source tests."""

from .program import Program, elaborate, load, load_file

__all__ = ["Program", "elaborate", "load", "load_file"]
