//! Copies of bytes that lie in a row, between addresses, arrays and contexts.

use super::{
    Host::{GoesOn, Waits},
    OfArray, copy, half_of, peer, several,
};
use crate::arguments::In;
use crate::call::{answered, driver_functions};
use crate::streams::Default::{Legacy, Own};

driver_functions! { call;
    cuMemcpyHtoD(to: u32, from: u64, n: u32) => copy(&call, to, from, n, 0, Legacy, Waits);
    cuMemcpyHtoD_v2(to: u64, from: u64, n: u64) => match half_of(n) {
        Some(half) => answered(cuMemcpyHtoD_v2(to, from, half)).and_then(|()| answered(cuMemcpyHtoD_v2(to + half, from + half, n - half))),
        None => copy(&call, to, from, n, 0, Legacy, Waits),
    };
    cuMemcpyHtoD_v2_ptds(to: u64, from: u64, n: u64) => copy(&call, to, from, n, 0, Own, Waits);
    cuMemcpyHtoDAsync(to: u32, from: u64, n: u32, s: u64) => copy(&call, to, from, n, s, Legacy, GoesOn);
    cuMemcpyHtoDAsync_v2(to: u64, from: u64, n: u64, s: u64) => copy(&call, to, from, n, s, Legacy, GoesOn);
    cuMemcpyHtoDAsync_v2_ptsz(to: u64, from: u64, n: u64, s: u64) => copy(&call, to, from, n, s, Own, GoesOn);
    cuMemcpyDtoH(to: u64, from: u32, n: u32) => copy(&call, to, from, n, 0, Legacy, Waits);
    cuMemcpyDtoH_v2(to: u64, from: u64, n: u64) => copy(&call, to, from, n, 0, Legacy, Waits);
    cuMemcpyDtoH_v2_ptds(to: u64, from: u64, n: u64) => copy(&call, to, from, n, 0, Own, Waits);
    cuMemcpyDtoHAsync(to: u64, from: u32, n: u32, s: u64) => copy(&call, to, from, n, s, Legacy, GoesOn);
    cuMemcpyDtoHAsync_v2(to: u64, from: u64, n: u64, s: u64) => copy(&call, to, from, n, s, Legacy, GoesOn);
    cuMemcpyDtoHAsync_v2_ptsz(to: u64, from: u64, n: u64, s: u64) => copy(&call, to, from, n, s, Own, GoesOn);
    cuMemcpyDtoD(to: u32, from: u32, n: u32) => copy(&call, to, from, n, 0, Legacy, Waits);
    cuMemcpyDtoD_v2(to: u64, from: u64, n: u64) => copy(&call, to, from, n, 0, Legacy, Waits);
    cuMemcpyDtoD_v2_ptds(to: u64, from: u64, n: u64) => copy(&call, to, from, n, 0, Own, Waits);
    cuMemcpyDtoDAsync(to: u32, from: u32, n: u32, s: u64) => copy(&call, to, from, n, s, Legacy, GoesOn);
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, n: u64, s: u64) => copy(&call, to, from, n, s, Legacy, GoesOn);
    cuMemcpyDtoDAsync_v2_ptsz(to: u64, from: u64, n: u64, s: u64) => copy(&call, to, from, n, s, Own, GoesOn);
    cuMemcpy(to: u64, from: u64, n: u64) => copy(&call, to, from, n, 0, Legacy, Waits);
    cuMemcpy_ptds(to: u64, from: u64, n: u64) => copy(&call, to, from, n, 0, Own, Waits);
    cuMemcpyAsync(to: u64, from: u64, n: u64, s: u64) => copy(&call, to, from, n, s, Legacy, GoesOn);
    cuMemcpyAsync_ptsz(to: u64, from: u64, n: u64, s: u64) => copy(&call, to, from, n, s, Own, GoesOn);
    cuMemcpyWithAttributesAsync(to: u64, from: u64, n: u64, attributes: usize, s: u64) => copy(&call, to, from, n, s, Legacy, GoesOn);
    cuMemcpyWithAttributesAsync_ptsz(to: u64, from: u64, n: u64, attributes: usize, s: u64) => copy(&call, to, from, n, s, Own, GoesOn);
    cuMemcpyPeer(to: u64, to_context: u64, from: u64, from_context: u64, n: u64) => peer(&call, (to, to_context), (from, from_context), n, 0, Legacy, Waits);
    cuMemcpyPeer_ptds(to: u64, to_context: u64, from: u64, from_context: u64, n: u64) => peer(&call, (to, to_context), (from, from_context), n, 0, Own, Waits);
    cuMemcpyPeerAsync(to: u64, to_context: u64, from: u64, from_context: u64, n: u64, s: u64) => peer(&call, (to, to_context), (from, from_context), n, s, Legacy, GoesOn);
    cuMemcpyPeerAsync_ptsz(to: u64, to_context: u64, from: u64, from_context: u64, n: u64, s: u64) => peer(&call, (to, to_context), (from, from_context), n, s, Own, GoesOn);
    // Arrays hold nothing here.
    cuMemcpyAtoA(to: u64, to_at: u32, from: u64, from_at: u32, n: u32) => copy(&call, OfArray, OfArray, n, 0, Legacy, Waits);
    cuMemcpyAtoD(to: u32, from: u64, at: u32, n: u32) => copy(&call, to, OfArray, n, 0, Legacy, Waits);
    cuMemcpyDtoA(to: u64, at: u32, from: u32, n: u32) => copy(&call, OfArray, from, n, 0, Legacy, Waits);
    cuMemcpyAtoH(to: u64, from: u64, at: u32, n: u32) => copy(&call, to, OfArray, n, 0, Legacy, Waits);
    cuMemcpyHtoA(to: u64, at: u32, from: u64, n: u32) => copy(&call, OfArray, from, n, 0, Legacy, Waits);
    cuMemcpyAtoA_v2(to: u64, to_at: u64, from: u64, from_at: u64, n: u64) => copy(&call, OfArray, OfArray, n, 0, Legacy, Waits);
    cuMemcpyAtoD_v2(to: u64, from: u64, at: u64, n: u64) => copy(&call, to, OfArray, n, 0, Legacy, Waits);
    cuMemcpyDtoA_v2(to: u64, at: u64, from: u64, n: u64) => copy(&call, OfArray, from, n, 0, Legacy, Waits);
    cuMemcpyAtoH_v2(to: u64, from: u64, at: u64, n: u64) => copy(&call, to, OfArray, n, 0, Legacy, Waits);
    cuMemcpyHtoA_v2(to: u64, at: u64, from: u64, n: u64) => copy(&call, OfArray, from, n, 0, Legacy, Waits);
    cuMemcpyAtoA_v2_ptds(to: u64, to_at: u64, from: u64, from_at: u64, n: u64) => copy(&call, OfArray, OfArray, n, 0, Own, Waits);
    cuMemcpyAtoD_v2_ptds(to: u64, from: u64, at: u64, n: u64) => copy(&call, to, OfArray, n, 0, Own, Waits);
    cuMemcpyDtoA_v2_ptds(to: u64, at: u64, from: u64, n: u64) => copy(&call, OfArray, from, n, 0, Own, Waits);
    cuMemcpyAtoH_v2_ptds(to: u64, from: u64, at: u64, n: u64) => copy(&call, to, OfArray, n, 0, Own, Waits);
    cuMemcpyHtoA_v2_ptds(to: u64, at: u64, from: u64, n: u64) => copy(&call, OfArray, from, n, 0, Own, Waits);
    cuMemcpyAtoHAsync(to: u64, from: u64, at: u32, n: u32, s: u64) => copy(&call, to, OfArray, n, s, Legacy, GoesOn);
    cuMemcpyHtoAAsync(to: u64, at: u32, from: u64, n: u32, s: u64) => copy(&call, OfArray, from, n, s, Legacy, GoesOn);
    cuMemcpyAtoHAsync_v2(to: u64, from: u64, at: u64, n: u64, s: u64) => copy(&call, to, OfArray, n, s, Legacy, GoesOn);
    cuMemcpyHtoAAsync_v2(to: u64, at: u64, from: u64, n: u64, s: u64) => copy(&call, OfArray, from, n, s, Legacy, GoesOn);
    cuMemcpyAtoHAsync_v2_ptsz(to: u64, from: u64, at: u64, n: u64, s: u64) => copy(&call, to, OfArray, n, s, Own, GoesOn);
    cuMemcpyHtoAAsync_v2_ptsz(to: u64, at: u64, from: u64, n: u64, s: u64) => copy(&call, OfArray, from, n, s, Own, GoesOn);
    cuMemcpyBatchAsync(to: In<u64>, from: In<u64>, n: In<u64>, count: usize, attributes: usize, of: usize, kinds: usize, failed: usize, s: u64) => several(&call, to, from, n, count, s, Legacy);
    cuMemcpyBatchAsync_ptsz(to: In<u64>, from: In<u64>, n: In<u64>, count: usize, attributes: usize, of: usize, kinds: usize, failed: usize, s: u64) => several(&call, to, from, n, count, s, Own);
    cuMemcpyBatchAsync_v2(to: In<u64>, from: In<u64>, n: In<u64>, count: usize, attributes: usize, of: usize, kinds: usize, s: u64) => several(&call, to, from, n, count, s, Legacy);
    cuMemcpyBatchAsync_v2_ptsz(to: In<u64>, from: In<u64>, n: In<u64>, count: usize, attributes: usize, of: usize, kinds: usize, s: u64) => several(&call, to, from, n, count, s, Own);
}
