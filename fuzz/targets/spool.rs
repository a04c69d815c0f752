//! A spool: its first words are made right, what follows is scattered over its parts.
#![no_main]
use libfuzzer_sys::fuzz_target;
use memshim::trace::line;
use memshim::trace::recover::recover;
use memshim_format::spool as layout;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;

fuzz_target!(|bytes: &[u8]| {
    let path = std::env::temp_dir().join(format!("memshim-fuzz-{}.spool", std::process::id()));
    let file = std::fs::File::create(&path).expect("a file to read");
    file.set_len(layout::TABLE_OFF as u64 + (1 << 16)).expect("a sparse file");
    // Pieces of 64 bytes: where each goes, then what it is.
    let parts = [0, layout::LANES_OFF, layout::KINDS_OFF, layout::SIDE_OFF, layout::BLOCKS_OFF, layout::TABLE_OFF];
    for piece in bytes.chunks(66).filter(|p| p.len() > 2) {
        let at = parts[piece[0] as usize % parts.len()] + piece[1] as usize * 64;
        file.write_all_at(&piece[2..], at as u64).expect("a byte into the file");
    }
    file.write_all_at(&layout::MAGIC.to_le_bytes(), offset_of!(layout::Header, magic) as u64).expect("its magic");
    file.write_all_at(&layout::VERSION.to_le_bytes(), offset_of!(layout::Header, version) as u64).expect("its version");
    if let Ok(recovered) = recover(&path, 100) {
        for text in recovered.lines.split(|&c| c == b'\n').filter(|l| !l.is_empty()) {
            let _ = line::parse(text);
        }
    }
});
