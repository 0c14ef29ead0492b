"""Trajectories of the optimizers beside torch's own, for every option."""

from __future__ import annotations

import copy
import os
import pickle
from typing import Any

import pytest
import torch
from trajectories import (
    MATRICES,
    SHAPES,
    Gradients,
    Parameters,
    difference,
    parameters,
    states,
    trajectory,
)

from anymetal import optim
from anymetal.launch.guarded import watched
from anymetal.ops.optimizers import adam_step_, tables
from anymetal.ops.optimizers.tables import check_states

BOUND = 2e-6
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {}),
    ("SGD", {"lr": 0.05, "weight_decay": 0.1, "maximize": True}),
    ("SGD", {"lr": 0.05, "momentum": 0.9}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.05, "momentum": 0.8, "nesterov": True, "maximize": True}),
    ("SGD", {"lr": torch.tensor(0.05), "weight_decay": torch.tensor(0.1)}),
    ("Adam", {}),
    ("Adam", {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.01, "amsgrad": True, "maximize": True}),
    ("Adam", {"lr": torch.tensor(0.01), "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Adam", {"betas": (0.0, 0.999)}),
    ("AdamW", {}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.3, "amsgrad": True}),
    ("AdamW", {"lr": 0.01, "maximize": True, "foreach": False, "capturable": False}),
    ("AdamW", {"betas": (torch.tensor(0.9), torch.tensor(0.98))}),
    ("Muon", {}),
    ("Muon", {"lr": 0.02, "nesterov": False, "adjust_lr_fn": "match_rms_adamw"}),
    ("Muon", {"momentum": 0.8, "weight_decay": 0.0, "ns_steps": 3, "eps": 1e-5}),
]


def of_name(name: str, dtype: torch.dtype = torch.float32) -> Parameters:
    return parameters(MATRICES if name == "Muon" else SHAPES, dtype)


@pytest.mark.parametrize(
    ("name", "options"), OPTIONS, ids=[f"{n}-{'-'.join(o) or 'plain'}" for n, o in OPTIONS]
)
def test_100_steps_are_torchs(name: str, options: dict[str, Any]) -> None:
    mine, theirs = of_name(name), of_name(name)
    # torch's small products of bfloat16 are slow on processors: 100 steps of Muon take 10 seconds.
    steps = 10 if name == "Muon" and os.environ.get("ANYMETAL_TEST_ALL") != "1" else 100
    trajectory(lambda params: getattr(optim, name)(params, **options), mine, steps)
    trajectory(lambda params: getattr(torch.optim, name)(params, **options), theirs, steps)
    assert difference(mine, theirs) <= BOUND


class TorchsLion(torch.optim.Optimizer):
    """Lion's formula in torch's operators."""

    def __init__(self, params: Parameters, sign: float) -> None:
        super().__init__(params, {"lr": 0.01})
        self.sign = sign

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for param in self.param_groups[0]["params"]:
            momentum = self.state[param].setdefault("exp_avg", torch.zeros_like(param))
            grad = self.sign * param.grad
            direction = momentum.lerp(grad, 1 - 0.95).sign()
            param.mul_(1 - 0.01 * 0.1).sub_(0.01 * direction)
            momentum.lerp_(grad, 1 - 0.98)


@pytest.mark.parametrize("maximize", [False, True])
def test_lion_is_its_formula(maximize: bool) -> None:
    mine, theirs = parameters(), parameters()
    options: dict[str, Any] = {"lr": 0.01, "betas": (0.95, 0.98), "weight_decay": 0.1}
    trajectory(lambda params: optim.Lion(params, maximize=maximize, **options), mine)
    trajectory(lambda params: TorchsLion(params, -1.0 if maximize else 1.0), theirs)
    assert difference(mine, theirs) <= BOUND


def test_scheduler_groups_closure_and_missing_gradients() -> None:
    def run(kind: Any) -> tuple[Parameters, Any]:
        params = parameters([(31,), (4, 5), (7,), (3,)])
        optimizer = kind([{"params": params[:2]}, {"params": [params[2]], "lr": 0.1}], lr=0.01)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
        gradients = Gradients()
        for i in range(20):
            if i == 5:
                optimizer.add_param_group({"params": [params[3]], "weight_decay": 0.2})

            def closure(step: int = i) -> torch.Tensor:
                gradients.set(params)
                if step % 3 == 1:
                    params[1].grad = None
                return torch.tensor(float(step))

            assert optimizer.step(closure) == i
            scheduler.step()
        return params, optimizer

    (mine, ours), (theirs, other) = run(optim.AdamW), run(torch.optim.AdamW)
    assert difference(mine, theirs) <= BOUND
    assert [float(x) for x in states(ours, "step")] == [float(x) for x in states(other, "step")]


def test_parameter_that_never_has_a_gradient_has_no_state() -> None:
    params = parameters([(3,), (4,)])
    optimizer = optim.AdamW(params)
    params[0].grad = torch.ones(3)
    before = params[1].detach().clone()
    optimizer.step()
    assert list(optimizer.state_dict()["state"]) == [0]
    assert torch.equal(params[1], before)
    optim.SGD(parameters([(3,)])).step()


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Muon"])
def test_state_dict_goes_to_torchs_own_and_back(name: str) -> None:
    options = {"momentum": 0.9, "lr": 0.02} if name == "SGD" else {}
    mine, theirs = of_name(name), of_name(name)
    kinds = getattr(optim, name), getattr(torch.optim, name)

    def run(params: Parameters, order: tuple[int, int, int]) -> None:
        gradients, saved = Gradients(), None
        for kind in order:
            optimizer = kinds[kind](params, **options)
            if saved is not None:
                optimizer.load_state_dict(saved)
            for _ in range(4):
                gradients.set(params)
                optimizer.step()
            saved = copy.deepcopy(optimizer.state_dict())

    run(mine, (0, 1, 0))
    run(theirs, (1, 1, 1))
    assert difference(mine, theirs) <= BOUND


def test_optimizer_is_copied_and_pickled() -> None:
    params = parameters()
    optimizer = trajectory(lambda p: optim.Adam(p, amsgrad=True), params, 3)
    copied, other = copy.deepcopy((params, optimizer)), pickle.loads(pickle.dumps(optimizer))
    kept = [param for group in other.param_groups for param in group["params"]]
    for some, its in ((params, optimizer), copied, (kept, other)):
        Gradients().set(some)
        its.step()
    assert difference(copied[0], params) == 0
    assert difference(kept, params) == 0


def test_loaded_states_of_short_parameters_stay_float32() -> None:
    params = parameters(dtype=torch.bfloat16)
    optimizer = trajectory(optim.AdamW, params, 3)
    again = optim.AdamW(params)
    again.load_state_dict(optimizer.state_dict())
    for mine, loaded in zip(states(optimizer, "exp_avg"), states(again, "exp_avg"), strict=True):
        assert loaded.dtype == torch.float32
        assert torch.equal(mine, loaded)
    theirs = torch.optim.AdamW(params)
    theirs.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    Gradients().set(params)
    theirs.step()


def strided(kind: str) -> tuple[Parameters, Parameters]:
    """The same values in a parameter that is not contiguous, and in one that is."""
    values = parameters([(6, 4, 5, 3), (7, 9)])
    if kind == "permuted":
        made = [
            values[0].data.to(memory_format=torch.channels_last),
            values[1].data.T.contiguous().T,
        ]
    else:
        made = [torch.stack([v.data, v.data], -1)[..., 0] for v in values]
    params = [torch.nn.Parameter(value) for value in made]
    assert not any(param.is_contiguous() for param in params)
    return params, values


@pytest.mark.parametrize("kind", ["permuted", "with gaps"])
@pytest.mark.parametrize("orders", ["same", "other"])
def test_parameters_that_are_not_contiguous(kind: str, orders: str) -> None:
    params, contiguous = strided(kind)
    optimizer, other = optim.AdamW(params, lr=0.01), optim.AdamW(contiguous, lr=0.01)
    gradients, others = Gradients(), Gradients()
    for _ in range(3):
        gradients.set(params)
        others.set(contiguous)
        if orders == "other":
            for param in params:
                assert param.grad is not None
                param.grad = param.grad.contiguous()
        optimizer.step()
        other.step()
    assert difference(params, contiguous) == 0
    assert difference(states(optimizer, "exp_avg"), states(other, "exp_avg")) == 0


def test_sparse_gradients_are_refused_as_torch_does() -> None:
    for kind, words in ((optim.AdamW, "please consider SparseAdam"), (optim.SGD, "SGD does not")):
        weight = torch.nn.Parameter(torch.randn(5, 3))
        rows = torch.nn.functional.embedding(torch.tensor([1]), weight, sparse=True)
        rows.sum().backward()
        with pytest.raises(RuntimeError, match=words):
            kind([weight]).step()


def test_what_kernels_cannot_do_is_refused() -> None:
    with pytest.raises(ValueError, match="differentiable=True is not supported"):
        optim.Adam(parameters(), differentiable=True)
    double = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    double.grad = torch.zeros_like(double)
    with pytest.raises(TypeError, match=r"adam_step_: argument 'params.0.' expects float32"):
        optim.Adam([double]).step()
    with pytest.raises(ValueError, match=r"Invalid beta parameter at index 1: 1\.5"):
        optim.Lion(parameters(), betas=(0.9, 1.5))
    with pytest.raises(ValueError, match="only supports 2D"):
        optim.Muon(parameters([(3,)]))


@pytest.mark.parametrize("options", [{}, {"amsgrad": True, "master_weights": True}])
def test_200_parameters_take_at_most_40_launches(options: dict[str, Any]) -> None:
    params = parameters([(i % 7 + 1,) for i in range(200)], torch.bfloat16)
    optimizer = optim.AdamW(params, **options)
    Gradients().set(params)
    with watched() as launches:
        optimizer.step()
    assert len(launches) == 1 + -(-200 // 9)
    with watched() as launches:
        optim.clip_grad_norm_(params, 1.0)
    assert len(launches) == 2 * -(-200 // 28)


def test_stress_over_odd_sizes_and_dtypes() -> None:
    """Sizes around those of simdgroups and chunks, dtypes mixed, gradients of either dtype."""
    generator = torch.Generator().manual_seed(5)
    near = [1, 2, 3, 31, 32, 33, 63, 65, 1023, 1025, 32767, 32768, 32769, 65537, 100003]
    drawn = torch.randint(0, 5000, (15,), generator=generator).tolist()
    kinds = (torch.float32, torch.float16, torch.bfloat16)
    params = [
        torch.nn.Parameter(torch.randn(size, generator=generator).to(kinds[i % 3]))
        for i, size in enumerate([*near, *drawn])
    ]
    exact = [param.detach().float().clone().requires_grad_() for param in params]
    optimizer = optim.AdamW(params, lr=0.01, weight_decay=0.1, master_weights=True)
    other = torch.optim.AdamW(exact, lr=0.01, weight_decay=0.1)
    gradients = Gradients()
    for _ in range(4):
        gradients.set(params)
        for param, its in zip(params, exact, strict=True):
            assert param.grad is not None
            its.grad = param.grad.float()
        optimizer.step()
        other.step()
    for param, its in zip(params, exact, strict=True):
        master = optimizer.state[param].get("master_weight", param)
        assert difference([master], [its]) <= BOUND
        assert torch.equal(param, master.to(param.dtype))


@pytest.mark.parametrize(
    ("name", "options"), [("AdamW", {"amsgrad": True}), ("SGD", {"momentum": 0.9})]
)
def test_large_steps(name: str, options: dict[str, Any]) -> None:
    """Two tables, rows that lie apart and in huge pages, a copied parameter, a loaded state."""
    shapes = [*[(100003,)] * 10, (600011,)]
    mine, theirs = ([*parameters(shapes), *strided("with gaps")[0]] for _ in range(2))
    ours = getattr(optim, name)(mine, lr=0.01, **options)
    other = getattr(torch.optim, name)(theirs, lr=0.01, **options)
    gradients, others = Gradients(), Gradients()
    for i in range(4):
        if i == 2:
            ours.load_state_dict(copy.deepcopy(other.state_dict()))
        gradients.set(mine)
        others.set(theirs)
        ours.step()
        other.step()
    assert difference(mine, theirs) <= BOUND


def test_float32_gradients_of_short_parameters() -> None:
    param, grad = torch.randn(65).bfloat16(), torch.randn(65)
    state, steps = torch.zeros(2, 65), torch.zeros(1)
    exact = param.float().requires_grad_()
    exact.grad = grad.clone()
    torch.optim.AdamW([exact], lr=0.1, weight_decay=0.0).step()
    adam_step_([param], [grad], [state], steps, 0.1)
    assert torch.equal(param, exact.detach().bfloat16())


def test_compiled_training_step() -> None:
    def run(compiled: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 1))
        optimizer = optim.AdamW(model.parameters(), lr=0.01)

        def train(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        step = torch.compile(train, backend="eager") if compiled else train
        for _ in range(3):
            step(torch.ones(4, 8))
        torch._dynamo.reset()
        return [param.detach() for param in model.parameters()]

    assert difference(run(True), run(False)) == 0


def test_states_of_a_large_parameter_are_taken() -> None:
    """Each of its rows may have as many elements as a tensor."""
    param = torch.empty(2**31 - 1, device="meta")
    check_states("adam_step_", [torch.empty(2, 2**31 - 1, device="meta")], [param], 2)
    with pytest.raises(ValueError, match=r"'states\[0\]' expects shape \[2, 2147483647\]"):
        check_states("adam_step_", [torch.empty(3, 2**31 - 1, device="meta")], [param], 2)


def test_rows_of_large_states_are_found_by_their_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch takes no tensor of more elements than kernels count: it gets the first row."""

    def stepped() -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(5)
        param, grad = (torch.randn(80, generator=generator) for _ in range(2))
        states = torch.rand(4, 80, generator=generator)
        adam_step_(
            *([param], [grad], [states], torch.zeros(1), 0.1), amsgrad=True, master_weights=True
        )
        return [param, states]

    expected = stepped()
    monkeypatch.setattr(tables, "MAX_ELEMENTS", 100)
    taken: list[int] = []
    bindable = tables.Entry.__new__

    def noted(kind: Any, param: Any, grad: Any, state: Any, *more: Any) -> Any:
        taken.append(state.numel())
        return bindable(kind, param, grad, state, *more)

    monkeypatch.setattr(tables.Entry, "__new__", noted)
    assert all(map(torch.equal, stepped(), expected))
    assert taken == [80]
