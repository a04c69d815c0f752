# For `scripts/gpu-check`: PyTorch with pinned and pageable copies, a side stream, a training step, a graph. Says what it knows by itself.
import time
import torch
torch.manual_seed(0)
d = torch.device('cuda')
host = torch.randn(16 << 20).pin_memory()
page = torch.randn(1 << 20)
side = torch.cuda.Stream()
net = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).to(d)
x = page.to(d).view(-1, 1024)
for _ in range(3):
    net(x).square().mean().backward()
y = torch.empty_like(host, device=d)
torch.cuda.synchronize()
ms = 0.0
with torch.cuda.stream(side):
    for _ in range(10):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        y.copy_(host, non_blocking=True)
        end.record()
        end.synchronize()
        ms += begin.elapsed_time(end)
torch.cuda.synchronize()
g = torch.cuda.CUDAGraph()
with torch.no_grad(), torch.cuda.graph(g):
    z = net(x)
for _ in range(20):
    g.replay()
torch.cuda.synchronize()
steps = []
for _ in range(5):
    begun = time.perf_counter()
    for _ in range(20):
        net(page.to(d).view(-1, 1024)).square().mean().backward()
    torch.cuda.synchronize()
    steps.append((time.perf_counter() - begun) * 50)
expandable = int(any(s.get('is_expandable') for s in torch.cuda.memory_snapshot()))
print('EXPECT version', 'torch', torch.__version__, 'CUDA', torch.version.cuda)
print('EXPECT step', min(steps))
print('EXPECT copy H2D pinned', 10, 10 * host.numel() * 4, ms)
print('EXPECT torch', torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), 20, expandable, float(z.sum()))
