//! Work on many things side by side.

use std::cmp::Reverse;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Does `work` on each item by so many threads at a time (0: as many as there are processors), the largest first, so that none is left for the end
/// alone. The results are in the order of the items.
pub fn largest_first<T: Sync, R: Send>(items: &[T], threads: usize, size: impl Fn(&T) -> u64, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|&i| Reverse(size(&items[i])));
    let threads = match threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    };
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.min(items.len()) {
            scope.spawn(|| {
                while let Some(&i) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = work(&items[i]);
                    done.lock().unwrap_or_else(|e| e.into_inner()).push((i, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(|e| e.into_inner());
    done.sort_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stand_in_the_order_of_the_items_and_the_largest_goes_first() {
        for threads in [0, 1, 2, 9] {
            let begun = Mutex::new(Vec::new());
            let results = largest_first(
                &[3u64, 9, 1, 7],
                threads,
                |n| *n,
                |n| {
                    begun.lock().unwrap().push(*n);
                    n * 10
                },
            );
            assert_eq!(results, [30, 90, 10, 70]);
            if threads == 1 {
                assert_eq!(*begun.lock().unwrap(), [9, 7, 3, 1]);
            }
        }
        assert!(largest_first(&[], 3, |n: &u64| *n, |n| *n).is_empty());
    }
}
