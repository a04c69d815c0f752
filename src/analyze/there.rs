//! Processes and threads by their numbers: which ones there are, for who asked for one that is not.

/// Named at most.
const NAMED: usize = 8;

/// Says that there is no process of this number.
pub fn no_process(pid: u32, there: impl Iterator<Item = u32>) -> String {
    format!("--pid {pid}: no such process in these traces; {}", which(there.map(|pid| pid.to_string()), "runs[].pid"))
}

/// Says that there is no thread of this number; `there`: number and name, those that allocated most first.
pub fn no_thread<'a>(tid: u32, there: impl Iterator<Item = (u32, &'a str)>) -> String {
    let named = there.map(|(tid, name)| if name.is_empty() { tid.to_string() } else { format!("{tid} ({name})") });
    format!("--thread {tid}: no such thread in these traces; {}", which(named, "runs[].threads"))
}

/// The first few; `key`: of the JSON that has all.
fn which(there: impl Iterator<Item = String>, key: &str) -> String {
    let mut all: Vec<String> = Vec::new();
    for one in there {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    let more = all.len().saturating_sub(NAMED);
    all.truncate(NAMED);
    let more = if more > 0 { format!(" and {more} more (`{key}` of --json)") } else { String::new() };
    if all.is_empty() { "none is known".to_owned() } else { format!("there is {}{more}", all.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_one_that_is_none_hears_of_those_there_are() {
        let said = no_thread(7, [(5, "main"), (5, "main"), (6, "")].into_iter());
        assert_eq!(said, "--thread 7: no such thread in these traces; there is 5 (main), 6");
        assert!(no_thread(7, (10..30).map(|t| (t, ""))).ends_with("16, 17 and 12 more (`runs[].threads` of --json)"));
        assert!(no_thread(7, std::iter::empty()).ends_with("; none is known"));
        assert_eq!(no_process(7, [42, 42].into_iter()), "--pid 7: no such process in these traces; there is 42");
        assert!(no_process(7, 10..19).ends_with(" and 1 more (`runs[].pid` of --json)"));
    }
}
