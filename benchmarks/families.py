"""Do kernels that serve a family of sizes compile to the same as static ones? Needs no GPU.

For many (problem, config) pairs both forms are compiled for a described H200 and compared: shared memory, registers,
stack (spills), asynchronous copies, tensor-core instructions, vector stores. The static form is also compared, letter
by letter, with what Inductor itself renders. Usage:
python benchmarks/families.py --pairs 240 --output benchmarks/results/families_sm90.json
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import triton.backends.nvidia

from diode.collection.kernels.compiler import CompileTarget, triton_compile
from diode.collection.kernels.pattern import KernelSource
from diode.collection.planning import Planner, surely_illegal
from diode.collection.samplers import FamilySampler, LogNormalSampler
from diode.integration.lowering import lowered
from diode.types import Hardware, MMShape, PersistentTMAConfig, TritonGEMMConfig
from diode.types.known_hardware import H200
from provenance import provenance

COUNTED = {
    "async_copies": r"cp\.async\.c[ag]",
    "tensor_maps": r"cp\.async\.bulk\.tensor",
    "wgmma": r"wgmma\.mma_async",
    "mma": r"mma\.sync",
    "global_loads": r"ld\.global",
    "vector_stores": r"st\.global(\.\w+)*\.v[48]",
}
CUOBJDUMP = Path(triton.backends.nvidia.__file__).parent / "bin" / "cuobjdump"


def compiled_facts(source: KernelSource, target: CompileTarget) -> dict[str, int]:
    compiled = triton_compile(source, target, "gate")
    text = compiled.asm["ptx"]
    facts = {name: len(re.findall(pattern, text)) for name, pattern in COUNTED.items()}
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.kernel)
        file.flush()
        usage = subprocess.run([CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    assert found is not None
    return {**facts, "shared": compiled.metadata.shared, "registers": int(found[1]), "stack": int(found[2])}


def problems(seed: int) -> list[MMShape]:
    sampled = FamilySampler(LogNormalSampler(seed), group_size=1).sample(60)
    usual = [
        MMShape.of("mm", m, n, k, layout=layout, dtype=dtype)
        for m, n, k in ((16, 4096, 4096), (128, 6144, 4096), (1024, 2048, 1024), (4096, 4096, 512), (1000, 2008, 1000))
        for layout in ("NT", "NN", "TN")
        for dtype in ("bfloat16", "float16")
    ]
    return [*sampled, *usual]  # type: ignore[list-item]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=240)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    hardware: Hardware = H200
    target = CompileTarget.of(hardware)
    lots = random.Random(arguments.seed)
    planner = Planner()
    rows: list[dict[str, Any]] = []
    texts = Counter[str]()
    candidates = problems(arguments.seed)
    while len(rows) < arguments.pairs:
        problem = lots.choice(candidates)
        with lowered(problem, "EXHAUSTIVE", hardware) as generated:
            tiled = [
                candidate
                for candidate in generated
                if isinstance(candidate.choice, TritonGEMMConfig | PersistentTMAConfig)
                and surely_illegal(problem, candidate.choice, hardware) is None
            ]
            if not tiled:
                continue
            picked = lots.choice(tiled)
            rendered = picked.render()
        config = picked.choice
        assert isinstance(config, TritonGEMMConfig | PersistentTMAConfig)
        assert rendered is not None
        pattern = planner.pattern(problem, config, hardware)
        static = pattern.static(problem, config)
        texts["same" if static.text == rendered.source else "different"] += 1
        facts = [compiled_facts(source, target) for source in (static, pattern.family(problem, config))]
        differing = [name for name in facts[0] if facts[0][name] != facts[1][name]]
        rows.append(
            {
                "problem": str(problem),
                "choice": str(config),
                "template": config.template,
                "static": facts[0],
                "family": facts[1],
            }
        )
        print(f"{len(rows):4} {problem!s:44} {config!s:54} {' '.join(differing) or 'same'}", flush=True)
    same = {name: sum(row["static"][name] == row["family"][name] for row in rows) for name in rows[0]["static"]}
    spills = [row for row in rows if (row["static"]["stack"] == 0) != (row["family"]["stack"] == 0)]
    registers = sorted(row["family"]["registers"] - row["static"]["registers"] for row in rows)
    summary = {
        "pairs": len(rows),
        "text_same_as_inductor": texts["same"],
        "same": same,
        "spills_in_one_only": len(spills),
        "register_difference_p05_p50_p95": [registers[int(len(registers) * share)] for share in (0.05, 0.5, 0.95)],
    }
    arguments.output.write_text(json.dumps({**provenance(hardware), "summary": summary, "rows": rows}, indent=1) + "\n")
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
