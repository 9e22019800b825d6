"""Machines: files with units and provenance, and the computer at hand."""

from .detect import detect
from .load import check, dump, load, names
from .model import Compiler, Level, Machine, Provenance

__all__ = ["Compiler", "Level", "Machine", "Provenance", "check", "detect", "dump", "load", "names"]
