use super::*;

fn span(lane: u32, t0: u64, t1: u64, min: i64, max: i64, end: i64) -> Span {
    Span { t0, t1, lane, min, max, end }
}

#[test]
fn one_lane_is_exact() {
    let mut s = Sweep::new(10, 100);
    s.add(span(0, 0, 5, 0, 100, 40));
    s.add(span(0, 5, 9, 20, 70, 20));
    s.end_group(9);
    assert_eq!(s.finish().0, (110, 110));
}

#[test]
fn lanes_that_overlap_leave_a_bound_and_lanes_that_do_not_leave_none() {
    let mut s = Sweep::new(0, 100);
    s.add(span(0, 0, 10, 0, 100, 0));
    s.add(span(1, 5, 15, 0, 50, 10));
    s.end_group(15);
    let (lower, upper) = s.finish().0;
    assert_eq!(upper, 150);
    assert!(lower <= 100, "{lower}");

    let mut s = Sweep::new(0, 100);
    s.add(span(0, 0, 10, 0, 100, 30));
    s.add(span(1, 11, 15, 0, 80, 10));
    s.end_group(15);
    assert_eq!(s.finish().0, (110, 110));
}

#[test]
fn windows_of_one_instant_keep_their_order() {
    let mut s = Sweep::new(0, 100);
    s.add(span(0, 5, 5, 0, 1, 1));
    s.add(span(0, 5, 5, 0, 1, 0));
    s.add(span(1, 6, 9, 0, 1, 1));
    s.end_group(9);
    assert_eq!(s.finish().0, (1, 1));
}

#[test]
fn a_window_that_another_lane_touches_at_its_last_instant_was_not_alone() {
    let mut s = Sweep::new(0, 100);
    s.add(span(0, 5, 5, 0, 3, 3));
    s.add(span(0, 5, 9, 3, 3, 3));
    s.add(span(1, 5, 5, -1, 0, -1));
    s.end_group(9);
    let (lower, upper) = s.finish().0;
    assert!(lower <= 2 && upper == 3, "{lower} {upper}");
}

#[test]
fn a_window_that_is_followed_at_an_instant_may_have_been_open_still_when_another_lanes_began() {
    // Another lane's block is freed, and one is allocated, at the instant at which that lane has allocated it.
    for others in 0..3 {
        let mut s = Sweep::new(0, 100);
        s.add(span(3, 5, 5, -4096, 0, -4096));
        (0..others).for_each(|_| s.add(span(3, 5, 5, -4096, -4096, -4096)));
        s.add(span(3, 5, 5, -4096, -4095, -4095));
        s.add(span(4, 5, 5, 0, 4096, 4096));
        s.add(span(4, 6, 9, 4096, 4097, 4096));
        s.end_group(9);
        let (lower, upper) = s.finish().0;
        assert!(lower <= 2 && upper == 4096, "{lower} {upper}");
    }
}

#[test]
fn levels_of_a_damaged_trace_are_no_panic() {
    let far = i64::MAX / 2;
    let mut s = Sweep::new(0, 100);
    for lane in 0..4 {
        [(far, far), (-far, -far), (far, far), (-far, far)].into_iter().for_each(|(min, max)| s.add(span(lane, 5, 5, min, max, max)));
    }
    s.end_group(9);
    s.finish();
}

#[test]
fn what_stands_many_groups_later_can_have_been_at_the_same_time() {
    let mut s = Sweep::new(0, 100);
    s.add(span(0, 0, 10, 0, 100, 0));
    s.end_group(1000);
    (0..LAG as u64 - 1).for_each(|i| s.end_group(1001 + i));
    s.add(span(1, 3, 12, 0, 60, 0));
    s.end_group(3000);
    assert_eq!(s.finish().0.1, 160);
}

#[test]
fn a_window_that_the_next_of_its_lane_begins_in_goes_on_in_that() {
    // Between two stamps a batch ended: 100 may be as late as 20.
    let mut s = Sweep::new(0, 100);
    s.add(span(0, 0, 90, 0, 100, 10));
    s.add(span(0, 0, 20, 10, 30, 10));
    s.add(span(1, 15, 18, 0, 50, 0));
    s.end_group(90);
    let (lower, upper) = s.finish().0;
    assert!(upper == 150 && lower <= 100, "{lower} {upper}");
    // By itself it is as exact as ever.
    let mut s = Sweep::new(5, 100);
    s.add(span(0, 0, 90, 0, 100, 10));
    s.add(span(0, 0, 20, 10, 30, 10));
    s.end_group(90);
    assert_eq!(s.finish().0, (105, 105));
}

#[test]
fn windows_of_neighbouring_groups_overlap() {
    let mut s = Sweep::new(0, 100);
    s.add(span(0, 0, 10, 0, 100, 0));
    s.end_group(10);
    s.add(span(1, 3, 12, 0, 60, 0));
    s.end_group(12);
    assert_eq!(s.finish().0.1, 160);
}
