//! Holds, leaks and passes memory at lines that are marked.
use std::hint::black_box;

#[inline(never)]
fn hold(n: usize) -> Vec<u8> {
    Vec::with_capacity(n) // <PEAK>
}

#[inline(never)]
fn leak() {
    std::mem::forget(black_box(Box::<[u8; 1000]>::new_uninit())); // <LEAK>
}

#[inline(never)]
fn pass() {
    black_box(Vec::<u8>::with_capacity(5000)); // <TEMPORARY>
}

fn main() {
    (0..1000).for_each(|_| pass());
    (0..3000).for_each(|_| leak());
    let held: Vec<_> = (0..50).map(|_| black_box(hold(100_008))).collect();
    drop(black_box(held));
}
