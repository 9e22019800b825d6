"""The syntax tree of a program. Spellings are gone (``↑`` and ``take(,)`` give the same node); positions do not count for equality."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Pos:
    file: str
    line: int
    col: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col}"


NOWHERE = Pos("", 0, 0)


@dataclass(frozen=True, kw_only=True)
class Node:
    pos: Pos = field(default=NOWHERE, compare=False, repr=False)


# --- expressions ---------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Num(Node):
    """A literal as written; ``is_float`` tells 1.0 from 1."""

    text: str

    @property
    def is_float(self) -> bool:
        return not self.text.isdigit()


@dataclass(frozen=True)
class Bool(Node):
    value: bool


@dataclass(frozen=True)
class Name(Node):
    id: str


@dataclass(frozen=True)
class Vector(Node):
    items: tuple[Expr, ...]


@dataclass(frozen=True)
class Tuple(Node):
    items: tuple[Expr, ...]


@dataclass(frozen=True)
class Hole(Node):
    """``_``, the k-th argument (from 0) of the enclosing partial application."""

    k: int


@dataclass(frozen=True)
class App(Node):
    fn: Fn
    args: tuple[Expr, ...]


Expr = Num | Bool | Name | Vector | Tuple | Hole | App


# --- functions: what can be applied, or stand under Ω ----------------------------------------------------------------------------
@dataclass(frozen=True)
class Prim(Node):
    """A built-in scalar function or structural operator, by its name in builtins.py."""

    name: str


@dataclass(frozen=True)
class Ref(Node):
    """A definition, local, of the file or of the prelude; or a type variable used as a cast."""

    name: str


@dataclass(frozen=True)
class Fold(Node):
    kind: str  # "red" or "scan"
    op: str


@dataclass(frozen=True)
class Outer(Node):
    op: str


@dataclass(frozen=True)
class Inner(Node):
    op: str  # the reduction
    by: str  # what it sums


@dataclass(frozen=True)
class Rank(Node):
    """``fn Ω<ranks>``"""

    fn: Fn
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Part(Node):
    """An expression with holes, as a function of them."""

    body: Expr
    holes: int


Fn = Prim | Ref | Fold | Outer | Inner | Rank | Part


# --- declarations --------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Type(Node):
    """``name`` a dtype or type variable ("" if not said); ``dims`` None if the shape is not said, () for a scalar."""

    name: str
    dims: tuple[Expr, ...] | None


@dataclass(frozen=True)
class Param(Node):
    name: str
    type: Type | None


@dataclass(frozen=True)
class Let(Node):
    names: tuple[str, ...]
    value: Body


@dataclass(frozen=True)
class Def(Node):
    name: str
    params: tuple[Param, ...]
    body: Body


@dataclass(frozen=True)
class Body(Node):
    bindings: tuple[Let | Def, ...]
    result: Expr


@dataclass(frozen=True)
class Result(Node):
    name: str  # "" if not said
    type: Type


@dataclass(frozen=True)
class KernelDef(Node):
    name: str
    params: tuple[Param, ...]
    results: tuple[Result, ...]
    where: tuple[Expr, ...]
    body: Body


@dataclass(frozen=True)
class Comment:
    """``text`` from its ``#`` on; ``own_line`` if nothing stands before it."""

    line: int
    col: int
    text: str
    own_line: bool
