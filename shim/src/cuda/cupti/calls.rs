//! Numbers by which CUPTI knows the driver's calls that start work: `CUPTI_DRIVER_TRACE_CBID_…` of its `cupti_driver_cbid.h`. A number, once
//! given, means its call in every version.

/// `cuLaunchKernel`, which every version knows.
pub const LAUNCH: u32 = 307;

/// By exported symbol: all that copy, set, or launch a kernel or a graph, but `cuLaunchCooperativeKernelMultiDevice`, whose kernels
/// have one number and each a stream of its own.
#[rustfmt::skip]
pub const IDS: [(&str, u16); 119] = [
    ("cuGraphLaunch", 514), ("cuGraphLaunch_ptsz", 515), ("cuLaunch", 115), ("cuLaunchCooperativeKernel", 477),
    ("cuLaunchCooperativeKernel_ptsz", 478), ("cuLaunchGrid", 116), ("cuLaunchGridAsync", 117), ("cuLaunchKernel", 307),
    ("cuLaunchKernel_ptsz", 442), ("cuLaunchKernelEx", 652), ("cuLaunchKernelEx_ptsz", 653), ("cuMemcpy", 305), ("cuMemcpy_ptds", 408),
    ("cuMemcpy2D", 56), ("cuMemcpy2D_v2", 287), ("cuMemcpy2D_v2_ptds", 405), ("cuMemcpy2DAsync", 68), ("cuMemcpy2DAsync_v2", 289),
    ("cuMemcpy2DAsync_v2_ptsz", 424), ("cuMemcpy2DUnaligned", 57), ("cuMemcpy2DUnaligned_v2", 288), ("cuMemcpy2DUnaligned_v2_ptds", 406),
    ("cuMemcpy3D", 58), ("cuMemcpy3D_v2", 290), ("cuMemcpy3D_v2_ptds", 407), ("cuMemcpy3DAsync", 69), ("cuMemcpy3DAsync_v2", 291),
    ("cuMemcpy3DAsync_v2_ptsz", 425), ("cuMemcpy3DBatchAsync", 778), ("cuMemcpy3DBatchAsync_v2", 798), ("cuMemcpy3DBatchAsync_ptsz", 779),
    ("cuMemcpy3DBatchAsync_v2_ptsz", 799), ("cuMemcpy3DPeer", 320), ("cuMemcpy3DPeer_ptds", 410), ("cuMemcpy3DPeerAsync", 321),
    ("cuMemcpy3DPeerAsync_ptsz", 427), ("cuMemcpy3DWithAttributesAsync", 839), ("cuMemcpy3DWithAttributesAsync_ptsz", 840),
    ("cuMemcpyAsync", 306), ("cuMemcpyAsync_ptsz", 418), ("cuMemcpyAtoA", 55), ("cuMemcpyAtoA_v2", 286), ("cuMemcpyAtoA_v2_ptds", 404),
    ("cuMemcpyAtoD", 51), ("cuMemcpyAtoD_v2", 284), ("cuMemcpyAtoD_v2_ptds", 401), ("cuMemcpyAtoH", 54), ("cuMemcpyAtoH_v2", 282),
    ("cuMemcpyAtoH_v2_ptds", 403), ("cuMemcpyAtoHAsync", 67), ("cuMemcpyAtoHAsync_v2", 283), ("cuMemcpyAtoHAsync_v2_ptsz", 420),
    ("cuMemcpyBatchAsync", 776), ("cuMemcpyBatchAsync_v2", 796), ("cuMemcpyBatchAsync_ptsz", 777), ("cuMemcpyBatchAsync_v2_ptsz", 797),
    ("cuMemcpyDtoA", 49), ("cuMemcpyDtoA_v2", 285), ("cuMemcpyDtoA_v2_ptds", 400), ("cuMemcpyDtoD", 47), ("cuMemcpyDtoD_v2", 280),
    ("cuMemcpyDtoD_v2_ptds", 399), ("cuMemcpyDtoDAsync", 64), ("cuMemcpyDtoDAsync_v2", 281), ("cuMemcpyDtoDAsync_v2_ptsz", 423),
    ("cuMemcpyDtoH", 45), ("cuMemcpyDtoH_v2", 278), ("cuMemcpyDtoH_v2_ptds", 398), ("cuMemcpyDtoHAsync", 62), ("cuMemcpyDtoHAsync_v2", 279),
    ("cuMemcpyDtoHAsync_v2_ptsz", 422), ("cuMemcpyHtoA", 53), ("cuMemcpyHtoA_v2", 292), ("cuMemcpyHtoA_v2_ptds", 402),
    ("cuMemcpyHtoAAsync", 66), ("cuMemcpyHtoAAsync_v2", 293), ("cuMemcpyHtoAAsync_v2_ptsz", 419), ("cuMemcpyHtoD", 43),
    ("cuMemcpyHtoD_v2", 276), ("cuMemcpyHtoD_v2_ptds", 397), ("cuMemcpyHtoDAsync", 60), ("cuMemcpyHtoDAsync_v2", 277),
    ("cuMemcpyHtoDAsync_v2_ptsz", 421), ("cuMemcpyPeer", 318), ("cuMemcpyPeer_ptds", 409), ("cuMemcpyPeerAsync", 319),
    ("cuMemcpyPeerAsync_ptsz", 426), ("cuMemcpyWithAttributesAsync", 837), ("cuMemcpyWithAttributesAsync_ptsz", 838), ("cuMemsetD16", 73),
    ("cuMemsetD16_v2", 250), ("cuMemsetD16_v2_ptds", 412), ("cuMemsetD16Async", 218), ("cuMemsetD16Async_ptsz", 429), ("cuMemsetD2D16", 79),
    ("cuMemsetD2D16_v2", 253), ("cuMemsetD2D16_v2_ptds", 415), ("cuMemsetD2D16Async", 224), ("cuMemsetD2D16Async_ptsz", 432),
    ("cuMemsetD2D32", 81), ("cuMemsetD2D32_v2", 254), ("cuMemsetD2D32_v2_ptds", 416), ("cuMemsetD2D32Async", 226),
    ("cuMemsetD2D32Async_ptsz", 433), ("cuMemsetD2D8", 77), ("cuMemsetD2D8_v2", 252), ("cuMemsetD2D8_v2_ptds", 414),
    ("cuMemsetD2D8Async", 222), ("cuMemsetD2D8Async_ptsz", 431), ("cuMemsetD32", 75), ("cuMemsetD32_v2", 251), ("cuMemsetD32_v2_ptds", 413),
    ("cuMemsetD32Async", 220), ("cuMemsetD32Async_ptsz", 430), ("cuMemsetD8", 71), ("cuMemsetD8_v2", 249), ("cuMemsetD8_v2_ptds", 411),
    ("cuMemsetD8Async", 216), ("cuMemsetD8Async_ptsz", 428),
];
