"""Decisions of the CUDA lowering: what it refuses, where it puts storage and barriers, what it makes of odd placements."""

from __future__ import annotations

import gpu_kernels as g
import numpy as np
import pytest
from gpu_kernels import emit, new, over
from onf import array, block, kernel, stage

from moa_rewrite.build import simt
from moa_rewrite.emit import Options
from moa_rewrite.emit.barriers import Placer
from moa_rewrite.emit.cuda import print_cuda
from moa_rewrite.emit.cuda_program import Barrier, steps
from moa_rewrite.emit.lower_cuda import lower_cuda
from moa_rewrite.errors import MoaError
from moa_rewrite.terms import Term, axis, free_axes, size


def row_sum(place: str):
    body = over(f"i:n:grid; j:m:{place}", emit("add", "S[@i]", "X[@i, @j]"))
    return kernel("row_sum", "n m", [array("X", "f32", "n", "m")], [array("S", "f32", "n")], body)


def call(k, folder, sizes, inputs, shape, dtype=np.float32):
    return simt.build(print_cuda(lower_cuda(k)).cu_text, folder, k.name).call(k.name, sizes, inputs, [np.empty(shape, dtype)])


def good(r):
    assert r.code == 0 and not r.faults and not any(r.unwritten) and not r.leaked, (r.code, r.faults, r.messages)
    return r.outputs[0]


def ramp(*shape):
    return np.arange(1, np.prod(shape, dtype=int) + 1, dtype=np.float32).reshape(shape)


@pytest.mark.parametrize("place", ["block", "grid"])
def test_threads_that_would_add_into_one_cell_are_refused(place):
    with pytest.raises(MoaError, match=r"MOA0731.*differ in j only"):
        lower_cuda(row_sum(place))


def test_a_stage_of_a_thread_needs_a_small_constant_size(tmp_path):
    def staged(extent, place):
        body = over(f"i:n:{place}", new("T", block(over(f"j:{extent}:seq", emit("once", "T[@i, @j]", "X[@i] + 1.0")),
                                                  over(f"j:{extent}:seq", emit("add", "S[@i]", "T[@i, @j]")))))  # fmt: skip
        return kernel("staged", "n m", [array("X", "f32", "n")], [array("S", "f32", "n")], body, [stage("T", "f32", "i j", f"n; {extent}", "once")])

    with pytest.raises(MoaError, match="MOA0732"):
        lower_cuda(staged("m", "block"))
    with pytest.raises(MoaError, match="MOA0732"):
        lower_cuda(staged("257", "block"))  # 1028 bytes
    assert np.array_equal(good(call(staged("256", "block"), tmp_path / "a", [3, 0], [ramp(3)], 3)), 256 * (ramp(3) + 1))
    assert np.array_equal(good(call(staged("m", "seq"), tmp_path / "b", [3, 5], [ramp(3)], 3)), 5 * (ramp(3) + 1))  # i in turn, T in shared memory


def test_placements_at_odd_places_run_in_sequence(tmp_path):
    x = ramp(3, 4)
    body = over("i:n:block", block(over("j:m:grid", emit("once", "Y[@i, @j]", "2.0 * X[@i, @j]")), over("j:m:block", emit("once", "Z[@i, @j]", "X[@i, @j]"))))
    k = kernel("odd", "n m", [array("X", "f32", "n", "m")], [array("Y", "f32", "n", "m"), array("Z", "f32", "n", "m")], body)
    program = lower_cuda(k)
    assert any("run in sequence" in n.text for n in program.notes)
    r = simt.build(print_cuda(program).cu_text, tmp_path).call("odd", [3, 4], [x], [np.empty_like(x), np.empty_like(x)])
    assert np.array_equal(good(r), 2 * x) and np.array_equal(r.outputs[1], x)
    # a grid loop inside a sequential one: no launch per iteration, its iterations go to threads
    body = over("t:2:seq; i:n:grid; j:m:block", emit("add", "Y[@i, @j]", "X[@i, @j]"))
    k = kernel("inner_grid", "n m", [array("X", "f32", "n", "m")], [array("Y", "f32", "n", "m")], body)
    assert [launch.grid for launch in lower_cuda(k).launches] == [(), ()]
    assert np.array_equal(good(call(k, tmp_path, [3, 4], [x], (3, 4))), 2 * x)


def test_a_grid_extent_that_depends_on_another_stays_inside(tmp_path):
    body = over("i:n:grid; j:@i + 1:grid", emit("once", "Y[@i, @j]", "1.0"))
    body = block(over("i:n:grid; j:n:block", emit("once", "Z[@i, @j]", "2.0")), body)
    k = kernel("triangle", "n", [], [array("Y", "f32", "n", "n"), array("Z", "f32", "n", "n")], body)
    program = lower_cuda(k)
    assert [len(launch.grid) for launch in program.launches] == [1, 1]
    r = simt.build(print_cuda(program).cu_text, tmp_path).call("triangle", [4], [], [np.empty((4, 4), np.float32)] * 2)
    assert r.code == 0 and not r.faults and r.unwritten == [4 * 6, 0] and np.array_equal(np.tril(r.outputs[0]), np.tri(4))


def test_scratch_too_large_is_refused_and_nothing_leaks(tmp_path):
    body = new("A B", block(
        over("i:n:grid; j:m:block", emit("once", "A[@i, @j]", "X[@i] * Y[@j]")),
        over("i:n:grid; j:m:block", emit("once", "B[@i, @j]", "A[@i, @j]")),
        over("i:n:grid; j:m:seq", emit("add", "S[@i]", "B[@i, @j]")),
    ))  # fmt: skip
    k = kernel("big", "n m", [array("X", "f32", "n"), array("Y", "f32", "m")], [array("S", "f32", "n")], body,
               [stage("A", "f32", "i j", "n; m", "once"), stage("B", "f32", "i j", "n; m", "once")])  # fmt: skip
    lib = simt.build(print_cuda(lower_cuda(k)).cu_text, tmp_path)
    small = lib.call("big", [3, 4], [ramp(3), ramp(4)], [np.empty(3, np.float32)])
    assert np.array_equal(good(small), ramp(3) * 10)
    large = lib.call("big", [13_000, 13_000], [ramp(13_000), ramp(13_000)], [np.empty(13_000, np.float32)])  # A fits, B does not
    assert large.code == 2 and large.leaked == 0 and not large.launches


def test_sizes_compiled_in(tmp_path):
    lib = simt.build(print_cuda(lower_cuda(g.stencil(), Options(fix={"m": 4}))).cu_text, tmp_path)
    x = ramp(5, 4)
    np.testing.assert_allclose(good(lib.call("stencil", [5, 4], [x], [np.empty_like(x)])), g.stencil_answer(x), rtol=1e-6)
    assert lib.call("stencil", [4, 5], [x], [np.empty_like(x)]).code == 1


def in_one_block(k, folder, sizes, inputs, shape):
    """The kernel with all blocks of the grid run by one block in turn."""
    text = print_cuda(lower_cuda(k)).cu_text.replace("<<<moarw_grid(moarw_blocks)", "<<<1")
    return good(simt.build(text, folder, k.name).call(k.name, sizes, inputs, [np.empty(shape, np.float32)]))


def test_a_box_whose_inner_extent_changes_between_rounds_needs_a_barrier(tmp_path):
    """Cell (i, j) belongs to another thread in each round, though both rounds run over a box of the same shape in the text."""
    body = over("b:1:grid", new("T", block(
        over("r:2:seq", over("i:9:block; j:3 + @r:block", emit("once", "T[@i, @j]", "X[@i] + @r"))),
        over("i:9:block; j:4:block", emit("once", "Y[@i, @j]", "T[@i, @j]")),
    )))  # fmt: skip
    k = kernel("rounds", "", [array("X", "f32", "9")], [array("Y", "f32", "9", "4")], body, [stage("T", "f32", "i j", "9; 4", "once")])
    assert np.array_equal(good(call(k, tmp_path, [], [ramp(9)], (9, 4))), np.stack([ramp(9) + 1] * 4, axis=1))


def test_a_box_whose_inner_extent_changes_between_blocks_needs_a_barrier_at_the_end(tmp_path):
    box = "i:9:block; j:3 + @b:block"
    body = over("b:2:grid", new("T", block(
        over(box, emit("once", "T[@i, @j]", "X[@i]")),
        over(f"r:2:seq; {box}", emit("add", "Y[@b, @i, @j]", "T[@i, @j]")),
    )))  # fmt: skip
    k = kernel("blocks", "", [array("X", "f32", "9")], [array("Y", "f32", "2", "9", "4")], body, [stage("T", "f32", "i j", "9; 4", "once")])
    want = np.stack([2 * ramp(9)] * 4, axis=1)
    y = in_one_block(k, tmp_path, [], [ramp(9)], (2, 9, 4))
    assert np.array_equal(y[1], want) and np.array_equal(y[0], want * [1, 1, 1, 0])


def test_a_step_that_meets_two_cells_waits(tmp_path):
    body = over("b:1:grid", new("T", block(
        over("i:n:block", emit("once", "T[@i]", "X[@i]")),
        over("i:n:block", emit("once", "Y[@i]", "T[@i] + T[n - 1 - @i] + T[(@i + 1) % n]")),
    )))  # fmt: skip
    k = kernel("two_cells", "n", [array("X", "f32", "n")], [array("Y", "f32", "n")], body, [stage("T", "f32", "i", "n", "once")])
    x = ramp(100)
    assert np.array_equal(in_one_block(k, tmp_path, [100], [x], 100), x + x[::-1] + np.roll(x, -1))


def test_cells_that_tell_the_indices_of_a_box_apart():
    i, j, r = (axis(a) for a in "ijr")
    lifted = {"k": frozenset("ri"), "ij": frozenset("ij")}
    placer = Placer(lambda b: True, lambda e: frozenset().union(*(lifted.get(a, frozenset([a])) for a in free_axes(e))), frozenset())
    box = (("i", size("n")), ("j", size("m")))
    assert placer.owns(box, (i, j)) and placer.owns(box, (j, r, i)) and placer.owns(box, (axis("k"), j))
    assert not placer.owns(box, (i,)) and not placer.owns(box, (axis("ij"),)) and not placer.owns(box, (Term("add", i, j), j))


def test_loops_that_depend_on_what_they_wrote_stay_in_sequence(tmp_path):
    sums = over("b:1:grid", new("T", block(
        over("i:n:seq", emit("once", "T[@i]", "X[@i] + select(0 < @i, T[@i - 1], 0.0)")),
        over("i:n:block", emit("once", "Y[@i]", "T[@i]")),
    )))  # fmt: skip
    k = kernel("running", "n", [array("X", "f32", "n")], [array("Y", "f32", "n")], sums, [stage("T", "f32", "i", "n", "once")])
    assert np.array_equal(good(call(k, tmp_path / "a", [50], [ramp(50)], 50)), np.cumsum(ramp(50)))
    pairs = over("i:n:seq", block(emit("add", "Y[@i]", "X[@i]"), emit("add", "Y[@i + 1]", "X[@i]")))
    k = kernel("pairs", "n", [array("X", "f32", "n")], [array("Y", "f32", "n + 1")], pairs)
    assert np.array_equal(good(call(k, tmp_path / "b", [50], [ramp(50)], 51)), np.append(ramp(50), 0) + np.append(0, ramp(50)))


def test_two_negative_extents_make_no_box(tmp_path):
    body = over("i:n - 5:block; j:n - 5:block", emit("once", "Y[@i, @j]", "1.0"))
    k = kernel("negative", "n", [], [array("Y", "f32", "n", "n")], body)
    r = call(k, tmp_path, [3], [], (3, 3))
    assert r.code == 0 and not r.faults and r.unwritten == [36]


def test_no_barrier_between_steps_that_each_thread_takes_at_its_own_cell(tmp_path):
    body = over("b:1:grid", new("T", block(
        over("i:n:block", emit("once", "T[@i]", "X[@i] + 1.0")),
        over("r:3:seq; i:n:block", emit("once", "T[@i]", "T[@i] * 2.0")),
        over("i:n:block", emit("once", "Y[@i]", "T[@i]")),
    )))  # fmt: skip
    k = kernel("own", "n", [array("X", "f32", "n")], [array("Y", "f32", "n")], body, [stage("T", "f32", "i", "n", "once")])
    (launch,) = lower_cuda(k).launches
    assert not any(isinstance(n, Barrier) for n in steps(launch.body))
    assert np.array_equal(good(call(k, tmp_path, [700], [ramp(700)], 700)), 8 * (ramp(700) + 1))


def test_nests_over_one_box_are_fused_and_their_cells_become_registers(tmp_path):
    body = over("b:1:grid", new("T U", block(
        over("i:n:block", emit("once", "T[@i]", "X[@i] + 1.0")),
        over("i:n:block", emit("once", "U[@i]", "T[@i] * 2.0")),
        over("i:n:block", emit("once", "Y[@i]", "U[n - 1 - @i]")),
    )))  # fmt: skip
    k = kernel("fused", "n", [array("X", "f32", "n")], [array("Y", "f32", "n")], body, [stage(a, "f32", "i", "n", "once") for a in "TU"])
    (launch,) = lower_cuda(k).launches
    assert [b.source for b in launch.shared] == ["U"]  # T is a register; U is read by other threads, so its nest is not fused
    assert [n.why if isinstance(n, Barrier) else type(n).__name__ for n in steps(launch.body)] == ["Threads", "U", "Threads", "the next block of the grid"]
    assert np.array_equal(good(call(k, tmp_path, [300], [ramp(300)], 300)), 2 * (ramp(300)[::-1] + 1))


def test_a_cell_read_before_it_is_stored_stays_shared():
    body = over("b:1:grid", new("T", block(
        over("r:3:seq; i:n:block", emit("add", "T[@i]", "X[@i]")),
        over("i:n:block", emit("once", "Y[@i]", "T[@i]")),
    )))  # fmt: skip
    k = kernel("kept", "n", [array("X", "f32", "n")], [array("Y", "f32", "n")], body, [stage("T", "f32", "i", "n", "add")])
    assert [b.source for b in lower_cuda(k).launches[0].shared] == ["T"]


def test_block_size_follows_the_largest_nest():
    assert [launch.threads for launch in lower_cuda(g.stencil()).launches] == [256]
    body = over("i:n:grid; j:min(40, m):block", emit("once", "Y[@i, @j]", "1.0"))
    assert lower_cuda(kernel("small", "n m", [], [array("Y", "f32", "n", "m")], body)).launches[0].threads == 64
