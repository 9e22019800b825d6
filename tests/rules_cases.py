"""Cases for test_rules_structure: statements on which the laws of statements apply, and statements on which one guard refuses them."""

from __future__ import annotations

from moa_rewrite.terms import I

# rule: position, direction, params, body, stages (name type monoid axis:extent ...)
GOOD = {
    "lift": (
        (), True, {"T": I(2)},
        'for("i", n, "seq", emit("once", "X", <@i>, a[@i] + 1.0))',
        "",
    ),
    "lift one block": (
        (), True, {"T": I(64)},
        'for("i", n, "seq", emit("once", "X", <@i>, a[@i] + 1.0))',
        "",
    ),
    "interchange": (
        (), True, {},
        'for("i", n, "seq", for("j", m, "seq", emit("add", "X", <@i>, A[@i, @j])))',
        "",
    ),
    "interchange keyed by one": (
        (1,), True, {},
        'new("T", for("i", n, "seq", for("j", m, "seq", seq(emit("add", "T", <@i>, A[@i, @j]), emit("once", "Z", <@i, @j>, T[@i])))))',
        "T f64 add i:n",
    ),
    "fission": (
        (1,), True, {},
        'new("T", for("i", n, "seq", seq(for("j", m, "seq", emit("add", "T", <@i>, A[@i, @j])), emit("once", "X", <@i>, T[@i]))))',
        "T f64 add i:n",
    ),
    "fission back": (
        (1,), False, {},
        'new("T", seq(for("i", n, "seq", emit("add", "T", <@i>, a[@i])), for("i", n, "seq", emit("once", "X", <@i>, T[@i]))))',
        "T f64 add i:n",
    ),
    "scope": (
        (), True, {},
        'new("T", for("i", n, "seq", seq(emit("add", "T", <@i>, a[@i]), emit("once", "X", <@i>, T[@i]))))',
        "T f64 add i:n",
    ),
    "scope back": (
        (), False, {},
        'for("i", n, "seq", new("T", seq(emit("add", "T", <@i>, a[@i]), emit("once", "X", <@i>, T[@i]))))',
        "T f64 add i:n",
    ),
    "scope-left": (
        (), True, {},
        'new("T", seq(seq(emit("once", "T", <>, 2.0), emit("add", "x", <>, T[])), emit("add", "x", <>, 1.0)))',
        "T f64 once",
    ),
    "scope-right": (
        (), True, {},
        'new("T", seq(emit("add", "x", <>, 1.0), seq(emit("once", "T", <>, 2.0), emit("add", "x", <>, T[]))))',
        "T f64 once",
    ),
    "scope-swap": (
        (), True, {},
        'new("T", new("U", seq(emit("once", "T", <>, 2.0), seq(emit("once", "U", <>, T[]), emit("once", "x", <>, U[])))))',
        "T f64 once; U f64 once",
    ),
    "assoc": (
        (), True, {},
        'seq(seq(emit("add", "x", <>, 1.0), emit("add", "x", <>, 2.0)), emit("add", "x", <>, 4.0))',
        "",
    ),
    "commute": (
        (), True, {},
        'seq(emit("once", "x", <>, 1.0), for("i", n, "seq", emit("once", "X", <@i>, a[@i])))',
        "",
    ),
    "hoist": (
        (), True, {},
        'for("i", n, "seq", new("T", seq(for("j", m, "seq", emit("max", "T", <>, b[@j])), emit("once", "X", <@i>, a[@i] * T[]))))',
        "T f64 max",
    ),
    "share": (
        (), True, {},
        'seq(new("T", seq(emit("once", "T", <>, 2.0), emit("add", "x", <>, T[]))), new("T", seq(emit("once", "T", <>, 2.0), emit("add", "x", <>, '
        'T[]))))',
        "T f64 once",
    ),
    "share back": (
        (), False, {},
        'new("T", seq(emit("once", "T", <>, 2.0), seq(emit("add", "x", <>, T[]), emit("add", "x", <>, T[] + 1.0))))',
        "T f64 once",
    ),
    "reduce-loop": (
        (3,), True, {},
        'for("i", n, "seq", emit("once", "X", <@i>, reduce("max", "k", m, A[@i, @k])))',
        "",
    ),
    "reduce-loop-osm": (
        (1, 0), True, {},
        'new("T", seq(emit("once", "T", <>, snd(reduce("osm", "k", n, pair(a[@k], 1.0)))), emit("once", "x", <>, T[])))',
        "T f64 osm",
    ),
    "guard-for": (
        (1, 3), True, {},
        'seq(for("i", n, "seq", emit("add", "X", <@i>, 0.0)), for("i", n, "seq", for("j", m, "seq", guard(@i < 3, emit("add", "X", <@i>, b[@j])))))',
        "",
    ),
    "guard-seq": (
        (3,), True, {},
        'for("i", n, "seq", guard(0 <= @i, seq(emit("once", "X", <@i>, a[@i]), emit("add", "x", <>, a[@i]))))',
        "",
    ),
    "guard-and": (
        (1, 3), True, {},
        'seq(emit("add", "x", <>, 0.0), for("i", n, "seq", guard(1 < @i, guard(@i < 3, emit("add", "x", <>, a[@i])))))',
        "",
    ),
    "guard-split": (
        (3,), True, {},
        'for("i", n, "seq", emit("once", "X", <@i>, select(@i < 2, a[@i], 0.0)))',
        "",
    ),
    "guard-split back": (
        (3,), False, {},
        'for("i", n, "seq", seq(guard(@i < 2, emit("once", "X", <@i>, a[@i])), guard(not (@i < 2), emit("once", "X", <@i>, 0.0))))',
        "",
    ),
    "skip-left": (
        (), True, {},
        'seq(skip(), emit("once", "x", <>, 1.0))',
        "",
    ),
    "skip-right": (
        (), True, {},
        'seq(emit("once", "x", <>, 1.0), skip())',
        "",
    ),
}

# (rule, guard): position, direction, params, body, stages, definitions of lifted axes
BAD = {
    ("lift", "tile"): (
        (), True, {"T": I(0)},
        'for("i", n, "seq", emit("once", "X", <@i>, a[@i]))',
        "", "",
    ),
    ("lift", "noreads"): (
        (1, 1), True, {"T": I(2)},
        'new("L", seq(emit("add", "L", <>, 5), for("i", L[], "seq", seq(emit("add", "L", <>, 1), emit("add", "x", <>, 1.0)))))',
        "L i64 add", "",
    ),
    ("lift", "absent i.o"): (
        (3,), True, {"T": I(2)},
        'for("i.o", n, "seq", for("i", m, "seq", emit("add", "X", <@i.o>, b[@i])))',
        "", "",
    ),
    ("lift", "absent i.i"): (
        (3,), True, {"T": I(2)},
        'for("i.i", n, "seq", for("i", m, "seq", emit("add", "X", <@i.i>, b[@i])))',
        "", "",
    ),
    ("lift", "notin"): (
        (3,), True, {"T": I(2)},
        'for("i.o", n, "seq", for("i", @i.o + 1, "seq", emit("add", "x", <>, a[@i])))',
        "", "",
    ),
    ("interchange", "notin i"): (
        (), True, {},
        'for("i", m, "seq", for("j", @i + 1, "seq", emit("add", "x", <>, A[@i, @j])))',
        "", "",
    ),
    ("interchange", "notin j"): (
        (3,), True, {},
        'for("j", m, "seq", for("i", @j + 1, "seq", for("j", 2, "seq", emit("add", "x", <>, A[@i, @j]))))',
        "", "",
    ),
    ("interchange", "distinct"): (
        (), True, {},
        'for("i", n, "seq", for("i", m, "seq", emit("add", "x", <>, a[@i])))',
        "", "",
    ),
    ("interchange", "noreads"): (
        (1, 1), True, {},
        'new("L", seq(emit("add", "L", <>, 1), for("i", 2, "seq", for("j", L[], "seq", seq(emit("add", "L", <>, 1), emit("add", "x", <>, 1.0))))))',
        "L i64 add", "",
    ),
    ("interchange", "keyed_either"): (
        (1,), True, {},
        'new("T", for("i", 2, "seq", for("j", 2, "seq", seq(guard(@i == 0 and @j == 1, emit("once", "T", <>, 5.0)), guard(@i == 1 and @j == 0, '
        'emit("add", "x", <>, T[]))))))',
        "T f64 once", "",
    ),
    ("fission", "keyed"): (
        (1,), True, {},
        'new("T", for("i", n, "seq", seq(emit("add", "T", <>, a[@i]), emit("once", "X", <@i>, T[]))))',
        "T f64 add", "",
    ),
    ("fission", "keyed backwards"): (
        (1,), False, {},
        'new("T", seq(for("i", n, "seq", emit("add", "T", <>, a[@i])), for("i", n, "seq", emit("once", "X", <@i>, T[]))))',
        "T f64 add", "",
    ),
    ("fission", "keyed at another index"): (
        (1,), False, {},
        'new("T", seq(for("i", n, "seq", emit("once", "T", <@i>, a[@i])), for("i", n, "seq", emit("once", "X", <@i>, T[n - 1 - @i]))))',
        "T f64 once i:n", "",
    ),
    ("fission", "keyed but bound again"): (
        (1,), True, {},
        'new("T", for("i.o", 2, "seq", seq(for("i", n, "seq", emit("add", "T", <@i>, a[@i])), for("i", n, "seq", emit("add", "X", <@i>, T[@i])))))',
        "T f64 add i:n", "i = @i.o*2 + @i.i",
    ),
    ("fission", "keyed by the output"): (
        (), True, {},
        'for("i", n, "seq", seq(emit("add", "x", <>, a[@i]), emit("once", "X", <@i>, x[])))',
        "", "",
    ),
    ("fission", "noreads"): (
        (1, 1), True, {},
        'new("L", seq(emit("add", "L", <>, 2), for("i", L[], "seq", seq(emit("add", "L", <>, 1), emit("add", "x", <>, 1.0)))))',
        "L i64 add", "",
    ),
    ("scope", "keyed_stage"): (
        (), True, {},
        'new("T", for("i", n, "seq", seq(emit("add", "T", <>, a[@i]), emit("once", "X", <@i>, T[]))))',
        "T f64 add", "",
    ),
    ("scope", "noreads"): (
        (1, 1), False, {},
        'new("L", seq(emit("once", "L", <0>, 3), for("i", L[0], "seq", new("L", seq(emit("once", "L", <@i>, 3), emit("add", "x", <>, 1.0))))))',
        "L i64 once i:n", "",
    ),
    ("scope-left", "untouched"): (
        (), True, {},
        'new("T", seq(emit("once", "T", <>, 2.0), emit("once", "x", <>, T[])))',
        "T f64 once", "",
    ),
    ("scope-right", "untouched"): (
        (), True, {},
        'new("T", seq(emit("once", "T", <>, 2.0), emit("once", "x", <>, T[])))',
        "T f64 once", "",
    ),
    ("commute", "disjoint: written then read"): (
        (1,), True, {},
        'new("T", seq(emit("once", "T", <>, 2.0), emit("once", "x", <>, T[])))',
        "T f64 once", "",
    ),
    ("commute", "disjoint: read then written"): (
        (1, 1), True, {},
        'new("T", seq(emit("add", "T", <>, 2.0), seq(emit("once", "x", <>, T[]), emit("add", "T", <>, 1.0))))',
        "T f64 add", "",
    ),
    ("hoist", "notin"): (
        (), True, {},
        'for("i", n, "seq", new("T", seq(emit("once", "T", <>, a[@i]), emit("once", "X", <@i>, T[]))))',
        "T f64 once", "",
    ),
    ("hoist", "writes_only"): (
        (), True, {},
        'for("i", n, "seq", new("T", seq(seq(emit("once", "T", <>, 1.0), emit("add", "x", <>, 1.0)), emit("once", "X", <@i>, T[]))))',
        "T f64 once", "",
    ),
    ("hoist", "unwritten"): (
        (), True, {},
        'for("i", n, "seq", new("T", seq(emit("add", "T", <>, 1.0), seq(emit("once", "X", <@i>, T[]), emit("add", "T", <>, 1.0)))))',
        "T f64 add", "",
    ),
    ("hoist", "unfed"): (
        (1, 1), True, {},
        'new("U", seq(emit("add", "U", <>, 1.0), for("i", n, "seq", new("T", seq(emit("once", "T", <>, U[]), seq(emit("once", "X", <@i>, T[]), '
        'emit("add", "U", <>, 1.0)))))))',
        "T f64 once; U f64 add", "",
    ),
    ("hoist", "noreads"): (
        (1, 1), True, {},
        'new("T", seq(emit("once", "T", <>, 3), for("i", T[], "seq", new("T", seq(emit("once", "T", <>, 1), emit("add", "x", <>, 1.0))))))',
        "T i64 once", "",
    ),
    ("share", "writes_only"): (
        (), True, {},
        'seq(new("T", seq(seq(emit("once", "T", <>, 2.0), emit("add", "x", <>, 1.0)), emit("add", "x", <>, T[]))), new("T", seq(seq(emit("once", '
        '"T", <>, 2.0), emit("add", "x", <>, 1.0)), emit("add", "x", <>, T[]))))',
        "T f64 once", "",
    ),
    ("share", "unwritten"): (
        (), True, {},
        'seq(new("T", seq(emit("add", "T", <>, 2.0), seq(emit("add", "x", <>, T[]), emit("add", "T", <>, 1.0)))), new("T", seq(emit("add", "T", '
        '<>, 2.0), emit("add", "x", <>, T[]))))',
        "T f64 add", "",
    ),
    ("share", "unfed"): (
        (1, 1), True, {},
        'new("U", seq(emit("add", "U", <>, 1.0), seq(new("T", seq(emit("once", "T", <>, U[]), seq(emit("add", "x", <>, T[]), emit("add", "U", <>, '
        '1.0)))), new("T", seq(emit("once", "T", <>, U[]), emit("add", "x", <>, T[]))))))',
        "T f64 once; U f64 add", "",
    ),
    ("reduce-loop", "notin"): (
        (3,), True, {},
        'for("k", n, "seq", emit("once", "X", <@k>, reduce("add", "k", n, a[@k])))',
        "", "",
    ),
    ("reduce-loop-osm", "notin"): (
        (1, 0, 3), True, {},
        'new("T", seq(for("k", n, "seq", emit("once", "T", <@k>, snd(reduce("osm", "k", n, pair(a[@k], 1.0))))), for("i", n, "seq", emit("once", '
        '"X", <@i>, T[@i]))))',
        "T f64 osm k:n", "",
    ),
    ("guard-for", "notin"): (
        (), True, {},
        'for("i", n, "seq", guard(@i < 2, emit("add", "x", <>, a[@i])))',
        "", "",
    ),
    ("guard-for", "unfed"): (
        (1, 1, 0), True, {},
        'new("T", seq(emit("add", "T", <>, 0.0), seq(for("i", n, "seq", guard(T[] < 2.0, emit("add", "T", <>, 1.0))), emit("once", "x", <>, T[]))))',
        "T f64 add", "",
    ),
    ("guard-seq", "unfed"): (
        (1, 1, 1), True, {},
        'new("T", seq(emit("add", "T", <>, 0.0), seq(emit("add", "x", <>, 0.0), guard(T[] < 1.0, seq(emit("add", "T", <>, 1.0), emit("add", "x", '
        '<>, 1.0))))))',
        "T f64 add", "",
    ),
    ("guard-and", "noreads"): (
        (3,), True, {},
        'for("i", n, "seq", guard(@i < 4, guard(0.0 < b[@i], emit("add", "x", <>, 1.0))))',
        "", "",
    ),
    ("guard-split", "unread"): (
        (1, 1, 0), True, {},
        'new("T", seq(emit("add", "T", <>, 1.0), seq(emit("add", "T", <>, select(T[] < 2.0, 5.0, 7.0)), emit("once", "x", <>, T[]))))',
        "T f64 add", "",
    ),
}
