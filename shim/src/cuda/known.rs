//! Driver calls that are known and need no hook: they neither give out memory that counts, nor move bytes, nor start work that is followed.
//! What is in neither list is named in the trace when a program asks for it: it is new to this version, or starts work or moves bytes in a way that is not
//! followed (`cuFabricCpyBatchAsync`).

/// In alphabetical order.
#[rustfmt::skip]
pub const NOT_HOOKED: [&str; 350] = [
    "cuArray3DGetDescriptor", "cuArrayGetDescriptor", "cuArrayGetMemoryRequirements", "cuArrayGetPlane", "cuArrayGetSparseProperties",
    "cuCheckpointOperationComplete", "cuCheckpointProcessCheckpoint", "cuCheckpointProcessGetRestoreThreadId",
    "cuCheckpointProcessGetState", "cuCheckpointProcessLock", "cuCheckpointProcessRestore", "cuCheckpointProcessUnlock",
    "cuCoredumpDeregisterCompleteCallback", "cuCoredumpDeregisterStartCallback", "cuCoredumpGetAttribute",
    "cuCoredumpGetAttributeGlobal", "cuCoredumpRegisterCompleteCallback", "cuCoredumpRegisterStartCallback", "cuCoredumpSetAttribute",
    "cuCoredumpSetAttributeGlobal", "cuCtxDisablePeerAccess", "cuCtxEnablePeerAccess",
    "cuCtxGetApiVersion", "cuCtxGetCacheConfig", "cuCtxGetCurrent", "cuCtxGetDevResource", "cuCtxGetDevice",
    "cuCtxGetExecAffinity", "cuCtxGetFlags", "cuCtxGetId", "cuCtxGetLimit", "cuCtxGetSharedMemConfig", "cuCtxGetStreamPriorityRange",
    "cuCtxPopCurrent", "cuCtxPushCurrent", "cuCtxRecordEvent", "cuCtxResetPersistingL2Cache", "cuCtxSetCacheConfig", "cuCtxSetCurrent",
    "cuCtxSetFlags", "cuCtxSetLimit", "cuCtxSetSharedMemConfig", "cuCtxWaitEvent", "cuDestroyExternalSemaphore",
    "cuDevResourceGenerateDesc", "cuDevSmResourceSplit", "cuDevSmResourceSplitByCount", "cuDeviceCanAccessPeer",
    "cuDeviceComputeCapability", "cuDeviceGet", "cuDeviceGetAttribute", "cuDeviceGetByPCIBusId", "cuDeviceGetCliqueCount",
    "cuDeviceGetCliqueInfo", "cuDeviceGetCount", "cuDeviceGetDefaultMemPool", "cuDeviceGetDevResource",
    "cuDeviceGetExecAffinitySupport", "cuDeviceGetFabricClusterUuid", "cuDeviceGetGraphMemAttribute",
    "cuDeviceGetHostAtomicCapabilities", "cuDeviceGetLuid", "cuDeviceGetMemPool", "cuDeviceGetName", "cuDeviceGetNvSciSyncAttributes",
    "cuDeviceGetP2PAtomicCapabilities", "cuDeviceGetP2PAttribute", "cuDeviceGetPCIBusId", "cuDeviceGetProperties",
    "cuDeviceGetTexture1DLinearMaxWidth", "cuDeviceGetUuid", "cuDeviceGraphMemTrim", "cuDevicePrimaryCtxGetState",
    "cuDevicePrimaryCtxSetFlags", "cuDeviceRegisterAsyncNotification", "cuDeviceSetGraphMemAttribute",
    "cuDeviceSetMemPool", "cuDeviceTotalMem", "cuDeviceUnregisterAsyncNotification", "cuDriverGetVersion", "cuEventCreate",
    "cuEventDestroy", "cuEventElapsedTime", "cuEventQuery", "cuEventRecord", "cuEventRecordWithFlags",
    "cuFlushGPUDirectRDMAWrites", "cuFuncGetAttribute",
    "cuFuncGetModule", "cuFuncGetName", "cuFuncGetParamCount", "cuFuncGetParamInfo", "cuFuncIsLoaded", "cuFuncLoad",
    "cuFuncSetAttribute", "cuFuncSetBlockShape", "cuFuncSetCacheConfig", "cuFuncSetSharedMemConfig", "cuFuncSetSharedSize",
    "cuGetErrorName", "cuGetErrorString", "cuGetExportTable", "cuGraphAddBatchMemOpNode", "cuGraphAddDependencies",
    "cuGraphAddEmptyNode", "cuGraphAddEventRecordNode", "cuGraphAddEventWaitNode", "cuGraphAddExternalSemaphoresSignalNode",
    "cuGraphAddExternalSemaphoresWaitNode", "cuGraphAddHostNode", "cuGraphAddKernelNode", "cuGraphAddMemAllocNode",
    "cuGraphAddMemFreeNode", "cuGraphBatchMemOpNodeGetParams", "cuGraphBatchMemOpNodeSetParams",
    "cuGraphChildGraphNodeGetGraph", "cuGraphConditionalHandleCreate", "cuGraphDebugDotPrint",
    "cuGraphEventRecordNodeGetEvent", "cuGraphEventRecordNodeSetEvent", "cuGraphEventWaitNodeGetEvent", "cuGraphEventWaitNodeSetEvent",
    "cuGraphExecBatchMemOpNodeSetParams", "cuGraphExecEventRecordNodeSetEvent", "cuGraphExecEventWaitNodeSetEvent",
    "cuGraphExecExternalSemaphoresSignalNodeSetParams", "cuGraphExecExternalSemaphoresWaitNodeSetParams", "cuGraphExecGetFlags",
    "cuGraphExecGetId", "cuGraphExecHostNodeSetParams", "cuGraphExternalSemaphoresSignalNodeGetParams",
    "cuGraphExternalSemaphoresSignalNodeSetParams", "cuGraphExternalSemaphoresWaitNodeGetParams",
    "cuGraphExternalSemaphoresWaitNodeSetParams", "cuGraphGetEdges", "cuGraphGetId", "cuGraphGetNodes", "cuGraphGetRootNodes",
    "cuGraphHostNodeGetParams", "cuGraphHostNodeSetParams", "cuGraphKernelNodeCopyAttributes", "cuGraphKernelNodeGetAttribute",
    "cuGraphKernelNodeGetParams", "cuGraphKernelNodeSetAttribute", "cuGraphKernelNodeSetParams", "cuGraphMemAllocNodeGetParams",
    "cuGraphMemFreeNodeGetParams", "cuGraphMemcpyNodeGetParams", "cuGraphMemsetNodeGetParams",
    "cuGraphNodeFindInClone", "cuGraphNodeGetContainingGraph", "cuGraphNodeGetDependencies",
    "cuGraphNodeGetDependentNodes", "cuGraphNodeGetEnabled", "cuGraphNodeGetLocalId", "cuGraphNodeGetParams", "cuGraphNodeGetToolsId",
    "cuGraphNodeGetType", "cuGraphReleaseUserObject", "cuGraphRemoveDependencies",
    "cuGraphRetainUserObject", "cuGraphicsMapResources", "cuGraphicsResourceGetMappedMipmappedArray",
    "cuGraphicsResourceGetMappedPointer", "cuGraphicsResourceSetMapFlags", "cuGraphicsSubResourceGetMappedArray",
    "cuGraphicsUnmapResources", "cuGraphicsUnregisterResource", "cuGreenCtxCreate", "cuGreenCtxGetDevResource",
    "cuGreenCtxGetId", "cuGreenCtxRecordEvent", "cuGreenCtxWaitEvent", "cuImportExternalSemaphore", "cuIpcGetEventHandle",
    "cuIpcGetMemHandle", "cuIpcOpenEventHandle", "cuKernelGetAttribute", "cuKernelGetFunction", "cuKernelGetLibrary",
    "cuKernelGetName", "cuKernelGetParamCount", "cuKernelGetParamInfo", "cuKernelSetAttribute", "cuKernelSetCacheConfig",
    "cuLaunchHostFunc", "cuLibraryEnumerateKernels",
    "cuLibraryGetGlobal", "cuLibraryGetKernel", "cuLibraryGetKernelCount", "cuLibraryGetManaged", "cuLibraryGetModule",
    "cuLibraryGetUnifiedFunction", "cuLibraryLoadData", "cuLibraryLoadFromFile", "cuLibraryUnload", "cuLinkAddData", "cuLinkAddFile",
    "cuLinkComplete", "cuLinkCreate", "cuLinkDestroy", "cuLogicalEndpointAddDevice", "cuLogicalEndpointBindAddr",
    "cuLogicalEndpointBindMem", "cuLogicalEndpointCreate", "cuLogicalEndpointDestroy", "cuLogicalEndpointExport",
    "cuLogicalEndpointGetLimits", "cuLogicalEndpointIdRelease", "cuLogicalEndpointIdReserve", "cuLogicalEndpointImport",
    "cuLogicalEndpointQuery", "cuLogicalEndpointUnbind", "cuLogsCurrent", "cuLogsDumpToFile", "cuLogsDumpToMemory",
    "cuLogsRegisterCallback", "cuLogsUnregisterCallback", "cuMemAddressFree", "cuMemAddressReserve", "cuMemAdvise",
    "cuMemBatchDecompressAsync", "cuMemDiscardBatchAsync", "cuMemExportToShareableHandle",
    "cuMemGetAccess", "cuMemGetAddressRange", "cuMemGetAllocationGranularity", "cuMemGetAllocationPropertiesFromHandle",
    "cuMemGetDefaultMemPool", "cuMemGetHandleForAddressRange", "cuMemGetLocationInfo", "cuMemGetMemPool", "cuMemHostGetDevicePointer",
    "cuMemHostGetFlags", "cuMemMapArrayAsync", "cuMemPoolExportPointer", "cuMemPoolExportToShareableHandle", "cuMemPoolGetAccess",
    "cuMemPoolGetAttribute", "cuMemPoolImportFromShareableHandle", "cuMemPoolSetAccess",
    "cuMemRangeGetAttribute", "cuMemRangeGetAttributes", "cuMemSetAccess", "cuMemSetMemPool", "cuMipmappedArrayGetLevel",
    "cuMipmappedArrayGetMemoryRequirements", "cuMipmappedArrayGetSparseProperties", "cuModuleEnumerateFunctions",
    "cuModuleGetFunction", "cuModuleGetFunctionCount", "cuModuleGetGlobal", "cuModuleGetLoadingMode", "cuModuleGetSurfRef",
    "cuModuleGetTexRef", "cuModuleLoad", "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary", "cuModuleUnload",
    "cuMulticastAddDevice", "cuMulticastBindAddr", "cuMulticastBindMem", "cuMulticastGetGranularity",
    "cuMulticastUnbind", "cuOccupancyAvailableDynamicSMemPerBlock", "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", "cuOccupancyMaxActiveClusters", "cuOccupancyMaxPotentialBlockSize",
    "cuOccupancyMaxPotentialBlockSizeWithFlags", "cuOccupancyMaxPotentialClusterSize", "cuParamSetSize", "cuParamSetTexRef",
    "cuParamSetf", "cuParamSeti", "cuParamSetv", "cuPointerGetAttribute", "cuPointerGetAttributes", "cuPointerSetAttribute",
    "cuSignalExternalSemaphoresAsync", "cuStreamAddCallback", "cuStreamAttachMemAsync", "cuStreamBatchMemOp",
    "cuStreamCopyAttributes",     "cuStreamGetAttribute", "cuStreamGetCaptureInfo", "cuStreamGetCtx", "cuStreamGetDevResource", "cuStreamGetDevice",
    "cuStreamGetFlags", "cuStreamGetGreenCtx", "cuStreamGetId", "cuStreamGetPriority", "cuStreamIsCapturing", "cuStreamQuery",
    "cuStreamSetAttribute", "cuStreamUpdateCaptureDependencies", "cuStreamWaitEvent", "cuStreamWaitValue32", "cuStreamWaitValue64",
    "cuStreamWriteValue32", "cuStreamWriteValue64", "cuSurfObjectCreate", "cuSurfObjectDestroy", "cuSurfObjectGetResourceDesc",
    "cuSurfRefGetArray", "cuSurfRefSetArray", "cuTensorMapEncodeIm2col", "cuTensorMapEncodeIm2colWide", "cuTensorMapEncodeTiled",
    "cuTensorMapReplaceAddress", "cuTensorMapSetAllocationClass", "cuTexObjectCreate", "cuTexObjectDestroy",
    "cuTexObjectGetResourceDesc", "cuTexObjectGetResourceViewDesc", "cuTexObjectGetTextureDesc", "cuTexRefCreate", "cuTexRefDestroy",
    "cuTexRefGetAddress", "cuTexRefGetAddressMode", "cuTexRefGetArray", "cuTexRefGetBorderColor", "cuTexRefGetFilterMode",
    "cuTexRefGetFlags", "cuTexRefGetFormat", "cuTexRefGetMaxAnisotropy", "cuTexRefGetMipmapFilterMode", "cuTexRefGetMipmapLevelBias",
    "cuTexRefGetMipmapLevelClamp", "cuTexRefGetMipmappedArray", "cuTexRefSetAddress", "cuTexRefSetAddress2D", "cuTexRefSetAddressMode",
    "cuTexRefSetArray", "cuTexRefSetBorderColor", "cuTexRefSetFilterMode", "cuTexRefSetFlags", "cuTexRefSetFormat",
    "cuTexRefSetMaxAnisotropy", "cuTexRefSetMipmapFilterMode", "cuTexRefSetMipmapLevelBias", "cuTexRefSetMipmapLevelClamp",
    "cuTexRefSetMipmappedArray", "cuThreadExchangeStreamCaptureMode", "cuUserObjectCreate", "cuUserObjectRelease",
    "cuUserObjectRetain", "cuWaitExternalSemaphoresAsync",
];

/// Whether a call of this name is one of them. Names with the suffix of a version or of the per-thread default stream count by their base.
pub fn is_known(name: &[u8]) -> bool {
    let base = base_of(name);
    NOT_HOOKED.binary_search_by(|known| known.as_bytes().cmp(base)).is_ok()
}

/// A name without `_ptsz`, `_ptds` and `_v2` and the like.
fn base_of(name: &[u8]) -> &[u8] {
    let name = name.strip_suffix(b"_ptsz").or_else(|| name.strip_suffix(b"_ptds")).unwrap_or(name);
    match name {
        [base @ .., b'_', b'v', digit] if digit.is_ascii_digit() => base,
        _ => name,
    }
}
