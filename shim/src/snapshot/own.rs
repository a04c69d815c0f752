//! The shim's own memory in the process, as a snapshot and the end state it.

use crate::lane::LANES;
use crate::spool::{HOTS_LEN, SPOOL};
use crate::table::TABLE;
use crate::text::Text;
use crate::{kinds, lines, sink, writer, zst};
use core::sync::atomic::Ordering::Relaxed;

/// Bytes of a table of which it is asked how many lie in memory: some 10 ms.
const ASKED_OF: u64 = 1 << 30;

/// The library's own image in memory.
struct Image {
    /// What it shares with everybody who has it loaded: code and constants.
    code: usize,
    /// Its variables.
    data: usize,
}

/// From the program headers, which stand where the linker says.
fn image() -> Image {
    unsafe extern "C" {
        #[link_name = "__ehdr_start"]
        static HEAD: libc::Elf64_Ehdr;
    }
    let mut image = Image { code: 0, data: 0 };
    // SAFETY: the linker's symbol; headers are part of the first segment.
    unsafe {
        let head = &raw const HEAD;
        let table = head.cast::<u8>().add((*head).e_phoff as usize).cast::<libc::Elf64_Phdr>();
        for i in 0..(*head).e_phnum as usize {
            let segment = &*table.add(i);
            if segment.p_type == libc::PT_LOAD {
                let of = if segment.p_flags & libc::PF_W != 0 { &mut image.data } else { &mut image.code };
                *of += segment.p_memsz as usize;
            }
        }
    }
    image
}

/// Appends `own`: the shim's own memory in this process. Private memory is stated whole where it is small, and else as far as it is used.
pub fn own(t: &mut Text) {
    // SAFETY: the lock is held.
    unsafe {
        let (table, blocks) = TABLE.size();
        let private = HOTS_LEN
            + size_of::<crate::lane::Samples>()
            + kinds::PRIVATE
            + lines::PRIVATE
            + writer::PRIVATE
            + zst::private()
            + sink::PRIVATE
            + crate::callers::private()
            + crate::phases::symbol::private()
            + crate::unwind::modules::private()
            + crate::python::private()
            + crate::cuda::private()
            + image().data;
        t.str(",\"own\":{\"spool\":").num(SPOOL.bytes).field("private", private as u64).field("table", table);
        // To ask takes a large table's time, at its end as well.
        if table <= ASKED_OF
            && let Some(resident) = TABLE.resident()
        {
            t.field("table_resident", resident);
        }
        t.field("code", image().code as u64);
        t.field("table_blocks", blocks).field("lanes", LANES.load(Relaxed) as u64).str("}");
    }
}
