from cupy.cuda.memory import MemoryPool, alloc, get_allocator, set_allocator
