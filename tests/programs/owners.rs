//! Holds, leaks and passes memory, and holds more with each step, at lines that are marked.
use std::ffi::{CStr, c_char, c_void};
use std::hint::black_box;
use std::mem::forget;

unsafe extern "C" {
    fn dlsym(library: *const c_void, name: *const c_char) -> *const c_void;
}

/// A function of memshim's for phases; there is none without it.
fn of_memshim<F: Copy>(name: &CStr) -> Option<F> {
    // SAFETY: the name ends with a zero; `F` is a function's type, a pointer.
    unsafe {
        let found = dlsym(std::ptr::null(), name.as_ptr());
        (!found.is_null()).then(|| *(&raw const found).cast::<F>())
    }
}

#[inline(never)]
fn hold(n: usize) -> Vec<u8> {
    Vec::with_capacity(n) // <PEAK>
}

#[inline(never)]
fn leak() {
    forget(black_box(Box::<[u8; 1000]>::new_uninit())); // <LEAK>
}

#[inline(never)]
fn grow() {
    forget(black_box(Box::<[u8; 4008]>::new_uninit())); // <GROWTH>
}

#[inline(never)]
fn pass() {
    black_box(Vec::<u8>::with_capacity(1200)); // <TEMPORARY>
}

fn main() {
    // Freed, and not temporary: by how many were freed the estimate of these is not bounded then.
    let others: Vec<_> = (0..2000).map(|_| black_box(Box::new([0u8; 24]))).collect();
    drop(black_box(others));
    (0..5000).for_each(|_| pass());
    (0..3000).for_each(|_| leak());
    let begin = of_memshim::<extern "C" fn(*const c_char)>(c"memshim_phase_begin");
    let end = of_memshim::<extern "C" fn()>(c"memshim_phase_end");
    for _ in 0..60 {
        begin.inspect(|begin| begin(c"step".as_ptr()));
        (0..3).for_each(|_| grow());
        end.inspect(|end| end());
    }
    let held: Vec<_> = (0..50).map(|_| black_box(hold(100_008))).collect();
    drop(black_box(held));
}
