//! Which steps, times of a phase that repeats, are judged for growth: one decision, for the levels at their ends and for who holds what at them.

/// Steps below which there is no verdict.
pub const LEAK_STEPS_MIN: usize = 10;
/// The first of so many parts is warming up.
const WARM_UP: usize = 10;
/// Of what is judged the last of so many parts is that in which growth has to go on: a cache that has filled grows no more.
pub const LAST_OF: u32 = 3;

/// The first of so many steps that is judged, from 0 on.
pub fn first(steps: usize) -> usize {
    if steps >= LEAK_STEPS_MIN { steps / WARM_UP } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_tenth_is_warming_up_where_there_are_enough() {
        assert_eq!([0, 9, 10, 19, 20, 1000].map(first), [0, 0, 1, 1, 2, 100]);
    }
}
