"""One product for several projections: the numbers of one for each, and no copy of their weights is saved."""

import pytest
import torch
from torch import nn

from fairseq_poolingformer.attention import joined
from tests.attention.calls import with_gradients
from tests.attention.test_modules import C, build, example


@pytest.fixture
def kernels_run(monkeypatch):
    """The branch of GPUs, which needs no kernels here."""
    monkeypatch.setattr(joined, "runs_on", lambda x: True)


@pytest.mark.parametrize("biased", ["", "q", "k", "v", "q v", "q k v", "q k v global_k", "q k v global_k global_v"])
def test_projections_by_one_product_of_which_some_have_a_bias(biased, monkeypatch):
    """Outputs and gradients where kernels run, whose branch needs none, and where they do not."""
    layer = build(pooled_window=None, pooling=None, separate_global_projections="global" in biased, bias=False)
    for name in biased.split():
        setattr(layer, f"{name}_proj", torch.nn.Linear(C, C).double())
    x, global_mask, padding = example()
    results, inputs = [], [x.requires_grad_(), *layer.parameters()]
    for one_product in (False, True):
        monkeypatch.setattr(joined, "runs_on", lambda x, one_product=one_product: one_product)
        results.append(with_gradients(layer(x, global_mask=global_mask, key_padding_mask=padding), inputs))
    torch.testing.assert_close(*results, atol=1e-12, rtol=0)


@pytest.mark.usefixtures("kernels_run")
@pytest.mark.parametrize("bias", [True, False])
def test_gradients_of_any_order(bias):
    """Gradients of all parameters, and of each alone, as where the others are frozen."""
    modules = [nn.Linear(3, 3, bias=bias).double() for _ in range(2)]
    parameters = [x for name in ("weight", "bias")[: 1 + bias] for x in (getattr(m, name) for m in modules)]
    inputs = [torch.randn(2, 4, 3, dtype=torch.float64), *(x.detach() for x in parameters)]
    for wanted in (*([number] for number in range(len(inputs))), range(len(inputs))):
        leaves = [x.clone().requires_grad_(number in wanted) for number, x in enumerate(inputs)]

        def run(x, *parameters):
            return joined._OneProduct.apply(x, 2, *parameters)

        assert torch.autograd.gradcheck(run, leaves)
        assert torch.autograd.gradgradcheck(run, leaves)


@pytest.mark.usefixtures("kernels_run")
@pytest.mark.parametrize("autocast", [False, True])
def test_nothing_but_the_input_is_saved_beside_the_parameters(autocast):
    modules, x, saved = [nn.Linear(64, 64) for _ in range(3)], torch.randn(2, 5, 64, requires_grad=True), {}

    def pack(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x), torch.autocast("cpu", enabled=autocast):
        outputs = joined.projected(x, modules, [])
    parameters = {p.data_ptr() for module in modules for p in module.parameters()}
    (saved_input,) = (tensor for place, tensor in saved.items() if place not in parameters)
    dtype = torch.bfloat16 if autocast else torch.float32
    assert (saved_input.shape, saved_input.dtype) == (x.shape, dtype)
    with torch.autocast("cpu", enabled=autocast):
        expected = [module(x) for module in modules]
    leaves, results = [x, *(p for module in modules for p in module.parameters())], []
    for each in (outputs, expected):
        assert {out.dtype for out in each} == {dtype}
        results.append([*each, *torch.autograd.grad([out.float().sin().sum() for out in each], leaves)])
    tolerance = {"atol": 0.05, "rtol": 0.02} if autocast else {"atol": 1e-4, "rtol": 1e-5}
    torch.testing.assert_close(*results, **tolerance)
