"""Is the sweep's timer right from 3 us to 5 ms? Compares it with independent ways to time the same kernels.

For each kernel: the sweep's timer (median and minimum of interleaved, flushed samples), the same again, Inductor's own
benchmarker, the profiler's record of when the GPU began and ended the kernel, and the difference between a CUDA graph
of flush and kernel and one of flushes alone.
Usage: python benchmarks/timing.py --output benchmarks/results/timing_h200.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch._inductor.runtime.benchmarking import InductorBenchmarker
from torch.profiler import ProfilerActivity, profile

from diode.collection.gpu.clock import ClockReader
from diode.collection.gpu.launcher import KernelLoader
from diode.collection.gpu.operands import Operands
from diode.collection.gpu.timer import InterleavedTimer
from diode.collection.kernels.compiler import CompileTarget, compile_kernel
from diode.collection.planning import Planner, PlanRequest
from diode.integration.device import current_hardware
from diode.storage.atomic import write_atomically
from diode.types import AtenChoice, MMShape, TritonGEMMConfig
from provenance import provenance

PROBLEMS = [
    MMShape.of("mm", 64, 64, 64),
    MMShape.of("mm", 16, 4096, 1024, layout="NT"),
    MMShape.of("mm", 1376, 80, 216, dtype="float16"),
    MMShape.of("mm", 512, 512, 512, layout="NT"),
    MMShape.of("mm", 16, 8192, 4096, layout="NT"),
    MMShape.of("mm", 1024, 2048, 1024, layout="NT"),
    MMShape.of("mm", 2048, 2048, 2048, layout="NT"),
    MMShape.of("mm", 4096, 4096, 1024, layout="NT"),
    MMShape.of("mm", 4096, 4096, 4096, layout="NT"),
    MMShape.of("mm", 8192, 8192, 2048, layout="NT"),
    MMShape.of("mm", 8192, 8192, 8192, layout="NT"),
    MMShape.of("addmm", 256, 3072, 768, layout="NT"),
    MMShape.of("addmm", 4096, 4096, 4096, layout="NT"),
    MMShape.of("bmm", 128, 128, 64, B=96),
    MMShape.of("bmm", 1024, 1024, 128, B=64, layout="NT"),
]
CONFIGS = [(16, 32, 64, 3, 2), (32, 64, 128, 3, 4), (64, 64, 64, 4, 4), (128, 128, 64, 3, 4), (128, 256, 64, 3, 8)]
ROUNDS = 15
GRAPH_REPEATS = 20


def graph_us(actions: list[Callable[[], object]], replays: int = 7) -> float:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        for action in actions:
            action()
    times = []
    for _ in range(replays):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return float(np.median(times))


def profiled_us(launch: Callable[[], object], flush: Callable[[], object], count: int = 20) -> float:
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as recorded:
        for _ in range(count):
            flush()
            launch()
        torch.cuda.synchronize()
    durations: dict[str, list[float]] = {}
    for event in recorded.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            durations.setdefault(event.name, []).append(event.time_range.elapsed_us())
    kernels = {name: times for name, times in durations.items() if "FillFunctor" not in name and "Memset" not in name}
    return float(sum(np.median(times) * round(len(times) / count) for times in kernels.values()))


def timed(
    timer: InterleavedTimer, launches: list[Callable[[], object]], clock: ClockReader
) -> tuple[NDArray[np.float64], int | None]:
    """Every pass of the sweep's timer, and the clock right after the last."""
    passes = np.array([timer.once(launches) for _ in range(ROUNDS)])
    return passes, clock.read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    device = torch.device("cuda", 0)
    torch.cuda.set_stream(torch.cuda.Stream(device))  # the default stream cannot be captured into a graph
    hardware = current_hardware(str(device))
    timer = InterleavedTimer(device, hardware.l2_bytes or 0)
    loader = KernelLoader(device, hardware.shared_memory_per_block or 0)
    inductor = InductorBenchmarker()
    clock = ClockReader(device)
    flush_buffer = torch.empty((hardware.l2_bytes or 0) // 4, dtype=torch.int32, device=device)
    target = CompileTarget.of(hardware)
    planner = Planner()
    rows = []
    titles = ("sweep", "again", "min", "inductor", "profiler", "graph")
    print(f"{'problem':44} {'kernel':34} {' '.join(f'{title:>8}' for title in titles)}  us")
    for problem in PROBLEMS:
        operands = Operands(problem, device)
        template = "triton::bmm" if problem.op == "bmm" else "triton::mm"
        wanted = [
            TritonGEMMConfig(template, *blocks, stages, warps, even_k=problem.K % blocks[2] == 0)
            for *blocks, stages, warps in CONFIGS
        ]
        planned = planner.plan(PlanRequest(problem, hardware, only=(AtenChoice(problem.op), *wanted), form="static"))
        names, launches = [], []
        for choice in planned.choices:
            if choice.kernel is None:
                launch = operands.backend_launch(choice.choice)
            else:
                kernel = compile_kernel(choice.kernel.source, target)
                pointers = [operands.pointer(name) for name, kind in choice.kernel.source.signature if kind[0] == "*"]
                launch = loader.launch(kernel, choice.kernel.source.signature, choice.kernel.grid, tuple(pointers))
            assert launch is not None
            launch()
            torch.cuda.synchronize()
            names.append(str(choice.choice))
            launches.append(launch)
        first, first_mhz = timed(timer, launches, clock)
        again, again_mhz = timed(timer, launches, clock)
        for number, (name, launch) in enumerate(zip(names, launches, strict=True)):
            flush = flush_buffer.zero_
            both, alone = graph_us([flush, launch] * GRAPH_REPEATS), graph_us([flush] * GRAPH_REPEATS)
            row = {
                "problem": str(problem),
                "choice": name,
                "sweep_us": float(np.nanmedian(first[:, number])),
                "sweep_again_us": float(np.nanmedian(again[:, number])),
                "sweep_min_us": float(np.nanmin(first[:, number])),
                "sweep_iqr": float(np.subtract(*np.nanpercentile(first[:, number], (75, 25)))),
                "inductor_min_us": float(inductor.benchmark_gpu(launch)) * 1e3,
                "profiler_us": profiled_us(launch, flush),
                "graph_us": (both - alone) / GRAPH_REPEATS,
                "sweep_mhz": (first_mhz, again_mhz),
                "alone_mhz": clock.read(),
            }
            rows.append(row)
            columns = ("sweep_us", "sweep_again_us", "sweep_min_us", "inductor_min_us", "profiler_us", "graph_us")
            print(f"{problem!s:44} {name:34} " + " ".join(f"{row[column]:8.2f}" for column in columns), flush=True)
        result = {**provenance(hardware), "rounds": ROUNDS, "discarded_samples": timer.discarded, "rows": rows}
        write_atomically(arguments.output, json.dumps(result, indent=1).encode() + b"\n")
    print(f"{len(rows)} kernels, {timer.discarded} samples discarded")


if __name__ == "__main__":
    main()
