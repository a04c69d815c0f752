//! Copies of two and three dimensions.

use super::{
    Host::{GoesOn, Waits},
    plane, volume, volumes,
};
use crate::arguments::In;
use crate::call::driver_functions;
use crate::layouts::{Operation, Plane, Volume};
use crate::streams::Default::{Legacy, Own};

driver_functions! { call;
    cuMemcpy2D(p: In<Plane<u32, u32>>) => plane(&call, p, 0, Legacy, Waits);
    cuMemcpy2D_v2(p: In<Plane<u64, u64>>) => plane(&call, p, 0, Legacy, Waits);
    cuMemcpy2D_v2_ptds(p: In<Plane<u64, u64>>) => plane(&call, p, 0, Own, Waits);
    cuMemcpy2DUnaligned(p: In<Plane<u32, u32>>) => plane(&call, p, 0, Legacy, Waits);
    cuMemcpy2DUnaligned_v2(p: In<Plane<u64, u64>>) => plane(&call, p, 0, Legacy, Waits);
    cuMemcpy2DUnaligned_v2_ptds(p: In<Plane<u64, u64>>) => plane(&call, p, 0, Own, Waits);
    cuMemcpy2DAsync(p: In<Plane<u32, u32>>, s: u64) => plane(&call, p, s, Legacy, GoesOn);
    cuMemcpy2DAsync_v2(p: In<Plane<u64, u64>>, s: u64) => plane(&call, p, s, Legacy, GoesOn);
    cuMemcpy2DAsync_v2_ptsz(p: In<Plane<u64, u64>>, s: u64) => plane(&call, p, s, Own, GoesOn);
    cuMemcpy3D(p: In<Volume<u32, u32>>) => volume(&call, p, 0, Legacy, Waits);
    cuMemcpy3D_v2(p: In<Volume<u64, u64>>) => volume(&call, p, 0, Legacy, Waits);
    cuMemcpy3D_v2_ptds(p: In<Volume<u64, u64>>) => volume(&call, p, 0, Own, Waits);
    cuMemcpy3DAsync(p: In<Volume<u32, u32>>, s: u64) => volume(&call, p, s, Legacy, GoesOn);
    cuMemcpy3DAsync_v2(p: In<Volume<u64, u64>>, s: u64) => volume(&call, p, s, Legacy, GoesOn);
    cuMemcpy3DAsync_v2_ptsz(p: In<Volume<u64, u64>>, s: u64) => volume(&call, p, s, Own, GoesOn);
    cuMemcpy3DPeer(p: In<Volume<u64, u64>>) => volume(&call, p, 0, Legacy, Waits);
    cuMemcpy3DPeer_ptds(p: In<Volume<u64, u64>>) => volume(&call, p, 0, Own, Waits);
    cuMemcpy3DPeerAsync(p: In<Volume<u64, u64>>, s: u64) => volume(&call, p, s, Legacy, GoesOn);
    cuMemcpy3DPeerAsync_ptsz(p: In<Volume<u64, u64>>, s: u64) => volume(&call, p, s, Own, GoesOn);
    cuMemcpy3DBatchAsync(n: usize, o: In<Operation>, failed: usize, flags: u64, s: u64) => volumes(&call, o, n, s, Legacy);
    cuMemcpy3DBatchAsync_ptsz(n: usize, o: In<Operation>, failed: usize, flags: u64, s: u64) => volumes(&call, o, n, s, Own);
    cuMemcpy3DBatchAsync_v2(n: usize, o: In<Operation>, flags: u64, s: u64) => volumes(&call, o, n, s, Legacy);
    cuMemcpy3DBatchAsync_v2_ptsz(n: usize, o: In<Operation>, flags: u64, s: u64) => volumes(&call, o, n, s, Own);
    cuMemcpy3DWithAttributesAsync(o: In<Operation>, flags: u64, s: u64) => volumes(&call, o, 1, s, Legacy);
    cuMemcpy3DWithAttributesAsync_ptsz(o: In<Operation>, flags: u64, s: u64) => volumes(&call, o, 1, s, Own);
}
