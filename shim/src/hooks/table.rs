//! The one list of hooked functions: signature and class. Real pointers ([`crate::real`]), exports, their test and the documentation
//! come from it. Of class `own` are those that the shim offers besides. The functions of the GPU's driver have a table of their own ([`crate::cuda`]). A line is `name(arguments) -> result, class;`.

macro_rules! for_each_hook {
    ($m:ident) => {
        $m! {
    malloc(size: usize) -> *mut c_void, heap;
    calloc(count: usize, size: usize) -> *mut c_void, heap;
    realloc(old: *mut c_void, size: usize) -> *mut c_void, heap;
    reallocarray(old: *mut c_void, count: usize, size: usize) -> *mut c_void, heap;
    free(p: *mut c_void) -> (), heap;
    cfree(p: *mut c_void) -> (), heap;
    free_sized(p: *mut c_void, size: usize) -> (), heap;
    free_aligned_sized(p: *mut c_void, align: usize, size: usize) -> (), heap;
    posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int, heap;
    aligned_alloc(align: usize, size: usize) -> *mut c_void, heap;
    memalign(align: usize, size: usize) -> *mut c_void, heap;
    valloc(size: usize) -> *mut c_void, heap;
    pvalloc(size: usize) -> *mut c_void, heap;
    malloc_usable_size(p: *mut c_void) -> usize, heap;
    _Znwm(size: usize) -> *mut c_void, cxx;
    _Znam(size: usize) -> *mut c_void, cxx;
    _ZnwmRKSt9nothrow_t(size: usize, tag: *const c_void) -> *mut c_void, cxx;
    _ZnamRKSt9nothrow_t(size: usize, tag: *const c_void) -> *mut c_void, cxx;
    _ZnwmSt11align_val_t(size: usize, align: usize) -> *mut c_void, cxx;
    _ZnamSt11align_val_t(size: usize, align: usize) -> *mut c_void, cxx;
    _ZnwmSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, tag: *const c_void) -> *mut c_void, cxx;
    _ZnamSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, tag: *const c_void) -> *mut c_void, cxx;
    _ZdlPv(p: *mut c_void) -> (), cxx;
    _ZdaPv(p: *mut c_void) -> (), cxx;
    _ZdlPvm(p: *mut c_void, size: usize) -> (), cxx;
    _ZdaPvm(p: *mut c_void, size: usize) -> (), cxx;
    _ZdlPvRKSt9nothrow_t(p: *mut c_void, tag: *const c_void) -> (), cxx;
    _ZdaPvRKSt9nothrow_t(p: *mut c_void, tag: *const c_void) -> (), cxx;
    _ZdlPvSt11align_val_t(p: *mut c_void, align: usize) -> (), cxx;
    _ZdaPvSt11align_val_t(p: *mut c_void, align: usize) -> (), cxx;
    _ZdlPvmSt11align_val_t(p: *mut c_void, size: usize, align: usize) -> (), cxx;
    _ZdaPvmSt11align_val_t(p: *mut c_void, size: usize, align: usize) -> (), cxx;
    _ZdlPvSt11align_val_tRKSt9nothrow_t(p: *mut c_void, align: usize, tag: *const c_void) -> (), cxx;
    _ZdaPvSt11align_val_tRKSt9nothrow_t(p: *mut c_void, align: usize, tag: *const c_void) -> (), cxx;
    mmap(addr: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, off: i64) -> *mut c_void, maps;
    mmap64(addr: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, off: i64) -> *mut c_void, maps;
    munmap(addr: *mut c_void, len: usize) -> c_int, maps;
    mremap(old: *mut c_void, old_len: usize, new_len: usize, flags: c_int, new: *mut c_void) -> *mut c_void, maps;
    mprotect(addr: *mut c_void, len: usize, prot: c_int) -> c_int, maps;
    madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int, maps;
    brk(addr: *mut c_void) -> c_int, maps;
    sbrk(delta: isize) -> *mut c_void, maps;
    shmat(id: c_int, addr: *const c_void, flags: c_int) -> *mut c_void, maps;
    shmdt(addr: *const c_void) -> c_int, maps;
    fork() -> c_int, process;
    _exit(code: c_int) -> (), process;
    _Exit(code: c_int) -> (), process;
    quick_exit(code: c_int) -> (), process;
    execve(path: *const c_char, argv: *const *const c_char, env: *const *const c_char) -> c_int, exec;
    execv(path: *const c_char, argv: *const *const c_char) -> c_int, exec;
    execvp(path: *const c_char, argv: *const *const c_char) -> c_int, exec;
    execvpe(path: *const c_char, argv: *const *const c_char, env: *const *const c_char) -> c_int, exec;
    execl(path: *const c_char, arg: *const c_char) -> c_int, exec;
    execlp(path: *const c_char, arg: *const c_char) -> c_int, exec;
    execle(path: *const c_char, arg: *const c_char) -> c_int, exec;
    fexecve(fd: c_int, argv: *const *const c_char, env: *const *const c_char) -> c_int, exec;
    posix_spawn(pid: *mut c_int, path: *const c_char, acts: *const c_void, attr: *const c_void, argv: *const *const c_char, env: *const *const c_char) -> c_int, process;
    posix_spawnp(pid: *mut c_int, path: *const c_char, acts: *const c_void, attr: *const c_void, argv: *const *const c_char, env: *const *const c_char) -> c_int, process;
    pthread_create(thread: *mut c_void, attr: *const c_void, start: *const c_void, arg: *mut c_void) -> c_int, process;
    pthread_setspecific(key: u32, value: *const c_void) -> c_int, process;
    setuid(id: u32) -> c_int, process;
    setgid(id: u32) -> c_int, process;
    seteuid(id: u32) -> c_int, process;
    setegid(id: u32) -> c_int, process;
    setreuid(a: u32, b: u32) -> c_int, process;
    setregid(a: u32, b: u32) -> c_int, process;
    setresuid(a: u32, b: u32, c: u32) -> c_int, process;
    setresgid(a: u32, b: u32, c: u32) -> c_int, process;
    setgroups(n: usize, list: *const u32) -> c_int, process;
    unshare(flags: c_int) -> c_int, process;
    setns(fd: c_int, flags: c_int) -> c_int, process;
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(p: *mut c_void, size: i64, allocated: usize, reserved: usize, device: u16) -> (), torch;
    dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void, lookup;
    getenv(name: *const c_char) -> *mut c_char, lookup;
    secure_getenv(name: *const c_char) -> *mut c_char, lookup;
    InitializeInjectionNvtx2(export: *const c_void) -> c_int, own;
    memshim_phase_begin(name: *const c_char) -> (), own;
    memshim_phase_end() -> (), own;
    memshim_mark(name: *const c_char) -> (), own;
        }
    };
}
pub(crate) use for_each_hook;
