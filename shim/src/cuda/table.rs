//! The one table of hooked driver functions. A line is an exported symbol:
//!
//! `symbol: call, version from which cuGetProcAddress gives this ABI, flavour, registers, shape;`
//!
//! The thresholds are those of NVIDIA's `cudaTypedefs.h`. *Flavour*: `Plain`; `Narrow`, the first ABI, with device addresses and sizes of
//! 32 bits; `PerThread`, whose default stream is the calling thread's own. *Registers*: `six` where all arguments are in registers, `wide`
//! where some are on the stack. *Shape*: which arguments mean what, see [`Shape`].
//!
//! Every function returns a result code and takes integers and pointers, so one body calls them all: registers that a function does not use
//! hold whatever they held, which it does not look at either.
//!
//! Each has three hooks. One is exported, and stands in place of what a program that is linked to the driver would call: another preloaded library's
//! wrapper, if there is one behind us. One is given out in place of the driver's own function, and one in place of what another library gives out.
//!
//! The last four are none of the driver's: by them a program takes CUPTI for itself, and [`super::cupti`] gives way.

use super::call::{self, Entry, Flavour, Hook};
use super::shape::{Form::*, Shape, Shape::*, Touch::*, Way::*};
use crate::phases::process::Driver;
use core::sync::atomic::AtomicUsize;
use memshim_format::gpu::{self, class};

/// A hook, with its body.
macro_rules! hook {
    (six $symbol:ident $body:ident $(#[$export:meta])?) => {
        /// # Safety
        /// As the driver's function.
        $(#[$export])?
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $symbol(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> i32 {
            // SAFETY: passed on as called.
            unsafe { call::$body(&ENTRIES[Index::$symbol as usize], [a, b, c, d, e, f].as_ptr()) }
        }
    };
    (wide $symbol:ident $body:ident $(#[$export:meta])?) => {
        /// # Safety
        /// As the driver's function. Words of the stack that are not arguments are the caller's own, and are handed on unread.
        $(#[$export])?
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub unsafe extern "C" fn $symbol(
            a: usize,
            b: usize,
            c: usize,
            d: usize,
            e: usize,
            f: usize,
            g: usize,
            h: usize,
            i: usize,
            j: usize,
            k: usize,
            l: usize,
            m: usize,
            n: usize,
        ) -> i32 {
            let args = [a, b, c, d, e, f, g, h, i, j, k, l, m, n];
            // SAFETY: passed on as called.
            unsafe { call::$body(&ENTRIES[Index::$symbol as usize], args.as_ptr()) }
        }
    };
}

macro_rules! is_wide {
    (six) => {
        false
    };
    (wide) => {
        true
    };
}

macro_rules! entries {
    ($($symbol:ident: $base:ident $version:literal $flavour:ident $registers:ident $shape:expr;)*) => {
        #[allow(non_camel_case_types)]
        enum Index { $($symbol),* }

        /// In the order of the table: the versions of one call from old to new.
        pub static ENTRIES: [Entry; [$(Index::$symbol as usize),*].len()] = [$(
            Entry {
                symbol: stringify!($symbol),
                base: stringify!($base),
                call: gpu::call_number(stringify!($base)),
                version: $version,
                flavour: Flavour::$flavour,
                wide: is_wide!($registers),
                shape: { const SHAPE: Shape = $shape; SHAPE },
                hook: Hook(given_out::$symbol as *const ()),
                export: Hook(exported::$symbol as *const ()),
                relay: Hook(relayed::$symbol as *const ()),
                real: AtomicUsize::new(0),
                front: AtomicUsize::new(0),
                given: AtomicUsize::new(0),
            },
        )*];

        mod exported {
            use super::{ENTRIES, Index, call};
            $( hook!($registers $symbol run_in_front #[unsafe(no_mangle)]); )*
        }

        mod given_out {
            use super::{ENTRIES, Index, call};
            $( hook!($registers $symbol run); )*
        }

        mod relayed {
            use super::{ENTRIES, Index, call};
            $( hook!($registers $symbol run_given); )*
        }
    };
}

#[rustfmt::skip]
entries! {
    cuArray3DCreate: cuArray3DCreate 2000 Narrow six Alloc(Array3);
    cuArray3DCreate_v2: cuArray3DCreate 3020 Plain six Alloc(Array3);
    cuArrayCreate: cuArrayCreate 2000 Narrow six Alloc(Array2);
    cuArrayCreate_v2: cuArrayCreate 3020 Plain six Alloc(Array2);
    cuArrayDestroy: cuArrayDestroy 2000 Plain six Free(class::ARRAY);
    cuCtxAttach: cuCtxAttach 2000 Plain six CtxAttach;
    cuCtxCreate: cuCtxCreate 2000 Narrow six CtxCreate;
    cuCtxCreate_v2: cuCtxCreate 3020 Plain six CtxCreate;
    cuCtxCreate_v3: cuCtxCreate 11040 Plain six CtxCreate;
    cuCtxCreate_v4: cuCtxCreate 12050 Plain six CtxCreate;
    cuCtxDestroy: cuCtxDestroy 2000 Plain six CtxDestroy;
    cuCtxDestroy_v2: cuCtxDestroy 4000 Plain six CtxDestroy;
    cuCtxDetach: cuCtxDetach 2000 Plain six CtxDetach;
    cuCtxFromGreenCtx: cuCtxFromGreenCtx 12040 Plain six GreenContext;
    cuCtxSynchronize: cuCtxSynchronize 2000 Plain six HostWait;
    cuCtxSynchronize_v2: cuCtxSynchronize 13000 Plain six HostWait;
    cuDestroyExternalMemory: cuDestroyExternalMemory 10000 Plain six Free(class::EXTERNAL);
    cuDevicePrimaryCtxRelease: cuDevicePrimaryCtxRelease 7000 Plain six PrimaryRelease;
    cuDevicePrimaryCtxRelease_v2: cuDevicePrimaryCtxRelease 11000 Plain six PrimaryRelease;
    cuDevicePrimaryCtxReset: cuDevicePrimaryCtxReset 7000 Plain six PrimaryReset;
    cuDevicePrimaryCtxReset_v2: cuDevicePrimaryCtxReset 11000 Plain six PrimaryReset;
    cuDevicePrimaryCtxRetain: cuDevicePrimaryCtxRetain 7000 Plain six PrimaryRetain;
    cuEventSynchronize: cuEventSynchronize 2000 Plain six HostWait;
    cuExternalMemoryGetMappedBuffer: cuExternalMemoryGetMappedBuffer 10000 Plain six Alloc(ExternalBuffer);
    cuExternalMemoryGetMappedMipmappedArray: cuExternalMemoryGetMappedMipmappedArray 10000 Plain six Alloc(ExternalMipmap);
    cuGetProcAddress: cuGetProcAddress 11030 Plain six Lookup;
    cuGetProcAddress_v2: cuGetProcAddress 12000 Plain six Lookup;
    cuGraphAddChildGraphNode: cuGraphAddChildGraphNode 10000 Plain six AddChildNode;
    cuGraphAddMemAllocNode: cuGraphAddMemAllocNode 11040 Plain six AddAllocNode;
    cuGraphAddMemFreeNode: cuGraphAddMemFreeNode 11040 Plain six AddFreeNode;
    cuGraphAddMemcpyNode: cuGraphAddMemcpyNode 10000 Plain six AddCopyNode;
    cuGraphAddMemsetNode: cuGraphAddMemsetNode 10000 Plain six AddSetNode;
    cuGraphAddNode: cuGraphAddNode 12020 Plain six AddNode(4);
    cuGraphAddNode_v2: cuGraphAddNode 12030 Plain six AddNode(5);
    cuGraphAddNode_v3: cuGraphAddNode 13040 Plain six AddNode(5);
    cuGraphClone: cuGraphClone 10000 Plain six GraphClone;
    cuGraphCreate: cuGraphCreate 10000 Plain six GraphCreate;
    cuGraphDestroy: cuGraphDestroy 10000 Plain six GraphDestroy;
    cuGraphDestroyNode: cuGraphDestroyNode 10000 Plain six NodeChange(ByNode(0));
    cuGraphExecChildGraphNodeSetParams: cuGraphExecChildGraphNodeSetParams 11010 Plain six ExecNodeUpdate(Always);
    cuGraphExecDestroy: cuGraphExecDestroy 10000 Plain six ExecDestroy;
    cuGraphExecKernelNodeSetParams: cuGraphExecKernelNodeSetParams 10010 Plain six ExecNodeUpdate(Never);
    cuGraphExecKernelNodeSetParams_v2: cuGraphExecKernelNodeSetParams 12000 Plain six ExecNodeUpdate(Never);
    cuGraphExecMemcpyNodeSetParams: cuGraphExecMemcpyNodeSetParams 10020 Plain six ExecNodeUpdate(Always);
    cuGraphExecMemsetNodeSetParams: cuGraphExecMemsetNodeSetParams 10020 Plain six ExecNodeUpdate(Always);
    cuGraphExecNodeSetParams: cuGraphExecNodeSetParams 12020 Plain six ExecNodeUpdate(ByParameters(2));
    cuGraphExecUpdate: cuGraphExecUpdate 10020 Plain six ExecUpdate;
    cuGraphExecUpdate_v2: cuGraphExecUpdate 12000 Plain six ExecUpdate;
    cuGraphInstantiate: cuGraphInstantiate 10000 Plain six Instantiate;
    cuGraphInstantiate_v2: cuGraphInstantiate 11000 Plain six Instantiate;
    cuGraphInstantiateWithFlags: cuGraphInstantiateWithFlags 11040 Plain six Instantiate;
    cuGraphInstantiateWithParams: cuGraphInstantiateWithParams 12000 Plain six Instantiate;
    cuGraphInstantiateWithParams_ptsz: cuGraphInstantiateWithParams 12000 PerThread six Instantiate;
    cuGraphLaunch: cuGraphLaunch 10000 Plain six GraphLaunch;
    cuGraphLaunch_ptsz: cuGraphLaunch 10000 PerThread six GraphLaunch;
    cuGraphMemcpyNodeSetParams: cuGraphMemcpyNodeSetParams 10000 Plain six NodeChange(Always);
    cuGraphMemsetNodeSetParams: cuGraphMemsetNodeSetParams 10000 Plain six NodeChange(Always);
    cuGraphNodeSetEnabled: cuGraphNodeSetEnabled 11060 Plain six ExecNodeUpdate(ByNode(1));
    cuGraphNodeSetParams: cuGraphNodeSetParams 12020 Plain six NodeChange(ByParameters(1));
    cuGraphNodeSetParams_v2: cuGraphNodeSetParams 13040 Plain six NodeChange(ByParameters(1));
    cuGraphUpload: cuGraphUpload 11010 Plain six GraphUpload;
    cuGraphUpload_ptsz: cuGraphUpload 11010 PerThread six GraphUpload;
    cuGreenCtxDestroy: cuGreenCtxDestroy 12040 Plain six GreenDestroy;
    cuGreenCtxStreamCreate: cuGreenCtxStreamCreate 12050 Plain six StreamCreate;
    cuImportExternalMemory: cuImportExternalMemory 10000 Plain six Alloc(External);
    cuInit: cuInit 2000 Plain six Start(Driver::Init);
    cuIpcCloseMemHandle: cuIpcCloseMemHandle 4010 Plain six Free(class::IPC);
    cuIpcOpenMemHandle: cuIpcOpenMemHandle 4010 Plain wide Alloc(Ipc);
    cuIpcOpenMemHandle_v2: cuIpcOpenMemHandle 11000 Plain wide Alloc(Ipc);
    cuLaunch: cuLaunch 2000 Plain six Kernel(0);
    cuLaunchCooperativeKernel: cuLaunchCooperativeKernel 9000 Plain wide Kernel(8);
    cuLaunchCooperativeKernel_ptsz: cuLaunchCooperativeKernel 9000 PerThread wide Kernel(8);
    cuLaunchCooperativeKernelMultiDevice: cuLaunchCooperativeKernelMultiDevice 9000 Plain six Kernels;
    cuLaunchGrid: cuLaunchGrid 2000 Plain six Kernel(0);
    cuLaunchGridAsync: cuLaunchGridAsync 2000 Plain six Kernel(3);
    cuLaunchKernel: cuLaunchKernel 4000 Plain wide Kernel(8);
    cuLaunchKernel_ptsz: cuLaunchKernel 7000 PerThread wide Kernel(8);
    cuLaunchKernelEx: cuLaunchKernelEx 11060 Plain six KernelEx;
    cuLaunchKernelEx_ptsz: cuLaunchKernelEx 11060 PerThread six KernelEx;
    cuMemAlloc: cuMemAlloc 2000 Narrow six Alloc(Linear);
    cuMemAlloc_v2: cuMemAlloc 3020 Plain six Alloc(Linear);
    cuMemAllocAsync: cuMemAllocAsync 11020 Plain six Alloc(Async);
    cuMemAllocAsync_ptsz: cuMemAllocAsync 11020 PerThread six Alloc(Async);
    cuMemAllocFromPoolAsync: cuMemAllocFromPoolAsync 11020 Plain six Alloc(FromPool);
    cuMemAllocFromPoolAsync_ptsz: cuMemAllocFromPoolAsync 11020 PerThread six Alloc(FromPool);
    cuMemAllocHost: cuMemAllocHost 2000 Narrow six Alloc(Host);
    cuMemAllocHost_v2: cuMemAllocHost 3020 Plain six Alloc(Host);
    cuMemAllocManaged: cuMemAllocManaged 6000 Plain six Alloc(Managed);
    cuMemAllocPitch: cuMemAllocPitch 2000 Narrow six Alloc(Pitch);
    cuMemAllocPitch_v2: cuMemAllocPitch 3020 Plain six Alloc(Pitch);
    cuMemCreate: cuMemCreate 10020 Plain six Alloc(Handle);
    cuMemDiscardAndPrefetchBatchAsync: cuMemDiscardAndPrefetchBatchAsync 13000 Plain wide PrefetchBatch;
    cuMemDiscardAndPrefetchBatchAsync_ptsz: cuMemDiscardAndPrefetchBatchAsync 13000 PerThread wide PrefetchBatch;
    cuMemFree: cuMemFree 2000 Narrow six Free(class::DEVICE);
    cuMemFree_v2: cuMemFree 3020 Plain six Free(class::DEVICE);
    cuMemFreeAsync: cuMemFreeAsync 11020 Plain six Free(class::POOL);
    cuMemFreeAsync_ptsz: cuMemFreeAsync 11020 PerThread six Free(class::POOL);
    cuMemFreeHost: cuMemFreeHost 2000 Plain six Free(class::PINNED);
    cuMemGetInfo: cuMemGetInfo 2000 Narrow six MemGetInfo;
    cuMemGetInfo_v2: cuMemGetInfo 3020 Plain six MemGetInfo;
    cuMemHostAlloc: cuMemHostAlloc 2020 Plain six Alloc(Host);
    cuMemHostRegister: cuMemHostRegister 4000 Plain six Alloc(Register);
    cuMemHostRegister_v2: cuMemHostRegister 6050 Plain six Alloc(Register);
    cuMemHostUnregister: cuMemHostUnregister 4000 Plain six Free(class::REGISTERED);
    cuMemImportFromShareableHandle: cuMemImportFromShareableHandle 10020 Plain six Alloc(ImportHandle);
    cuMemMap: cuMemMap 10020 Plain six Map;
    cuMemPoolCreate: cuMemPoolCreate 11020 Plain six PoolCreate;
    cuMemPoolDestroy: cuMemPoolDestroy 11020 Plain six PoolDestroy;
    cuMemPoolImportPointer: cuMemPoolImportPointer 11020 Plain six Alloc(PoolPointer);
    cuMemPoolSetAttribute: cuMemPoolSetAttribute 11020 Plain six PoolChange;
    cuMemPoolTrimTo: cuMemPoolTrimTo 11020 Plain six PoolChange;
    cuMemPrefetchAsync: cuMemPrefetchAsync 8000 Plain six Prefetch;
    cuMemPrefetchAsync_v2: cuMemPrefetchAsync 12020 Plain six Prefetch;
    cuMemPrefetchAsync_ptsz: cuMemPrefetchAsync 8000 PerThread six Prefetch;
    cuMemPrefetchAsync_v2_ptsz: cuMemPrefetchAsync 12020 PerThread six Prefetch;
    cuMemPrefetchBatchAsync: cuMemPrefetchBatchAsync 13000 Plain wide PrefetchBatch;
    cuMemPrefetchBatchAsync_ptsz: cuMemPrefetchBatchAsync 13000 PerThread wide PrefetchBatch;
    cuMemRelease: cuMemRelease 10020 Plain six Free(class::HANDLE);
    cuMemRetainAllocationHandle: cuMemRetainAllocationHandle 11000 Plain six Retain;
    cuMemUnmap: cuMemUnmap 10020 Plain six Unmap;
    cuMemcpy: cuMemcpy 4000 Plain six Copy(Any, 0, 1, 2, 0);
    cuMemcpy_ptds: cuMemcpy 7000 PerThread six Copy(Any, 0, 1, 2, 0);
    cuMemcpy2D: cuMemcpy2D 2000 Narrow six Copy2d(0);
    cuMemcpy2D_v2: cuMemcpy2D 3020 Plain six Copy2d(0);
    cuMemcpy2D_v2_ptds: cuMemcpy2D 7000 PerThread six Copy2d(0);
    cuMemcpy2DAsync: cuMemcpy2DAsync 2000 Narrow six Copy2d(1);
    cuMemcpy2DAsync_v2: cuMemcpy2DAsync 3020 Plain six Copy2d(1);
    cuMemcpy2DAsync_v2_ptsz: cuMemcpy2DAsync 7000 PerThread six Copy2d(1);
    cuMemcpy2DUnaligned: cuMemcpy2DUnaligned 2000 Narrow six Copy2d(0);
    cuMemcpy2DUnaligned_v2: cuMemcpy2DUnaligned 3020 Plain six Copy2d(0);
    cuMemcpy2DUnaligned_v2_ptds: cuMemcpy2DUnaligned 7000 PerThread six Copy2d(0);
    cuMemcpy3D: cuMemcpy3D 2000 Narrow six Copy3d(0);
    cuMemcpy3D_v2: cuMemcpy3D 3020 Plain six Copy3d(0);
    cuMemcpy3D_v2_ptds: cuMemcpy3D 7000 PerThread six Copy3d(0);
    cuMemcpy3DAsync: cuMemcpy3DAsync 2000 Narrow six Copy3d(1);
    cuMemcpy3DAsync_v2: cuMemcpy3DAsync 3020 Plain six Copy3d(1);
    cuMemcpy3DAsync_v2_ptsz: cuMemcpy3DAsync 7000 PerThread six Copy3d(1);
    cuMemcpy3DBatchAsync: cuMemcpy3DBatchAsync 12080 Plain six Copy3dBatch;
    cuMemcpy3DBatchAsync_v2: cuMemcpy3DBatchAsync 13000 Plain six Copy3dBatch;
    cuMemcpy3DBatchAsync_ptsz: cuMemcpy3DBatchAsync 12080 PerThread six Copy3dBatch;
    cuMemcpy3DBatchAsync_v2_ptsz: cuMemcpy3DBatchAsync 13000 PerThread six Copy3dBatch;
    cuMemcpy3DPeer: cuMemcpy3DPeer 4000 Plain six Copy3d(0);
    cuMemcpy3DPeer_ptds: cuMemcpy3DPeer 7000 PerThread six Copy3d(0);
    cuMemcpy3DPeerAsync: cuMemcpy3DPeerAsync 4000 Plain six Copy3d(1);
    cuMemcpy3DPeerAsync_ptsz: cuMemcpy3DPeerAsync 7000 PerThread six Copy3d(1);
    cuMemcpy3DWithAttributesAsync: cuMemcpy3DWithAttributesAsync 13020 Plain six Copy3dAttributes;
    cuMemcpy3DWithAttributesAsync_ptsz: cuMemcpy3DWithAttributesAsync 13020 PerThread six Copy3dAttributes;
    cuMemcpyAsync: cuMemcpyAsync 4000 Plain six Copy(Any, 0, 1, 2, 3);
    cuMemcpyAsync_ptsz: cuMemcpyAsync 7000 PerThread six Copy(Any, 0, 1, 2, 3);
    cuMemcpyAtoA: cuMemcpyAtoA 2000 Narrow six Copy(DtoD, 9, 9, 4, 0);
    cuMemcpyAtoA_v2: cuMemcpyAtoA 3020 Plain six Copy(DtoD, 9, 9, 4, 0);
    cuMemcpyAtoA_v2_ptds: cuMemcpyAtoA 7000 PerThread six Copy(DtoD, 9, 9, 4, 0);
    cuMemcpyAtoD: cuMemcpyAtoD 2000 Narrow six Copy(DtoD, 0, 9, 3, 0);
    cuMemcpyAtoD_v2: cuMemcpyAtoD 3020 Plain six Copy(DtoD, 0, 9, 3, 0);
    cuMemcpyAtoD_v2_ptds: cuMemcpyAtoD 7000 PerThread six Copy(DtoD, 0, 9, 3, 0);
    cuMemcpyAtoH: cuMemcpyAtoH 2000 Narrow six Copy(DtoH, 0, 9, 3, 0);
    cuMemcpyAtoH_v2: cuMemcpyAtoH 3020 Plain six Copy(DtoH, 0, 9, 3, 0);
    cuMemcpyAtoH_v2_ptds: cuMemcpyAtoH 7000 PerThread six Copy(DtoH, 0, 9, 3, 0);
    cuMemcpyAtoHAsync: cuMemcpyAtoHAsync 2000 Narrow six Copy(DtoH, 0, 9, 3, 4);
    cuMemcpyAtoHAsync_v2: cuMemcpyAtoHAsync 3020 Plain six Copy(DtoH, 0, 9, 3, 4);
    cuMemcpyAtoHAsync_v2_ptsz: cuMemcpyAtoHAsync 7000 PerThread six Copy(DtoH, 0, 9, 3, 4);
    cuMemcpyBatchAsync: cuMemcpyBatchAsync 12080 Plain wide CopyBatch;
    cuMemcpyBatchAsync_v2: cuMemcpyBatchAsync 13000 Plain wide CopyBatch;
    cuMemcpyBatchAsync_ptsz: cuMemcpyBatchAsync 12080 PerThread wide CopyBatch;
    cuMemcpyBatchAsync_v2_ptsz: cuMemcpyBatchAsync 13000 PerThread wide CopyBatch;
    cuMemcpyDtoA: cuMemcpyDtoA 2000 Narrow six Copy(DtoD, 9, 2, 3, 0);
    cuMemcpyDtoA_v2: cuMemcpyDtoA 3020 Plain six Copy(DtoD, 9, 2, 3, 0);
    cuMemcpyDtoA_v2_ptds: cuMemcpyDtoA 7000 PerThread six Copy(DtoD, 9, 2, 3, 0);
    cuMemcpyDtoD: cuMemcpyDtoD 2000 Narrow six Copy(DtoD, 0, 1, 2, 0);
    cuMemcpyDtoD_v2: cuMemcpyDtoD 3020 Plain six Copy(DtoD, 0, 1, 2, 0);
    cuMemcpyDtoD_v2_ptds: cuMemcpyDtoD 7000 PerThread six Copy(DtoD, 0, 1, 2, 0);
    cuMemcpyDtoDAsync: cuMemcpyDtoDAsync 3000 Narrow six Copy(DtoD, 0, 1, 2, 3);
    cuMemcpyDtoDAsync_v2: cuMemcpyDtoDAsync 3020 Plain six Copy(DtoD, 0, 1, 2, 3);
    cuMemcpyDtoDAsync_v2_ptsz: cuMemcpyDtoDAsync 7000 PerThread six Copy(DtoD, 0, 1, 2, 3);
    cuMemcpyDtoH: cuMemcpyDtoH 2000 Narrow six Copy(DtoH, 0, 1, 2, 0);
    cuMemcpyDtoH_v2: cuMemcpyDtoH 3020 Plain six Copy(DtoH, 0, 1, 2, 0);
    cuMemcpyDtoH_v2_ptds: cuMemcpyDtoH 7000 PerThread six Copy(DtoH, 0, 1, 2, 0);
    cuMemcpyDtoHAsync: cuMemcpyDtoHAsync 2000 Narrow six Copy(DtoH, 0, 1, 2, 3);
    cuMemcpyDtoHAsync_v2: cuMemcpyDtoHAsync 3020 Plain six Copy(DtoH, 0, 1, 2, 3);
    cuMemcpyDtoHAsync_v2_ptsz: cuMemcpyDtoHAsync 7000 PerThread six Copy(DtoH, 0, 1, 2, 3);
    cuMemcpyHtoA: cuMemcpyHtoA 2000 Narrow six Copy(HtoD, 9, 2, 3, 0);
    cuMemcpyHtoA_v2: cuMemcpyHtoA 3020 Plain six Copy(HtoD, 9, 2, 3, 0);
    cuMemcpyHtoA_v2_ptds: cuMemcpyHtoA 7000 PerThread six Copy(HtoD, 9, 2, 3, 0);
    cuMemcpyHtoAAsync: cuMemcpyHtoAAsync 2000 Narrow six Copy(HtoD, 9, 2, 3, 4);
    cuMemcpyHtoAAsync_v2: cuMemcpyHtoAAsync 3020 Plain six Copy(HtoD, 9, 2, 3, 4);
    cuMemcpyHtoAAsync_v2_ptsz: cuMemcpyHtoAAsync 7000 PerThread six Copy(HtoD, 9, 2, 3, 4);
    cuMemcpyHtoD: cuMemcpyHtoD 2000 Narrow six Copy(HtoD, 0, 1, 2, 0);
    cuMemcpyHtoD_v2: cuMemcpyHtoD 3020 Plain six Copy(HtoD, 0, 1, 2, 0);
    cuMemcpyHtoD_v2_ptds: cuMemcpyHtoD 7000 PerThread six Copy(HtoD, 0, 1, 2, 0);
    cuMemcpyHtoDAsync: cuMemcpyHtoDAsync 2000 Narrow six Copy(HtoD, 0, 1, 2, 3);
    cuMemcpyHtoDAsync_v2: cuMemcpyHtoDAsync 3020 Plain six Copy(HtoD, 0, 1, 2, 3);
    cuMemcpyHtoDAsync_v2_ptsz: cuMemcpyHtoDAsync 7000 PerThread six Copy(HtoD, 0, 1, 2, 3);
    cuMemcpyPeer: cuMemcpyPeer 4000 Plain six Copy(Peer, 0, 2, 4, 0);
    cuMemcpyPeer_ptds: cuMemcpyPeer 7000 PerThread six Copy(Peer, 0, 2, 4, 0);
    cuMemcpyPeerAsync: cuMemcpyPeerAsync 4000 Plain six Copy(Peer, 0, 2, 4, 5);
    cuMemcpyPeerAsync_ptsz: cuMemcpyPeerAsync 7000 PerThread six Copy(Peer, 0, 2, 4, 5);
    cuMemcpyWithAttributesAsync: cuMemcpyWithAttributesAsync 13020 Plain six Copy(Any, 0, 1, 2, 4);
    cuMemcpyWithAttributesAsync_ptsz: cuMemcpyWithAttributesAsync 13020 PerThread six Copy(Any, 0, 1, 2, 4);
    cuMemsetD16: cuMemsetD16 2000 Narrow six Set(2, 0);
    cuMemsetD16_v2: cuMemsetD16 3020 Plain six Set(2, 0);
    cuMemsetD16_v2_ptds: cuMemsetD16 7000 PerThread six Set(2, 0);
    cuMemsetD16Async: cuMemsetD16Async 3020 Plain six Set(2, 3);
    cuMemsetD16Async_ptsz: cuMemsetD16Async 7000 PerThread six Set(2, 3);
    cuMemsetD2D16: cuMemsetD2D16 2000 Narrow six Set2d(2, 0);
    cuMemsetD2D16_v2: cuMemsetD2D16 3020 Plain six Set2d(2, 0);
    cuMemsetD2D16_v2_ptds: cuMemsetD2D16 7000 PerThread six Set2d(2, 0);
    cuMemsetD2D16Async: cuMemsetD2D16Async 3020 Plain six Set2d(2, 5);
    cuMemsetD2D16Async_ptsz: cuMemsetD2D16Async 7000 PerThread six Set2d(2, 5);
    cuMemsetD2D32: cuMemsetD2D32 2000 Narrow six Set2d(4, 0);
    cuMemsetD2D32_v2: cuMemsetD2D32 3020 Plain six Set2d(4, 0);
    cuMemsetD2D32_v2_ptds: cuMemsetD2D32 7000 PerThread six Set2d(4, 0);
    cuMemsetD2D32Async: cuMemsetD2D32Async 3020 Plain six Set2d(4, 5);
    cuMemsetD2D32Async_ptsz: cuMemsetD2D32Async 7000 PerThread six Set2d(4, 5);
    cuMemsetD2D8: cuMemsetD2D8 2000 Narrow six Set2d(1, 0);
    cuMemsetD2D8_v2: cuMemsetD2D8 3020 Plain six Set2d(1, 0);
    cuMemsetD2D8_v2_ptds: cuMemsetD2D8 7000 PerThread six Set2d(1, 0);
    cuMemsetD2D8Async: cuMemsetD2D8Async 3020 Plain six Set2d(1, 5);
    cuMemsetD2D8Async_ptsz: cuMemsetD2D8Async 7000 PerThread six Set2d(1, 5);
    cuMemsetD32: cuMemsetD32 2000 Narrow six Set(4, 0);
    cuMemsetD32_v2: cuMemsetD32 3020 Plain six Set(4, 0);
    cuMemsetD32_v2_ptds: cuMemsetD32 7000 PerThread six Set(4, 0);
    cuMemsetD32Async: cuMemsetD32Async 3020 Plain six Set(4, 3);
    cuMemsetD32Async_ptsz: cuMemsetD32Async 7000 PerThread six Set(4, 3);
    cuMemsetD8: cuMemsetD8 2000 Narrow six Set(1, 0);
    cuMemsetD8_v2: cuMemsetD8 3020 Plain six Set(1, 0);
    cuMemsetD8_v2_ptds: cuMemsetD8 7000 PerThread six Set(1, 0);
    cuMemsetD8Async: cuMemsetD8Async 3020 Plain six Set(1, 3);
    cuMemsetD8Async_ptsz: cuMemsetD8Async 7000 PerThread six Set(1, 3);
    cuMipmappedArrayCreate: cuMipmappedArrayCreate 5000 Plain six Alloc(Mipmap);
    cuMipmappedArrayDestroy: cuMipmappedArrayDestroy 5000 Plain six Free(class::MIPMAP);
    cuMulticastCreate: cuMulticastCreate 12010 Plain six Alloc(Multicast);
    cuStreamBeginCapture: cuStreamBeginCapture 10000 Plain six CaptureBegin;
    cuStreamBeginCapture_v2: cuStreamBeginCapture 10010 Plain six CaptureBegin;
    cuStreamBeginCapture_ptsz: cuStreamBeginCapture 10000 PerThread six CaptureBegin;
    cuStreamBeginCapture_v2_ptsz: cuStreamBeginCapture 10010 PerThread six CaptureBegin;
    cuStreamBeginCaptureToCig: cuStreamBeginCaptureToCig 13010 Plain six CaptureBegin;
    cuStreamBeginCaptureToCig_ptsz: cuStreamBeginCaptureToCig 13010 PerThread six CaptureBegin;
    cuStreamBeginCaptureToGraph: cuStreamBeginCaptureToGraph 12030 Plain six CaptureBeginTo;
    cuStreamBeginCaptureToGraph_ptsz: cuStreamBeginCaptureToGraph 12030 PerThread six CaptureBeginTo;
    cuStreamBeginRecaptureToGraph: cuStreamBeginRecaptureToGraph 13030 Plain six Recapture;
    cuStreamBeginRecaptureToGraph_ptsz: cuStreamBeginRecaptureToGraph 13030 PerThread six Recapture;
    cuStreamCreate: cuStreamCreate 2000 Plain six StreamCreate;
    cuStreamCreateWithPriority: cuStreamCreateWithPriority 5050 Plain six StreamCreate;
    cuStreamDestroy: cuStreamDestroy 2000 Plain six StreamDestroy;
    cuStreamDestroy_v2: cuStreamDestroy 4000 Plain six StreamDestroy;
    cuStreamEndCapture: cuStreamEndCapture 10000 Plain six CaptureEnd;
    cuStreamEndCapture_ptsz: cuStreamEndCapture 10000 PerThread six CaptureEnd;
    cuStreamEndCaptureToCig: cuStreamEndCaptureToCig 13010 Plain six CaptureEndToCig;
    cuStreamEndCaptureToCig_ptsz: cuStreamEndCaptureToCig 13010 PerThread six CaptureEndToCig;
    cuStreamSynchronize: cuStreamSynchronize 2000 Plain six StreamSync;
    cuStreamSynchronize_ptsz: cuStreamSynchronize 7000 PerThread six StreamSync;
    cuptiActivityRegisterCallbacks: cuptiActivityRegisterCallbacks 0 Plain six Cupti;
    cuptiActivityRegisterCallbacks_v2: cuptiActivityRegisterCallbacks_v2 0 Plain six Cupti;
    cuptiSubscribe: cuptiSubscribe 0 Plain six Cupti;
    cuptiSubscribe_v2: cuptiSubscribe_v2 0 Plain six Cupti;
}
