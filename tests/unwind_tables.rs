//! The parser of unwind tables, alone: rows of known instructions, and tables of any bytes. The modules are the shim's own files.
#[allow(dead_code)]
mod unwind {
    #[path = "../../shim/src/unwind/cursor.rs"]
    pub mod cursor;
    #[path = "../../shim/src/unwind/eh_frame.rs"]
    pub mod eh_frame;
    #[path = "../../shim/src/unwind/expression.rs"]
    pub mod expression;
    #[path = "../../shim/src/unwind/row.rs"]
    pub mod row;
    #[path = "../../shim/src/unwind/rule.rs"]
    pub mod rule;
}

use proptest::prelude::*;
use unwind::cursor::Cursor;
use unwind::eh_frame::{self, SEGMENTS, Tables};
use unwind::expression::{Frame, evaluate};
use unwind::row::{self, Alignment, Cfa, Expression, RBP, RETURN, RSP, Row, Saved, Scratch};
use unwind::rule::{Kind, Rule};

fn scratch() -> Box<Scratch> {
    Box::default()
}

fn cursor(bytes: &[u8]) -> Cursor {
    let r = bytes.as_ptr_range();
    // SAFETY: the slice outlives the cursor in these tests.
    unsafe { Cursor::new(r.start as usize, r.end as usize) }
}

/// The row at `wanted` of a function that begins at 1000.
fn row_of(cie: &[u8], fde: &[u8], wanted: usize) -> Option<Row> {
    let mut s = scratch();
    let a = Alignment { code: 1, data: -8, encoding: 0x1b };
    row::make(&mut s, cursor(cie), cursor(fde), 1000, wanted, a)?;
    Some(s.row)
}

/// def_cfa rsp + 8; the return address at the CFA less 8: how each function of this machine begins.
const CIE: [u8; 5] = [0x0c, 7, 8, 0x90, 1];

#[test]
fn rows_follow_the_instructions_up_to_the_place() {
    // push rbp; mov rbp, rsp; …; leave; ret, as compilers write it.
    let fde = [0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x02, 100, 0x0c, 7, 8];
    let at = |place| {
        let row = row_of(&CIE, &fde, place).expect("a row");
        (row.cfa, row.get(RBP), row.get(RETURN))
    };
    assert_eq!(at(1000), (Cfa::Register(RSP, 8), Saved::Same, Saved::At(-8)));
    assert_eq!(at(1001), (Cfa::Register(RSP, 16), Saved::At(-16), Saved::At(-8)));
    assert_eq!(at(1003).0, Cfa::Register(RSP, 16));
    assert_eq!(at(1004).0, Cfa::Register(RBP, 16));
    assert_eq!(at(1104).0, Cfa::Register(RSP, 8));
}

#[test]
fn states_are_remembered_and_restored() {
    let fde = [0x41, 0x0e, 48, 0x0a, 0x42, 0x0e, 8, 0x41, 0x0b];
    assert_eq!(row_of(&CIE, &fde, 1003).expect("a row").cfa, Cfa::Register(RSP, 8));
    assert_eq!(row_of(&CIE, &fde, 1004).expect("a row").cfa, Cfa::Register(RSP, 48));
    assert!(row_of(&CIE, &[0x0b], 1000).is_none(), "nothing was remembered");
}

#[test]
fn rules_are_what_rows_come_down_to() {
    let rule = |fde: &[u8]| Rule::of(&row_of(&CIE, fde, 1000).expect("a row"), false);
    let shape = |r: Rule| (r.kind(), r.cfa(), r.saves_bp().then(|| r.bp()));
    assert_eq!(shape(rule(&[])), (Kind::Sp, 8, None));
    assert_eq!(shape(rule(&[0x0e, 0x80, 0x01, 0x86, 5])), (Kind::Sp, 128, Some(-40)));
    assert_eq!(shape(rule(&[0x0c, 6, 16, 0x86, 2])), (Kind::Bp, 16, Some(-16)));
    // A realigned stack: the CFA stands at rbp − 8, the caller's rbp at rbp.
    assert_eq!(shape(rule(&[0x0f, 3, 0x76, 0x78, 0x06, 0x10, 6, 2, 0x76, 0])), (Kind::Deref, -8, Some(0)));
    // The loader's resolver works with rbx; no return address is the end.
    assert_eq!(rule(&[0x0c, 3, 24]).kind(), Kind::Slow);
    assert_eq!(rule(&[0x07, 16]).kind(), Kind::End);
    assert_eq!(rule(&[0x0e, 0x80, 0x80, 0x80, 0x80, 0x10]).kind(), Kind::Slow, "4 GiB do not fit");
}

/// A frame whose registers are 100 times their number, and whose memory holds its own addresses plus one.
struct Plain;
impl Frame for Plain {
    fn register(&self, number: u8) -> Option<u64> {
        Some(number as u64 * 100)
    }
    fn load(&mut self, at: u64) -> Option<u64> {
        Some(at.wrapping_add(1))
    }
}

fn value(bytes: &[u8], first: Option<u64>) -> Option<u64> {
    evaluate(Expression { at: bytes.as_ptr() as usize, len: bytes.len() as u32 }, first, &mut Plain)
}

#[test]
fn expressions_have_their_values() {
    // PLT entries: rsp + 8 + ((rip & 15) >= 11) << 3, with rip 1600 = 16 · 100.
    assert_eq!(value(&[0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22], None), Some(708));
    assert_eq!(value(&[0x77, 8, 0x80, 12, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22], None), Some(716));
    assert_eq!(value(&[0x77, 0xa0, 0x01, 0x06], None), Some(861));
    assert_eq!(value(&[0x23, 5], Some(7)), Some(12));
    assert_eq!(value(&[0x22], Some(7)), None, "one value is no sum");
    assert_eq!(value(&[0x2f, 0xfd, 0xff], Some(1)), None, "goes round for ever");
    assert_eq!(value(&[0x30; 17], None), None, "too deep");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_instructions_end(cie in prop::collection::vec(any::<u8>(), 0..40), fde in prop::collection::vec(any::<u8>(), 0..80), place in 990usize..3000) {
        if let Some(row) = row_of(&cie, &fde, place) {
            let _ = Rule::of(&row, true);
        }
    }

    #[test]
    fn any_expression_ends(code in prop::collection::vec(any::<u8>(), 0..60)) {
        let _ = value(&code, Some(1));
    }

    /// An index and tables around it, with some bytes changed: whatever they say, nothing outside is read.
    #[test]
    fn any_tables_end(changes in prop::collection::vec((0usize..112, any::<u8>()), 0..12), place in 0usize..200) {
        let mut bytes = sound_tables();
        for (at, v) in changes {
            if let Some(b) = bytes.get_mut(at) {
                *b = v;
            }
        }
        let start = bytes.as_ptr() as usize;
        let tables = Tables { index: [start, start + 20], entry: 0, stays: true, segments: segment(start, bytes.len()) };
        let mut s = scratch();
        let _ = eh_frame::find(&tables, start + place, &mut s).map(|(row, signal)| Rule::of(row, signal));
    }
}

fn segment(start: usize, len: usize) -> [[usize; 2]; SEGMENTS] {
    let mut all = [[0; 2]; SEGMENTS];
    all[SEGMENTS - 1] = [start, start + len];
    all
}

/// An index of one function, its CIE and FDE: code at 100 to 150, of which all addresses are relative.
fn sound_tables() -> Vec<u8> {
    let mut b = vec![1, 0x1b, 0x03, 0x3b];
    b.extend(16i32.to_le_bytes());
    b.extend(1u32.to_le_bytes());
    b.extend(100i32.to_le_bytes());
    b.extend(44i32.to_le_bytes());
    // CIE at 20: length, id, version, "zR", 1, −8, 16, 1 byte, encoding, instructions.
    b.extend(20u32.to_le_bytes());
    b.extend(0u32.to_le_bytes());
    b.extend([1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b]);
    b.extend(CIE);
    b.resize(44, 0);
    // FDE at 44: length, back to the CIE, begin, range, no augmentation, instructions.
    b.extend(20u32.to_le_bytes());
    b.extend(28u32.to_le_bytes());
    b.extend((100i32 - 52).to_le_bytes());
    b.extend(50u32.to_le_bytes());
    b.extend([0, 0x44, 0x0e, 32]);
    b.resize(112, 0);
    b
}

#[test]
fn functions_are_found_by_the_index() {
    let bytes = sound_tables();
    let start = bytes.as_ptr() as usize;
    let tables = Tables { index: [start, start + 20], entry: 0, stays: true, segments: segment(start, bytes.len()) };
    let mut s = scratch();
    let mut cfa = |place: usize| eh_frame::find(&tables, start + place, &mut s).map(|(row, _)| row.cfa);
    assert_eq!(cfa(99), None);
    assert_eq!(cfa(100), Some(Cfa::Register(RSP, 8)));
    assert_eq!(cfa(104), Some(Cfa::Register(RSP, 32)));
    assert_eq!(cfa(149), Some(Cfa::Register(RSP, 32)));
    assert_eq!(cfa(150), None);
}
