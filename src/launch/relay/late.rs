//! How long a piece of output may have been there when it was read: it came after its channel was last known to be empty.
//!
//! A channel is empty when it is made, when a look finds nothing in it, and when a read has taken all. Who then sleeps until something comes is woken
//! at once: within [`WOKEN`], and what the kernel says that we waited for a processor on top of that. It does not count where the kernel does not say
//! that, or where this thread was put on a processor more than once meanwhile: it was stopped and continued, or had to give way.
//! Not for: when it was read (the channel).

use super::lines::When;
use crate::launch::outside;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// From a write to the run of who was waiting for it, on a machine with a free processor: tens of microseconds, and some for one that sleeps deeply.
/// An assumption: nobody tells.
const WOKEN: u64 = 1_000_000;

/// Of one channel, on its thread.
pub struct Late {
    /// What the kernel says of this thread; `None` where it does not.
    schedstat: Option<File>,
    /// What is in the channel came after that.
    since: u64,
    /// When the sleep began.
    asleep: Option<Turns>,
    /// The read under way began.
    reading: u64,
}

/// What a thread has had of the processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turns {
    /// It was ready to run and did not, ns.
    waited: u64,
    /// How often it was put on one.
    times: u64,
}

impl Turns {
    /// Of the text of `schedstat`. `None`: the kernel does not count; all is 0 then, of a thread that runs.
    fn parse(text: &str) -> Option<Turns> {
        let mut numbers = text.split_whitespace().skip(1).map(|n| n.parse().ok());
        let (waited, times) = (numbers.next()??, numbers.next()??);
        (times > 0).then_some(Turns { waited, times })
    }
}

impl Late {
    /// Of a channel that is about to be made.
    pub fn new() -> Self {
        Self { schedstat: None, since: outside::monotonic_ns(), asleep: None, reading: 0 }
    }

    /// To be called on the thread.
    pub fn begin(&mut self) {
        self.schedstat = File::open("/proc/thread-self/schedstat").ok();
    }

    /// A look that began then has found nothing.
    pub fn was_empty(&mut self, then: u64) {
        self.since = self.since.max(then);
    }

    /// Until something comes.
    pub fn sleeps(&mut self) {
        self.asleep = self.turns();
    }

    pub fn wakes(&mut self) {
        let t = outside::monotonic_ns();
        let now = self.turns();
        self.woken(t, now);
    }

    fn woken(&mut self, t: u64, now: Option<Turns>) {
        let (Some(before), Some(now)) = (self.asleep.take(), now) else { return };
        if now.times == before.times + 1 {
            let delay = now.waited.saturating_sub(before.waited);
            self.was_empty(t.saturating_sub(WOKEN.saturating_add(delay)));
        }
    }

    pub fn before_read(&mut self) {
        self.reading = outside::monotonic_ns();
    }

    /// `all`: it has taken all that there was.
    pub fn after_read(&mut self, all: bool) -> When {
        self.read_at(outside::monotonic_ns(), all)
    }

    fn read_at(&mut self, t: u64, all: bool) -> When {
        let late = t.saturating_sub(self.since);
        if all {
            self.was_empty(self.reading);
        }
        When { t, late }
    }

    fn turns(&self) -> Option<Turns> {
        let mut text = [0; 96];
        let read = self.schedstat.as_ref()?.read_at(&mut text, 0).ok()?;
        Turns::parse(std::str::from_utf8(&text[..read]).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn since(since: u64) -> Late {
        Late { schedstat: None, since, asleep: None, reading: 0 }
    }

    /// Asleep since then, and woken `t`: put on a processor so often meanwhile, waiting for it so long.
    fn slept(late: &mut Late, t: u64, times: u64, waited: u64) {
        late.asleep = Some(Turns { waited: 7, times: 3 });
        late.woken(t, Some(Turns { waited: 7 + waited, times: 3 + times }));
    }

    #[test]
    fn what_wakes_a_sleeper_is_a_millisecond_old_and_what_it_waited_for_a_processor() {
        let mut late = since(100 * MS);
        slept(&mut late, 500 * MS, 1, 0);
        late.reading = 500 * MS;
        assert_eq!(late.read_at(501 * MS, true), When { t: 501 * MS, late: 2 * MS }, "the read itself took one");
        slept(&mut late, 700 * MS, 1, 30 * MS);
        assert_eq!(late.read_at(700 * MS, true).late, 31 * MS, "others had the processor");
        slept(&mut late, 700 * MS, 1, 400 * MS);
        assert_eq!(late.read_at(700 * MS, true).late, 31 * MS, "no more than since it was empty");
    }

    #[test]
    fn what_comes_while_nobody_looks_can_be_as_old_as_the_last_look() {
        let mut late = since(100 * MS);
        slept(&mut late, 500 * MS, 1, 0);
        late.reading = 500 * MS;
        assert_eq!(late.read_at(500 * MS, true).late, MS);
        // Five seconds until the reader takes it; the next look finds something at once, and then more.
        late.reading = 5500 * MS;
        assert_eq!(late.read_at(5501 * MS, false).late, 5001 * MS);
        late.reading = 5502 * MS;
        assert_eq!(late.read_at(5503 * MS, true).late, 5003 * MS, "the read before did not take all");
        late.reading = 5504 * MS;
        assert_eq!(late.read_at(5504 * MS, true).late, 2 * MS);
        late.was_empty(5600 * MS);
        assert_eq!(late.read_at(5603 * MS, false).late, 3 * MS, "a look found nothing");
    }

    #[test]
    fn a_sleep_of_which_the_kernel_does_not_say_all_counts_for_nothing() {
        for times in [0, 2] {
            let mut late = since(100 * MS);
            slept(&mut late, 500 * MS, times, 0);
            assert_eq!(late.read_at(500 * MS, false).late, 400 * MS, "stopped and continued, or not asleep: {times}");
        }
        for (before, after) in [(None, None), (Some(Turns { waited: 0, times: 1 }), None), (None, Some(Turns { waited: 0, times: 1 }))] {
            let mut late = since(100 * MS);
            late.asleep = before;
            late.woken(500 * MS, after);
            assert_eq!(late.read_at(500 * MS, false).late, 400 * MS);
        }
    }

    #[test]
    fn what_the_kernel_says_of_a_thread_is_read() {
        assert_eq!(Turns::parse("61213034 30000000 17\n"), Some(Turns { waited: 30_000_000, times: 17 }));
        for text in ["0 0 0\n", "", "5 6\n", "5 x 7\n", "5 6 -7\n"] {
            assert_eq!(Turns::parse(text), None, "{text:?}");
        }
        // A kernel without the file, or that counts nothing, is none of these tests' business.
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let mut late = Late::new();
        late.begin();
        assert_eq!(late.turns().is_some(), Turns::parse(&text).is_some(), "{text:?}");
        late.sleeps();
        assert_eq!(late.asleep.is_some(), Turns::parse(&text).is_some());
    }
}
