//! The calls of the host's that are worth counting, and which functions they go through.
//!
//! Their ids are CUPTI's, which never gives one a second meaning.

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    ModuleLoad,
    Allocation,
    Free,
    DeviceWait,
    StreamWait,
    EventWait,
    StreamMemory,
    HostCallback,
    Launch,
    GraphLaunch,
    /// A copy or fill.
    Copy,
}

/// Through which interface it went in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interface {
    Driver,
    Runtime,
}

impl Interface {
    /// The ids of its functions that are counted.
    pub fn ids(self) -> impl Iterator<Item = u32> {
        self.table().iter().map(|(id, _)| *id)
    }

    /// What a function of it does; `None` of one that is not counted.
    pub fn class(self, id: u32) -> Option<Class> {
        let mut found = self.table().iter().filter(|(known, _)| *known == id);
        found.next().map(|(_, class)| *class)
    }

    fn table(self) -> &'static [(u32, Class)] {
        match self {
            Self::Driver => &DRIVER,
            Self::Runtime => &RUNTIME,
        }
    }
}

/// `CUpti_driver_api_trace_cbid` (cupti_driver_cbid.h).
const DRIVER: [(u32, Class); 92] = [
    (18, Class::ModuleLoad),    // cuModuleLoad
    (19, Class::ModuleLoad),    // cuModuleLoadData
    (20, Class::ModuleLoad),    // cuModuleLoadDataEx
    (21, Class::ModuleLoad),    // cuModuleLoadFatBinary
    (678, Class::ModuleLoad),   // cuLibraryLoadData
    (679, Class::ModuleLoad),   // cuLibraryLoadFromFile
    (39, Class::Allocation),    // cuMemHostAlloc
    (243, Class::Allocation),   // cuMemAlloc_v2
    (244, Class::Allocation),   // cuMemAllocPitch_v2
    (271, Class::Allocation),   // cuMemHostAlloc_v2
    (294, Class::Allocation),   // cuMemAllocHost_v2
    (371, Class::Allocation),   // cuMemAllocManaged
    (549, Class::Allocation),   // cuMemCreate
    (598, Class::Allocation),   // cuMemAllocAsync
    (599, Class::Allocation),   // cuMemAllocAsync_ptsz
    (611, Class::Allocation),   // cuMemAllocFromPoolAsync
    (612, Class::Allocation),   // cuMemAllocFromPoolAsync_ptsz
    (38, Class::Free),          // cuMemFreeHost
    (245, Class::Free),         // cuMemFree_v2
    (550, Class::Free),         // cuMemRelease
    (600, Class::Free),         // cuMemFreeAsync
    (601, Class::Free),         // cuMemFreeAsync_ptsz
    (17, Class::DeviceWait),    // cuCtxSynchronize
    (121, Class::EventWait),    // cuEventSynchronize
    (126, Class::StreamWait),   // cuStreamSynchronize
    (440, Class::StreamWait),   // cuStreamSynchronize_ptsz
    (800, Class::DeviceWait),   // cuCtxSynchronize_v2
    (458, Class::StreamMemory), // cuStreamWaitValue32
    (459, Class::StreamMemory), // cuStreamWaitValue32_ptsz
    (460, Class::StreamMemory), // cuStreamWriteValue32
    (461, Class::StreamMemory), // cuStreamWriteValue32_ptsz
    (462, Class::StreamMemory), // cuStreamBatchMemOp
    (463, Class::StreamMemory), // cuStreamBatchMemOp_ptsz
    (473, Class::StreamMemory), // cuStreamWaitValue64
    (474, Class::StreamMemory), // cuStreamWaitValue64_ptsz
    (475, Class::StreamMemory), // cuStreamWriteValue64
    (476, Class::StreamMemory), // cuStreamWriteValue64_ptsz
    (659, Class::StreamMemory), // cuStreamWaitValue32_v2
    (660, Class::StreamMemory), // cuStreamWaitValue32_v2_ptsz
    (661, Class::StreamMemory), // cuStreamWaitValue64_v2
    (662, Class::StreamMemory), // cuStreamWaitValue64_v2_ptsz
    (663, Class::StreamMemory), // cuStreamWriteValue32_v2
    (664, Class::StreamMemory), // cuStreamWriteValue32_v2_ptsz
    (665, Class::StreamMemory), // cuStreamWriteValue64_v2
    (666, Class::StreamMemory), // cuStreamWriteValue64_v2_ptsz
    (667, Class::StreamMemory), // cuStreamBatchMemOp_v2
    (668, Class::StreamMemory), // cuStreamBatchMemOp_v2_ptsz
    (346, Class::HostCallback), // cuStreamAddCallback
    (437, Class::HostCallback), // cuStreamAddCallback_ptsz
    (527, Class::HostCallback), // cuLaunchHostFunc
    (528, Class::HostCallback), // cuLaunchHostFunc_ptsz
    (307, Class::Launch),       // cuLaunchKernel
    (442, Class::Launch),       // cuLaunchKernel_ptsz
    (477, Class::Launch),       // cuLaunchCooperativeKernel
    (478, Class::Launch),       // cuLaunchCooperativeKernel_ptsz
    (480, Class::Launch),       // cuLaunchCooperativeKernelMultiDevice
    (652, Class::Launch),       // cuLaunchKernelEx
    (653, Class::Launch),       // cuLaunchKernelEx_ptsz
    (514, Class::GraphLaunch),  // cuGraphLaunch
    (515, Class::GraphLaunch),  // cuGraphLaunch_ptsz
    (216, Class::Copy),         // cuMemsetD8Async
    (218, Class::Copy),         // cuMemsetD16Async
    (220, Class::Copy),         // cuMemsetD32Async
    (249, Class::Copy),         // cuMemsetD8_v2
    (250, Class::Copy),         // cuMemsetD16_v2
    (251, Class::Copy),         // cuMemsetD32_v2
    (276, Class::Copy),         // cuMemcpyHtoD_v2
    (277, Class::Copy),         // cuMemcpyHtoDAsync_v2
    (278, Class::Copy),         // cuMemcpyDtoH_v2
    (279, Class::Copy),         // cuMemcpyDtoHAsync_v2
    (280, Class::Copy),         // cuMemcpyDtoD_v2
    (281, Class::Copy),         // cuMemcpyDtoDAsync_v2
    (305, Class::Copy),         // cuMemcpy
    (306, Class::Copy),         // cuMemcpyAsync
    (318, Class::Copy),         // cuMemcpyPeer
    (319, Class::Copy),         // cuMemcpyPeerAsync
    (397, Class::Copy),         // cuMemcpyHtoD_v2_ptds
    (398, Class::Copy),         // cuMemcpyDtoH_v2_ptds
    (399, Class::Copy),         // cuMemcpyDtoD_v2_ptds
    (408, Class::Copy),         // cuMemcpy_ptds
    (409, Class::Copy),         // cuMemcpyPeer_ptds
    (411, Class::Copy),         // cuMemsetD8_v2_ptds
    (412, Class::Copy),         // cuMemsetD16_v2_ptds
    (413, Class::Copy),         // cuMemsetD32_v2_ptds
    (418, Class::Copy),         // cuMemcpyAsync_ptsz
    (421, Class::Copy),         // cuMemcpyHtoDAsync_v2_ptsz
    (422, Class::Copy),         // cuMemcpyDtoHAsync_v2_ptsz
    (423, Class::Copy),         // cuMemcpyDtoDAsync_v2_ptsz
    (426, Class::Copy),         // cuMemcpyPeerAsync_ptsz
    (428, Class::Copy),         // cuMemsetD8Async_ptsz
    (429, Class::Copy),         // cuMemsetD16Async_ptsz
    (430, Class::Copy),         // cuMemsetD32Async_ptsz
];

/// `CUpti_runtime_api_trace_cbid` (cupti_runtime_cbid.h). What a program asks of the
/// runtime is not seen at the driver: the runtime goes in by another door.
const RUNTIME: [(u32, Class); 59] = [
    (470, Class::ModuleLoad),   // cudaLibraryLoadData_v12060
    (471, Class::ModuleLoad),   // cudaLibraryLoadFromFile_v12060
    (20, Class::Allocation),    // cudaMalloc_v3020
    (21, Class::Allocation),    // cudaMallocPitch_v3020
    (23, Class::Allocation),    // cudaMallocArray_v3020
    (25, Class::Allocation),    // cudaMallocHost_v3020
    (27, Class::Allocation),    // cudaHostAlloc_v3020
    (140, Class::Allocation),   // cudaMalloc3D_v3020
    (141, Class::Allocation),   // cudaMalloc3DArray_v3020
    (192, Class::Allocation),   // cudaMallocMipmappedArray_v5000
    (206, Class::Allocation),   // cudaMallocManaged_v6000
    (373, Class::Allocation),   // cudaMallocAsync_v11020
    (374, Class::Allocation),   // cudaMallocAsync_ptsz_v11020
    (391, Class::Allocation),   // cudaMallocFromPoolAsync_v11020
    (392, Class::Allocation),   // cudaMallocFromPoolAsync_ptsz_v11020
    (22, Class::Free),          // cudaFree_v3020
    (24, Class::Free),          // cudaFreeArray_v3020
    (26, Class::Free),          // cudaFreeHost_v3020
    (194, Class::Free),         // cudaFreeMipmappedArray_v5000
    (375, Class::Free),         // cudaFreeAsync_v11020
    (376, Class::Free),         // cudaFreeAsync_ptsz_v11020
    (126, Class::DeviceWait),   // cudaThreadSynchronize_v3020
    (131, Class::StreamWait),   // cudaStreamSynchronize_v3020
    (137, Class::EventWait),    // cudaEventSynchronize_v3020
    (165, Class::DeviceWait),   // cudaDeviceSynchronize_v3020
    (239, Class::StreamWait),   // cudaStreamSynchronize_ptsz_v7000
    (197, Class::HostCallback), // cudaStreamAddCallback_v5000
    (248, Class::HostCallback), // cudaStreamAddCallback_ptsz_v7000
    (284, Class::HostCallback), // cudaLaunchHostFunc_v10000
    (285, Class::HostCallback), // cudaLaunchHostFunc_ptsz_v10000
    (211, Class::Launch),       // cudaLaunchKernel_v7000
    (214, Class::Launch),       // cudaLaunchKernel_ptsz_v7000
    (269, Class::Launch),       // cudaLaunchCooperativeKernel_v9000
    (270, Class::Launch),       // cudaLaunchCooperativeKernel_ptsz_v9000
    (272, Class::Launch),       // cudaLaunchCooperativeKernelMultiDevice_v9000
    (430, Class::Launch),       // cudaLaunchKernelExC_v11060
    (431, Class::Launch),       // cudaLaunchKernelExC_ptsz_v11060
    (505, Class::Launch),       // __cudaLaunchKernel_v13000
    (506, Class::Launch),       // __cudaLaunchKernel_ptsz_v13000
    (311, Class::GraphLaunch),  // cudaGraphLaunch_v10000
    (312, Class::GraphLaunch),  // cudaGraphLaunch_ptsz_v10000
    (31, Class::Copy),          // cudaMemcpy_v3020
    (32, Class::Copy),          // cudaMemcpy2D_v3020
    (41, Class::Copy),          // cudaMemcpyAsync_v3020
    (44, Class::Copy),          // cudaMemcpy2DAsync_v3020
    (49, Class::Copy),          // cudaMemset_v3020
    (50, Class::Copy),          // cudaMemset2D_v3020
    (51, Class::Copy),          // cudaMemsetAsync_v3020
    (52, Class::Copy),          // cudaMemset2DAsync_v3020
    (160, Class::Copy),         // cudaMemcpyPeer_v4000
    (161, Class::Copy),         // cudaMemcpyPeerAsync_v4000
    (215, Class::Copy),         // cudaMemcpy_ptds_v7000
    (216, Class::Copy),         // cudaMemcpy2D_ptds_v7000
    (225, Class::Copy),         // cudaMemcpyAsync_ptsz_v7000
    (228, Class::Copy),         // cudaMemcpy2DAsync_ptsz_v7000
    (233, Class::Copy),         // cudaMemset_ptds_v7000
    (234, Class::Copy),         // cudaMemset2D_ptds_v7000
    (235, Class::Copy),         // cudaMemsetAsync_ptsz_v7000
    (236, Class::Copy),         // cudaMemset2DAsync_ptsz_v7000
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unambiguous() {
        for interface in [Interface::Driver, Interface::Runtime] {
            let mut ids: Vec<u32> = interface.ids().collect();
            let all = ids.len();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), all);
        }
        assert_eq!(Interface::Driver.class(307), Some(Class::Launch));
        assert_eq!(Interface::Runtime.class(311), Some(Class::GraphLaunch));
        assert_eq!(Interface::Runtime.class(1), None);
    }
}
