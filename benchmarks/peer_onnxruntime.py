"""ONNX Runtime with bound inputs and outputs (no allocation in a call); for attention its fused MultiHeadAttention operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from cases import Case  # type: ignore[import-not-found]
from onnx import TensorProto, helper, numpy_helper
from worker import Cannot, Run, aligned  # type: ignore[import-not-found]

CONTRIB = "com.microsoft"


def graph(case: Case, a: dict[str, np.ndarray]) -> tuple[list[Any], list[Any], tuple[int, ...]]:
    """(nodes, constants, output shape)."""
    node = helper.make_node

    def constant(name: str, value: Any) -> Any:
        return numpy_helper.from_array(np.asarray(value, case.dtype), name)

    match case.group:
        case "attention" | "attention_causal":
            causal = int(case.group == "attention_causal")
            return [node("MultiHeadAttention", ["Q", "K", "V"], ["out"], domain=CONTRIB, num_heads=1, unidirectional=causal)], [], a["Q"].shape
        case "decode":
            h, _, d = a["K"].shape
            nodes = [
                node("Unsqueeze", ["q", "one"], ["q1"]), node("Transpose", ["K"], ["Kt"], perm=[0, 2, 1]), node("MatMul", ["q1", "Kt"], ["s"]),
                node("Mul", ["s", "c"], ["t"]), node("Softmax", ["t"], ["p"], axis=-1), node("MatMul", ["p", "V"], ["out"]),
            ]  # fmt: skip
            return nodes, [constant("c", d**-0.5), numpy_helper.from_array(np.array([1], np.int64), "one")], (h, 1, d)
        case "rmsnorm":
            n = node("SimplifiedLayerNormalization", ["x", "gain"], ["out"], axis=-1, epsilon=case.scalars["eps"])
            return [n], [], a["x"].shape
        case "softmax":
            return [node("Softmax", ["x"], ["out"], axis=-1)], [], a["x"].shape
        case "gated_mlp":
            nodes = [
                node("MatMul", ["X", "Wg"], ["g"]), node("MatMul", ["X", "Wu"], ["u"]), node("Sigmoid", ["g"], ["s"]), node("Mul", ["g", "s"], ["t"]),
                node("Mul", ["t", "u"], ["hidden"]), node("MatMul", ["hidden", "Wd"], ["out"]),
            ]  # fmt: skip
            return nodes, [numpy_helper.from_array(a[w], w) for w in ("Wg", "Wu", "Wd")], a["X"].shape
        case "matmul" | "matmul64" | "batched_matmul":
            return [node("MatMul", ["A", "B"], ["out"])], [], (*a["A"].shape[:-1], a["B"].shape[-1])
        case "matmul_nt" | "matmul_tn":
            shape = (a["A"].shape[0], a["B"].shape[0]) if case.group == "matmul_nt" else (a["A"].shape[1], a["B"].shape[1])
            return [node("Gemm", ["A", "B"], ["out"], transA=int(case.group == "matmul_tn"), transB=int(case.group == "matmul_nt"))], [], shape
        case "prefix_sum":
            return [node("CumSum", ["x", "axis"], ["out"])], [numpy_helper.from_array(np.array(0, np.int64), "axis")], a["x"].shape
        case other:
            raise Cannot(f"{other} is not written for ONNX Runtime")


def make(case: Case, arrays: dict[str, np.ndarray], peer: str, threads: int, folder: Path) -> Run:
    nodes, constants, shape = graph(case, arrays)
    fixed = {c.name for c in constants}
    kind = TensorProto.DOUBLE if case.dtype == "float64" else TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info(n, kind, list(x.shape)) for n, x in arrays.items() if n not in fixed]
    outputs = [helper.make_tensor_value_info("out", kind, list(shape))]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)]
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, constants), opset_imports=opsets, ir_version=9)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    out = aligned(shape, case.dtype)
    for i in inputs:
        x = arrays[i.name]
        binding.bind_input(i.name, "cpu", 0, x.dtype, x.shape, x.ctypes.data)
    binding.bind_output("out", "cpu", 0, out.dtype, out.shape, out.ctypes.data)
    return (lambda: session.run_with_iobinding(binding)), lambda: {"out": out}
