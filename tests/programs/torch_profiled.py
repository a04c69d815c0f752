"""PyTorch's own profiler of memory, on the CPU: what each operation allocated, as it says."""
import torch
from torch.profiler import ProfilerActivity, profile

with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as told:
    a = torch.ones(1 << 20)
    b = a * 2
    del a
print(sorted((e.key, e.self_cpu_memory_usage) for e in told.key_averages() if e.self_cpu_memory_usage))
