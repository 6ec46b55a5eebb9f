"""The choices that Inductor's own heuristics could generate for a GEMM, as columns; generated only when chosen.

A template's configs depend on few facts of a problem, so they are asked for once, kept as a table, and scored from
there. Those that are chosen go back through the heuristic that they came from: EVEN_K, TF32, the accumulator, the
epilogue and all else that depends on the problem are Inductor's own facts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from torch._inductor import choices as inductor_choices
from torch._inductor import config as inductor_config
from torch._inductor.kernel_template_choice import KernelTemplateChoice, make_ktc_generator
from torch._inductor.select_algorithm import ExternKernelChoice
from torch._inductor.virtualized import V

from diode.features import ChoiceTable
from diode.features.table import LIBRARY, PERSISTENT, TILED
from diode.integration.conversion import choice_from_ktc
from diode.integration.decision import Remembered
from diode.types import Choice, MMShape, PersistentTMAConfig, TritonGEMMConfig

_LARGEST_BLOCK: Final = 512
"""No block of a template is larger; sizes beyond it have the same configs."""
_FULL_SPACE: Final = ("_get_config_generator", "get_exhaustive_mm_configs")
"""What a heuristic must have for its configs to be asked for apart from their conversion."""


@dataclass(frozen=True)
class HookCall:
    """The arguments of one call of Inductor's template hook."""

    template_choices: dict[str, Iterable[KernelTemplateChoice]]
    kernel_inputs: Any
    templates: Sequence[Any]
    op_name: str
    overrides: dict[str, dict[str, Any]]

    def template(self, uid: str) -> Any:
        return next(template for template in self.templates if template.uid == uid)


class Space(Protocol):
    """The candidates of one template for one problem."""

    uid: str

    @property
    def table(self) -> ChoiceTable: ...

    @property
    def signature(self) -> object:
        """Equal where the same places mean the same candidates."""

    def generate(self, places: Sequence[int]) -> list[KernelTemplateChoice]: ...


class ListedSpace:
    """Few candidates, generated at once: library kernels, splits of K, templates of unknown making."""

    def __init__(self, uid: str, generated: Iterable[KernelTemplateChoice]) -> None:
        self.uid = uid
        self._generated = [ktc for ktc in generated if not _is_out_of_reach(ktc)]
        self._choices: list[Choice] = [choice_from_ktc(ktc) for ktc in self._generated]

    @cached_property
    def table(self) -> ChoiceTable:
        return ChoiceTable.of(self._choices)

    @property
    def signature(self) -> object:
        return (self.uid, tuple(self._choices))

    def generate(self, places: Sequence[int]) -> list[KernelTemplateChoice]:
        return [self._generated[place] for place in places]


@dataclass(frozen=True, eq=False)
class Prepared:
    """What a heuristic would try for all problems of a kind."""

    key: object
    configs: tuple[Any, ...]
    table: ChoiceTable


class TiledSpace:
    """The EXHAUSTIVE configs of one tiled template."""

    def __init__(self, call: HookCall, uid: str, problem: MMShape, prepared: Remembered[Prepared]) -> None:
        self.uid = uid
        self._call = call
        inputs = call.kernel_inputs
        self._heuristic: Any = _heuristic(uid, inputs.device_type, call.op_name)
        key = self._kind_of_problem(problem)
        found = prepared.get(key)
        if found is None:
            found = self._prepare(key)
            prepared.put(key, found)
        self._prepared = found

    @property
    def signature(self) -> object:
        return self._prepared.key

    @property
    def table(self) -> ChoiceTable:
        return self._prepared.table

    def generate(self, places: Sequence[int]) -> list[KernelTemplateChoice]:
        return self._convert([self._prepared.configs[place] for place in places])

    def _kind_of_problem(self, problem: MMShape) -> object:
        sizes = (problem.M, problem.N, problem.K)
        if self._call.kernel_inputs.device_type == "cuda":
            sizes = tuple(min(1 << (size - 1).bit_length(), _LARGEST_BLOCK) if size else 0 for size in sizes)  # type: ignore[assignment]
        facts = (problem.op, problem.a.dtype, problem.out.dtype, problem.layout)
        settings = (
            inductor_config.max_autotune_prune_choices_based_on_shared_mem,
            inductor_config.test_configs.max_mm_configs if hasattr(inductor_config, "test_configs") else None,
        )
        device = str(self._call.kernel_inputs.device())
        return (self.uid, type(self._heuristic).__qualname__, device, *sizes, *facts, *settings)

    def _prepare(self, key: object) -> Prepared:
        configs: list[Any] = []
        everything = self._heuristic.get_exhaustive_mm_configs()

        def keep(*args: Any, **kwargs: Any) -> Iterator[Any]:
            configs.extend(everything(*args, **kwargs))
            return iter(())

        list(self._params(keep))
        kept = tuple(config for config in configs if _fits_registers(config))
        if not kept:
            return Prepared(key, (), ChoiceTable.of([]))
        (example,) = self._convert(kept[:1])
        return Prepared(key, kept, _table_of(kept, choice_from_ktc(example)))

    def _convert(self, configs: Sequence[Any]) -> list[KernelTemplateChoice]:
        call = self._call
        inputs = call.kernel_inputs
        generated = make_ktc_generator(
            template=call.template(self.uid),
            cs=self._params(lambda *args, **kwargs: iter(configs)),
            extra_kwargs=self._heuristic.get_extra_kwargs(inputs, call.op_name),
            overrides=call.overrides.get(self.uid, {}),
            layout=inputs.output_layout(),
            inputs=self._heuristic.adjust_kernel_inputs(inputs, call.op_name),
        )
        converted = list(generated)
        if len(converted) != len(configs):
            raise RuntimeError(f"{self.uid}: Inductor made {len(converted)} choices of {len(configs)} configs")
        return converted

    def _params(self, configs: Callable[..., Iterator[Any]]) -> Any:
        """What the heuristic makes of these configs, in place of those that torch's search space would give it.

        A copy is asked, so neither a setting of the process nor the heuristic itself is touched: other threads compile.
        """
        twin = copy.copy(self._heuristic)
        twin._get_config_generator = lambda: configs
        return twin.get_template_configs(self._call.kernel_inputs, self._call.op_name)


def spaces_of(call: HookCall, problem: MMShape, prepared: Remembered[Prepared]) -> list[Space]:
    """One space per template of a call, in the order of Inductor."""
    spaces: list[Space] = []
    for uid, generated in call.template_choices.items():
        if uid.startswith("triton::"):
            heuristic = _heuristic(uid, call.kernel_inputs.device_type, call.op_name)
            if all(hasattr(heuristic, name) for name in _FULL_SPACE):
                spaces.append(TiledSpace(call, uid, problem, prepared))
                continue
        spaces.append(ListedSpace(uid, generated))
    return spaces


def _heuristic(uid: str, device_type: str, op_name: str) -> Any:
    # Where it is defined has moved with torch 2.15; the choices of every torch import it.
    return vars(inductor_choices)["get_template_heuristic"](uid, device_type, op_name)


def _is_out_of_reach(ktc: KernelTemplateChoice) -> bool:
    """A library kernel that only Python can call, where no Python will be there."""
    template = ktc.template
    return isinstance(template, ExternKernelChoice) and template.cpp_kernel_name is None and V.graph.cpp_wrapper


def has_tiled_template(templates: Iterable[Any]) -> bool:
    return any(template.uid.startswith("triton::") for template in templates)


def freeze_inputs(kernel_inputs: Any) -> None:
    """Fixes the layouts of inputs that are still flexible.

    A template bakes the strides of its inputs in. Inductor checks them again where it benchmarks, and takes a library
    kernel if they have changed; where there is nothing to benchmark, or no library kernel, nobody would notice.
    """
    from torch._inductor.ir import FlexibleLayout, ReinterpretView

    for node in kernel_inputs.nodes():
        inner = getattr(node, "data", node)
        if isinstance(inner, ReinterpretView) or isinstance(node, ReinterpretView):
            continue
        if isinstance(node.maybe_get_layout(), FlexibleLayout):
            node.freeze_layout()


def _fits_registers(config: Any) -> bool:
    """Inductor's own rule for the EXHAUSTIVE space: beyond it, the accumulator alone spills."""
    accumulators = config.kwargs["BLOCK_M"] * config.kwargs["BLOCK_N"] / (32 * config.num_warps)
    return bool(accumulators <= 255)


def _table_of(configs: Sequence[Any], example: Choice) -> ChoiceTable:
    kind = {TritonGEMMConfig: TILED, PersistentTMAConfig: PERSISTENT}.get(type(example))
    if kind is None:
        raise TypeError(f"{example} is no tiled config that diode knows")
    count = len(configs)

    def column(name: str, default: int) -> NDArray[np.float64]:
        return np.array([config.kwargs.get(name, default) for config in configs], dtype=np.float64)

    return ChoiceTable(
        kind=np.full(count, kind, dtype=np.int8),
        block_m=column("BLOCK_M", 0),
        block_n=column("BLOCK_N", 0),
        block_k=column("BLOCK_K", 0),
        stages=np.array([config.num_stages for config in configs], dtype=np.float64),
        warps=np.array([config.num_warps for config in configs], dtype=np.float64),
        group_m=column("GROUP_M", 8),
        k_split=np.ones(count),
        adds_bias_itself=np.zeros(count, dtype=np.bool_),
    )


def is_rankable(space: Space, templates: Iterable[str]) -> bool:
    """Whether a model that was trained on these templates can say anything about the candidates of a space."""
    if not len(space.table):
        return False
    if (space.table.kind == LIBRARY).all():
        return True
    return space.uid in templates
