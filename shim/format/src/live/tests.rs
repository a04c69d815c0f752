use super::*;
use std::collections::BTreeMap;

#[test]
fn an_entry_keeps_lane_and_sequence_number() {
    for (lane, seq) in [(0, 0), (2047, SEQ_MASK - 1), (17, 0x12_3456_789a)] {
        let e = Entry::new(lane, seq, 104);
        assert_eq!((e.lane(), e.seq(seq + 1), e.seq(seq + 1000)), (lane, seq, seq));
        assert!(e.can_be(104) && e.is_before(seq + 1) && !e.is_before(seq));
    }
}

#[test]
fn sequence_numbers_beyond_what_an_entry_keeps_are_right() {
    for seq in [SEQ_MASK - 1, SEQ_MASK, SEQ_MASK + 1, 5 << SEQ_BITS, (5 << SEQ_BITS) - 1] {
        let e = Entry::new(3, seq, 24);
        for later in [1, 2, 1000, SEQ_MASK / 2] {
            assert_eq!(e.seq(seq + later), seq);
            assert!(e.is_before(seq + later));
        }
        assert!(!e.is_before(seq) && !e.is_before(seq - 64));
    }
}

#[test]
fn classes_hold_what_they_say() {
    for level in 0..LEVELS as u32 {
        for n in 1..=1200 {
            let class = class_for(level, n);
            assert!(most(level, places(level, class)) >= n || class == LARGEST[level as usize], "{level} {n} {class}");
        }
        for class in 0..CLASSES as u32 {
            let n = places(level, class);
            assert!(
                most(level, n) <= n && 8 + (n * (8 + level)) as usize <= bytes(class) && class_of(level, n) == class,
                "{level} {class} {n}"
            );
        }
    }
    let most_of = |level| most(level, places(level, class_for(level, u32::MAX)));
    assert!(most_of(0) >= 512, "a page of blocks of eight bytes");
    assert!(most_of(1) >= 256 * (ENOUGH - 1) && most_of(2) >= 256 * (ENOUGH - 1), "spans that have no nodes of their own");
}

/// With its row in the directory, of 12 bytes and five sixteenths full at least, and what the memory of all nodes is ahead of them.
#[test]
fn a_node_and_its_row_are_at_most_twenty_bytes_an_entry() {
    for level in 0..LEVELS as u32 {
        // Spans of the top are few.
        for n in if level == 2 { 2 * ENOUGH } else { ENOUGH }..=512 {
            let each = (bytes(class_for(level, n)) as f64 * 33.0 / 32.0 + 12.0 * 16.0 / 5.0) / n as f64;
            assert!(each <= 20.0, "{each} bytes each of {n} at level {level}");
        }
    }
}

#[test]
fn a_span_knows_where_it_begins() {
    for level in 0..LEVELS as u32 {
        let addr3 = 0x7fff_dead_bee8 >> 3 | 1 << 44;
        let span = Span::of(level, addr3);
        assert_eq!((span.level(), span.addr3()), (level, addr3 >> key_bits(level) << key_bits(level)));
        assert_eq!(Header::of(span, 17).span(), Some(span));
        assert_eq!((Header::of(span, 17).class(), Header::free(3).class(), Header::free(3).span()), (Some(17), Some(3), None));
    }
}

#[test]
fn usable_sizes_of_a_page_differ_mostly() {
    let alike = (1..=256u64).filter(|n| Entry::new(0, 0, 24).can_be(24 + 16 * n)).count();
    assert!(alike < 256 / 8, "{alike}");
}

/// Entries of a node by key, as a reader sees them.
fn of(level: u32, class: u32, words: &[u64]) -> BTreeMap<u64, u64> {
    let node: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    entries(Span::of(level, 0), class, &node).map(|(key, e)| (key, e.low_seq())).collect()
}

proptest::proptest! {
    #[test]
    fn a_node_agrees_with_a_map(
        level in 0..3u32,
        class in 1..14u32,
        spread in 0..17u32,
        ops in proptest::collection::vec((0..1u64 << 25, proptest::bool::ANY), 1..900),
    ) {
        let n = places(level, class);
        let mut words = vec![0u64; bytes(class) / 8 + 1];
        let end = words.len() - 1;
        let node = words.as_mut_ptr();
        let mut model = BTreeMap::new();
        for (seq, (key, insert)) in ops.into_iter().enumerate() {
            // Few keys or many, so that some come again.
            let key = key >> (16 - spread.min(16)) & ((1 << key_bits(level)) - 1);
            // SAFETY: the vector is a node of that class.
            unsafe {
                match find(level, n, node, key) {
                    Found::Entry(p) => {
                        let e = Entry(p.read());
                        assert_eq!(model.get(&key), Some(&e.low_seq()));
                        if !insert {
                            take_out(level, n, node, p);
                            model.remove(&key);
                        }
                    }
                    Found::Place(p) if insert && (model.len() as u32) < most(level, n) => {
                        assert!(!model.contains_key(&key));
                        put(level, n, node, p, key, Entry::new(1, seq as u64, 8));
                        model.insert(key, seq as u64);
                    }
                    _ => assert!(!model.contains_key(&key)),
                }
            }
        }
        let to = if class % 2 == 0 { class + 1 } else { class + 2 };
        let mut larger = vec![0u64; bytes(to) / 8];
        // SAFETY: both are nodes.
        unsafe { copy(level, n, node, places(level, to), larger.as_mut_ptr()) };
        assert_eq!(words[end], 0, "nothing behind the node");
        assert_eq!(&of(level, class, &words), &model);
        assert_eq!(&of(level, to, &larger), &model);
        for (key, seq) in &model {
            // SAFETY: as above.
            let found = unsafe { find(level, places(level, to), larger.as_mut_ptr(), *key) };
            let Found::Entry(p) = found else { panic!("{key} is gone") };
            // SAFETY: an entry of the node.
            assert_eq!(Entry(unsafe { p.read() }).low_seq(), *seq);
            for below in 0..level {
                let span = key >> key_bits(below) << key_bits(below);
                let mut found = BTreeMap::new();
                // SAFETY: as above.
                unsafe { each_within(level, places(level, to), larger.as_mut_ptr(), Span::of(below, span), |key, e| found.extend([(key, e.low_seq())])) };
                assert!(found.into_iter().eq(model.range(span..span + (1 << key_bits(below))).map(|(k, s)| (*k, *s))));
            }
        }
    }
}
