//! What snapshots take from files below `/proc`, and by which keys: the shim from inside, the command from outside.

/// Keys of `rollup`, and of `/proc/PID/smaps_rollup`.
pub const ROLLUP: [(&str, &str); 10] = [
    ("rss", "Rss"),
    ("pss", "Pss"),
    ("shared_clean", "Shared_Clean"),
    ("shared_dirty", "Shared_Dirty"),
    ("private_clean", "Private_Clean"),
    ("private_dirty", "Private_Dirty"),
    ("referenced", "Referenced"),
    ("anonymous", "Anonymous"),
    ("anon_huge", "AnonHugePages"),
    ("swap", "Swap"),
];
