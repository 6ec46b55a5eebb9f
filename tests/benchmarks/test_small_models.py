"""The models of benchmarks and GPU tests, small enough for a CPU."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from small_models import (
    BertSizes,
    LlamaSizes,
    SmallModel,
    VitSizes,
    bert_layer,
    llama_block,
    small_models,
    small_vit,
    training_step,
)

F32 = torch.float32
TINY = (
    llama_block(LlamaSizes(2, 12, 32, 4, 2, 48), F32),
    small_vit(VitSizes(2, 16, 8, 32, 4, 48), F32),
    bert_layer(BertSizes(2, 12, 32, 4, 48), F32),
)


@pytest.mark.parametrize("model", TINY, ids=lambda model: model.name)
def test_a_compiled_step_gives_what_the_eager_one_does(model: SmallModel):
    module, inputs = model.make("cpu")
    eager = training_step(module, module, inputs)
    torch._dynamo.reset()
    compiled = training_step(torch.compile(module, backend="aot_eager", fullgraph=True), module, inputs)
    assert len(eager) == 1 + len(list(module.parameters()))
    torch.testing.assert_close(compiled, eager)


class Products(TorchDispatchMode):
    """The GEMMs that are run inside."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen |= {function.overloadpacket.__name__} & {"mm", "addmm", "bmm", "baddbmm"}
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("model", TINY, ids=lambda model: model.name)
def test_a_step_consists_of_the_products_that_it_says(model: SmallModel):
    module, inputs = model.make("cpu")
    with Products() as products:
        training_step(module, module, inputs)
    assert products.seen == set(model.ops)


@pytest.mark.parametrize("model", TINY, ids=lambda model: model.name)
def test_every_parameter_has_a_gradient(model: SmallModel):
    module, inputs = model.make("cpu")
    _, *gradients = training_step(module, module, inputs)
    names = [name for name, _ in module.named_parameters()]
    assert [name for name, gradient in zip(names, gradients, strict=True) if not gradient.abs().max() > 1e-6] == []


@pytest.mark.parametrize("model", TINY, ids=lambda model: model.name)
def test_each_making_has_the_same_numbers(model: SmallModel):
    (first, inputs), (second, again) = model.make("cpu"), model.make("cpu")
    assert torch.equal(inputs, again)
    torch.testing.assert_close(first.state_dict(), second.state_dict(), rtol=0, atol=0)


def test_a_token_of_the_llama_block_sees_no_later_one():
    module, inputs = TINY[0].make("cpu")
    changed = inputs.clone()
    changed[:, 7:] += 1.0
    before, after = module(inputs), module(changed)
    torch.testing.assert_close(after[:, :7], before[:, :7])
    assert not torch.allclose(after[:, 7:], before[:, 7:])


def test_places_matter_to_the_llama_block():
    """Attention alone does not know in which order earlier tokens came; rotation tells it."""
    module, inputs = TINY[0].make("cpu")
    swapped = inputs[:, [1, 0, *range(2, inputs.shape[1])]]
    assert not torch.allclose(module(swapped)[:, -1], module(inputs)[:, -1], atol=1e-4)


def test_patches_are_those_of_a_convolution():
    module, images = TINY[1].make("cpu")
    weight = module.embedding.weight.view(32, 3, 8, 8)
    expected = torch.nn.functional.conv2d(images, weight, module.embedding.bias, stride=8).flatten(2).transpose(1, 2)
    seen: list[torch.Tensor] = []
    module.embedding.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    module(images)
    torch.testing.assert_close(seen[0], expected)


def test_the_models_are_of_the_promised_kinds():
    assert [model.name for model in small_models()] == ["Llama-style block", "ViT", "BERT layer"]
    assert {model.dtype for model in small_models()} == {torch.bfloat16, torch.float16}
