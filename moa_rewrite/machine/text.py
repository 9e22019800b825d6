"""YAML with places: duplicate keys are refused, and every value knows its line."""

from __future__ import annotations

import re
from typing import Any

import yaml

from ..errors import MoaError

Path = tuple[str | int, ...]
PLACEHOLDER = re.compile(r"\b(information_required|todo|fixme|tbd)\b|\?\?\?", re.IGNORECASE)


def read(text: str, file: str) -> tuple[Any, dict[Path, int]]:
    """(document, line of the value at each path). MOA0502 for text that is no YAML or repeats a key in a mapping."""
    lines: dict[Path, int] = {}

    def build(node: yaml.Node, path: Path) -> Any:
        lines[path] = node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode):
            out: dict[Any, Any] = {}
            for key_node, value in node.value:
                key = loader.construct_object(key_node, deep=True)
                if key in out:
                    first = lines[(*path, key)]
                    raise MoaError(502, f"key {key!r} twice in one mapping", file, key_node.start_mark.line + 1, key_node.start_mark.column + 1,
                                   [f"first on line {first}"], hint="keep one of them: a YAML reader would silently take the last")  # fmt: skip
                lines[(*path, key)] = key_node.start_mark.line + 1
                out[key] = build(value, (*path, key))
                lines[(*path, key)] = key_node.start_mark.line + 1
            return out
        if isinstance(node, yaml.SequenceNode):
            return [build(v, (*path, k)) for k, v in enumerate(node.value)]
        return loader.construct_object(node)

    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        return ({} if node is None else build(node, ())), lines
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark
        raise MoaError(502, f"not YAML: {e.problem}", file, mark.line + 1 if mark else 0, mark.column + 1 if mark else 0) from None
    except yaml.YAMLError as e:
        raise MoaError(502, f"not YAML: {e}", file) from None


def placeholder(value: Any) -> bool:
    """Whether a value stands for one that nobody filled in."""
    return value is None or (isinstance(value, str) and PLACEHOLDER.search(value) is not None)
