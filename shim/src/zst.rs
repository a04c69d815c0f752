//! Compressed traces: zstd frames of whole lines, made as the lines come.
//!
//! The writer thread compresses (level 1, in memory of its own that libzstd never adds to); each write is flushed, so that a killed process
//! leaves whole blocks, and a frame ends after about 1 MiB. Other threads, whose stacks may be tiny, never compress: they close
//! the open frame by an empty last block and write a frame of raw blocks.

use crate::sys;
use crate::text::Text;
use core::ffi::c_void;
use zstd_sys as zstd;

/// First bytes of a zstd frame.
pub const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// What a frame that [`raw`] made begins with: one segment, its size in four bytes, no checksum.
pub const RAW_BEGIN: [u8; 5] = [0x28, 0xb5, 0x2f, 0xfd, 0xa0];
/// Bytes before the text of a frame that [`raw`] made.
pub const RAW_HEAD: usize = 4 + 1 + 4 + 3;
/// Text in a frame before it is ended.
const FRAME: usize = 1 << 20;
/// Text in a raw block at most.
const BLOCK: usize = 128 << 10;
const OUT: usize = 64 << 10;
/// An empty raw block, the last of its frame.
const LAST: [u8; 3] = [1, 0, 0];

struct Packer {
    memory: *mut u8,
    len: usize,
    stream: *mut zstd::ZSTD_CCtx,
    out: *mut u8,
    /// Text in the open frame; 0 none is open.
    in_frame: usize,
}

static mut PACKER: Packer =
    Packer { memory: core::ptr::null_mut(), len: 0, stream: core::ptr::null_mut(), out: core::ptr::null_mut(), in_frame: 0 };

/// Memory taken, in bytes.
pub fn private() -> usize {
    // SAFETY: the lock is held.
    unsafe { PACKER.len }
}

/// Whether a frame is open: what is written raw next ends it first.
pub fn is_open() -> bool {
    // SAFETY: the lock is held.
    unsafe { PACKER.in_frame > 0 }
}

/// The file was cut to where a frame was open, or none was; an open one can only be ended (by [`raw`]).
pub fn cut(open: bool) {
    // SAFETY: the lock is held.
    unsafe {
        PACKER.in_frame = open as usize;
        if !PACKER.stream.is_null() {
            zstd::ZSTD_CCtx_reset(PACKER.stream, zstd::ZSTD_ResetDirective::ZSTD_reset_session_only);
        }
    }
}

/// A forked child's file starts with no open frame.
pub fn reset() {
    // SAFETY: one thread.
    unsafe { PACKER.in_frame = 0 };
}

/// Compresses `text` and hands what comes of it to `write`. False: it could not be written. The lock is held; for the writer thread.
pub fn pack(text: &[u8], mut write: impl FnMut(&[u8]) -> bool) -> bool {
    // SAFETY: the lock is held; libzstd gets the memory it asked for and two buffers of the stated sizes.
    unsafe {
        if !ready() {
            return raw(text, write);
        }
        let p = &mut *(&raw mut PACKER);
        let end = p.in_frame + text.len() > FRAME;
        let how = if end { zstd::ZSTD_EndDirective::ZSTD_e_end } else { zstd::ZSTD_EndDirective::ZSTD_e_flush };
        let mut input = zstd::ZSTD_inBuffer { src: text.as_ptr().cast::<c_void>(), size: text.len(), pos: 0 };
        loop {
            let mut output = zstd::ZSTD_outBuffer { dst: p.out.cast::<c_void>(), size: OUT, pos: 0 };
            let left = zstd::ZSTD_compressStream2(p.stream, &mut output, &mut input, how);
            if zstd::ZSTD_isError(left) != 0 {
                zstd::ZSTD_CCtx_reset(p.stream, zstd::ZSTD_ResetDirective::ZSTD_reset_session_only);
                return raw(text.get(input.pos..).unwrap_or(b""), write);
            }
            if output.pos > 0 && !write(core::slice::from_raw_parts(p.out, output.pos)) {
                return false;
            }
            if left == 0 && input.pos == input.size {
                break;
            }
        }
        p.in_frame = if end { 0 } else { p.in_frame + text.len() };
        true
    }
}

/// Writes `text` as a frame of raw blocks, after closing the one that is open. The lock is held, or one thread exists.
pub fn raw(text: &[u8], mut write: impl FnMut(&[u8]) -> bool) -> bool {
    // SAFETY: as above.
    unsafe {
        if PACKER.in_frame > 0 {
            PACKER.in_frame = 0;
            zstd::ZSTD_CCtx_reset(PACKER.stream, zstd::ZSTD_ResetDirective::ZSTD_reset_session_only);
            if !write(&LAST) {
                return false;
            }
        }
    }
    let mut chunks = text.chunks(BLOCK);
    let mut next = chunks.next();
    let mut first = true;
    while let Some(chunk) = next {
        next = chunks.next();
        let mut head = [0u8; RAW_HEAD];
        let mut t = Text::over(&mut head);
        if first {
            t.bytes(&RAW_BEGIN).bytes(&(text.len() as u32).to_le_bytes());
            first = false;
        }
        let block = ((chunk.len() as u32) << 3 | next.is_none() as u32).to_le_bytes();
        t.bytes(block.get(..3).unwrap_or(b""));
        if !write(t.as_bytes()) || !write(chunk) {
            return false;
        }
    }
    true
}

/// Sets libzstd up in memory of ours.
unsafe fn ready() -> bool {
    // SAFETY: the lock is held.
    unsafe {
        let p = &mut *(&raw mut PACKER);
        if p.stream.is_null() && p.len == 0 {
            let need = (zstd::ZSTD_estimateCStreamSize(1) + 4095) & !4095;
            p.len = need + OUT;
            p.memory = sys::map_anon(p.len);
            if p.memory.is_null() {
                return false;
            }
            p.out = p.memory.add(need);
            p.stream = zstd::ZSTD_initStaticCStream(p.memory.cast::<c_void>(), need);
            if !p.stream.is_null() {
                zstd::ZSTD_CCtx_setParameter(p.stream, zstd::ZSTD_cParameter::ZSTD_c_compressionLevel, 1);
            }
        }
        !p.stream.is_null()
    }
}
