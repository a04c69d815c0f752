//! How long a piece of output may have been there when it was read.
//!
//! It came after its channel was last seen empty. Who waits for it is woken at once: within [`WOKEN`], and what the kernel says that we waited for a
//! processor on top of that. Not for: when it was read (the channel).

use super::lines::When;
use crate::launch::outside;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// From a write to the run of who was waiting for it, on a machine with a free processor: tens of microseconds, and some for one that sleeps deeply.
const WOKEN: u64 = 1_000_000;

/// Of one channel, on its thread.
#[derive(Default)]
pub struct Late {
    /// What the kernel says of this thread; `None` where it does not.
    schedstat: Option<File>,
    /// Waited for a processor up to the last wait, and in it, ns.
    waited: u64,
    delay: u64,
    /// It was empty then.
    empty: u64,
    /// The read under way began.
    reading: u64,
}

impl Late {
    /// To be called on the thread.
    pub fn begin(&mut self) {
        self.schedstat = File::open("/proc/thread-self/schedstat").ok();
    }

    pub fn before_wait(&mut self) {
        self.waited = self.waited();
    }

    pub fn after_wait(&mut self) {
        self.delay = self.waited().saturating_sub(self.waited);
    }

    pub fn before_read(&mut self) {
        self.reading = outside::monotonic_ns();
    }

    /// `all`: it has taken all that there was.
    pub fn after_read(&mut self, all: bool) -> When {
        self.read_at(outside::monotonic_ns(), all)
    }

    fn read_at(&mut self, t: u64, all: bool) -> When {
        let woken = t.saturating_sub(self.reading) + WOKEN + self.delay;
        let late = t.saturating_sub(self.empty).min(woken);
        if all {
            self.empty = self.reading;
        }
        When { t, late }
    }

    /// How long this thread has been ready to run and did not.
    fn waited(&self) -> u64 {
        let mut text = [0; 96];
        let read = self.schedstat.as_ref().and_then(|f| f.read_at(&mut text, 0).ok()).unwrap_or(0);
        let text = std::str::from_utf8(&text[..read]).unwrap_or("");
        text.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_after_an_empty_channel_is_not_older_than_that() {
        const MS: u64 = 1_000_000;
        let mut late = Late { reading: 500 * MS, ..Late::default() };
        assert_eq!(late.read_at(501 * MS, true), When { t: 501 * MS, late: 2 * MS }, "the read itself took one");
        late.reading = 501 * MS;
        assert_eq!(late.read_at(501 * MS + 9, false).late, MS + 9);
        late.reading = 501 * MS + 20;
        assert_eq!(late.read_at(501 * MS + 30, false).late, MS + 10);
        (late.reading, late.delay) = (700 * MS, 30 * MS);
        assert_eq!(late.read_at(700 * MS, true).late, 31 * MS, "others had the processor");
        late.reading = 710 * MS;
        assert_eq!(late.read_at(710 * MS, true).late, 10 * MS, "it was empty then");
    }

    #[test]
    fn the_kernel_says_how_long_a_thread_has_waited() {
        let mut late = Late::default();
        late.begin();
        late.before_wait();
        std::thread::yield_now();
        late.after_wait();
        assert!(late.delay < 60_000_000_000, "{}", late.delay);
    }
}
