//! The host's calls to CUDA that are counted: their functions, their numbers, and the time that the
//! host spent in them.

use std::collections::HashMap;

/// The classes of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallClass {
    /// Loads a module or library of code into the device.
    ModuleLoad,
    /// Allocates device, managed or pinned memory through CUDA, not from a framework's own
    /// allocator.
    Allocation,
    /// Frees such memory.
    Free,
    /// Waits for the device.
    DeviceWait,
    /// Waits for a stream.
    StreamWait,
    /// Waits for an event.
    EventWait,
    /// Makes a stream write a value to memory or wait for one. A batch counts as one call.
    StreamMemory,
    /// Queues a function of the host in a stream.
    HostCallback,
    /// Launches a kernel.
    Launch,
    /// Launches a CUDA graph with any content.
    GraphLaunch,
    /// Copies or fills memory, which is also recorded as an operation.
    Copy,
}

/// The name of each class, in the order of declaration.
const NAMES: [&str; 11] = [
    "module_loads",
    "allocations",
    "frees",
    "device_synchronisations",
    "stream_synchronisations",
    "event_synchronisations",
    "stream_memory_operations",
    "host_callbacks",
    "launches",
    "graph_launches",
    "copy_calls",
];

impl CallClass {
    /// The class's name in [`CallCounts::named`].
    pub fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// True for a call that is listed with its time. Launches and copies are not, because their
    /// operations have times.
    pub fn has_moment(self) -> bool {
        !matches!(self, Self::Launch | Self::Copy)
    }
}

/// Larger than the id of every counted function.
pub const IDS: u32 = 1024;

/// The calls of one class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallCount {
    /// Number of calls.
    pub calls: u64,
    /// Nanoseconds that the host spent in them, including the time of recording. If a call makes a
    /// call of another class, this time counts in both.
    pub ns: u64,
}

impl CallCount {
    fn add(&mut self, other: CallCount) {
        self.calls += other.calls;
        self.ns = self.ns.saturating_add(other.ns);
    }
}

/// Calls so far, by class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallCounts([CallCount; NAMES.len()]);

impl CallCounts {
    /// Each class by name. `synchronisations` is the sum of the three waits that follow it.
    pub fn named(&self) -> Vec<(&'static str, CallCount)> {
        let mut named: Vec<_> = NAMES.into_iter().zip(self.0).collect();
        let waits = CallClass::DeviceWait as usize..=CallClass::EventWait as usize;
        let mut synchronisations = CallCount::default();
        self.0[waits.clone()]
            .iter()
            .for_each(|count| synchronisations.add(*count));
        named.insert(*waits.start(), ("synchronisations", synchronisations));
        named
    }
}

/// A call from the host to CUDA, with times in ns of CUPTI's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiCall {
    pub class: CallClass,
    pub thread: u32,
    pub start: u64,
    pub end: u64,
    pub correlation: u32,
}

/// Counts calls, each once, and passes each counted call to `counted`. The runtime implements some
/// of its calls with driver functions, which are recorded too, within the time of the runtime's
/// call.
pub fn count(counts: &mut CallCounts, calls: &mut [ApiCall], mut counted: impl FnMut(&ApiCall)) {
    // Sorts an outer call before the calls inside: it starts no later than they do and ends no
    // earlier.
    calls.sort_by_key(|call| (call.start, std::cmp::Reverse(call.end)));
    let mut outer: HashMap<(u32, CallClass), u64> = HashMap::new();
    for call in calls {
        let ends = outer.entry((call.thread, call.class)).or_default();
        if call.end > *ends || *ends == 0 {
            let ns = call.end.saturating_sub(call.start);
            counts.0[call.class as usize].add(CallCount { calls: 1, ns });
            counted(call);
            *ends = call.end;
        }
    }
}

/// The class of a driver function by its `CUpti_driver_api_trace_cbid` (cupti_driver_cbid.h);
/// `None` for one that is not counted.
pub fn driver_class(id: u32) -> Option<CallClass> {
    Some(match id {
        // cuModuleLoad, cuModuleLoadData, cuModuleLoadDataEx, cuModuleLoadFatBinary,
        // cuLibraryLoadData, cuLibraryLoadFromFile
        18..=21 | 678 | 679 => CallClass::ModuleLoad,
        // cuMemHostAlloc, cuMemAlloc_v2, cuMemAllocPitch_v2, cuMemHostAlloc_v2,
        // cuMemAllocHost_v2, cuMemAllocManaged, cuMemCreate, cuMemAllocAsync,
        // cuMemAllocAsync_ptsz, cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz
        39 | 243 | 244 | 271 | 294 | 371 | 549 | 598 | 599 | 611 | 612 => CallClass::Allocation,
        // cuMemFreeHost, cuMemFree_v2, cuMemRelease, cuMemFreeAsync, cuMemFreeAsync_ptsz
        38 | 245 | 550 | 600 | 601 => CallClass::Free,
        // cuCtxSynchronize, cuCtxSynchronize_v2
        17 | 800 => CallClass::DeviceWait,
        // cuEventSynchronize
        121 => CallClass::EventWait,
        // cuStreamSynchronize, cuStreamSynchronize_ptsz
        126 | 440 => CallClass::StreamWait,
        // cuStreamWaitValue32, cuStreamWaitValue32_ptsz, cuStreamWriteValue32,
        // cuStreamWriteValue32_ptsz, cuStreamBatchMemOp, cuStreamBatchMemOp_ptsz,
        // cuStreamWaitValue64, cuStreamWaitValue64_ptsz, cuStreamWriteValue64,
        // cuStreamWriteValue64_ptsz, cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz,
        // cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz, cuStreamWriteValue32_v2,
        // cuStreamWriteValue32_v2_ptsz, cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz,
        // cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2_ptsz
        458..=463 | 473..=476 | 659..=668 => CallClass::StreamMemory,
        // cuStreamAddCallback, cuStreamAddCallback_ptsz, cuLaunchHostFunc,
        // cuLaunchHostFunc_ptsz
        346 | 437 | 527 | 528 => CallClass::HostCallback,
        // cuLaunchKernel, cuLaunchKernel_ptsz, cuLaunchCooperativeKernel,
        // cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernelMultiDevice,
        // cuLaunchKernelEx, cuLaunchKernelEx_ptsz
        307 | 442 | 477 | 478 | 480 | 652 | 653 => CallClass::Launch,
        // cuGraphLaunch, cuGraphLaunch_ptsz
        514 | 515 => CallClass::GraphLaunch,
        // cuMemsetD8Async, cuMemsetD16Async, cuMemsetD32Async, cuMemsetD8_v2, cuMemsetD16_v2,
        // cuMemsetD32_v2, cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, cuMemcpyDtoH_v2,
        // cuMemcpyDtoHAsync_v2, cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, cuMemcpy, cuMemcpyAsync,
        // cuMemcpyPeer, cuMemcpyPeerAsync, cuMemcpyHtoD_v2_ptds, cuMemcpyDtoH_v2_ptds,
        // cuMemcpyDtoD_v2_ptds, cuMemcpy_ptds, cuMemcpyPeer_ptds, cuMemsetD8_v2_ptds,
        // cuMemsetD16_v2_ptds, cuMemsetD32_v2_ptds, cuMemcpyAsync_ptsz,
        // cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoDAsync_v2_ptsz,
        // cuMemcpyPeerAsync_ptsz, cuMemsetD8Async_ptsz, cuMemsetD16Async_ptsz,
        // cuMemsetD32Async_ptsz
        216
        | 218
        | 220
        | 249..=251
        | 276..=281
        | 305
        | 306
        | 318
        | 319
        | 397..=399
        | 408
        | 409
        | 411..=413
        | 418
        | 421..=423
        | 426
        | 428..=430 => CallClass::Copy,
        _ => return None,
    })
}

/// The class of a runtime function by its `CUpti_runtime_api_trace_cbid` (cupti_runtime_cbid.h);
/// `None` for one that is not counted. Calls through the runtime are not recorded as calls of the
/// driver's public functions.
pub fn runtime_class(id: u32) -> Option<CallClass> {
    Some(match id {
        // cudaLibraryLoadData_v12060, cudaLibraryLoadFromFile_v12060
        470 | 471 => CallClass::ModuleLoad,
        // cudaMalloc_v3020, cudaMallocPitch_v3020, cudaMallocArray_v3020, cudaMallocHost_v3020,
        // cudaHostAlloc_v3020, cudaMalloc3D_v3020, cudaMalloc3DArray_v3020,
        // cudaMallocMipmappedArray_v5000, cudaMallocManaged_v6000, cudaMallocAsync_v11020,
        // cudaMallocAsync_ptsz_v11020, cudaMallocFromPoolAsync_v11020,
        // cudaMallocFromPoolAsync_ptsz_v11020
        20 | 21 | 23 | 25 | 27 | 140 | 141 | 192 | 206 | 373 | 374 | 391 | 392 => {
            CallClass::Allocation
        }
        // cudaFree_v3020, cudaFreeArray_v3020, cudaFreeHost_v3020,
        // cudaFreeMipmappedArray_v5000, cudaFreeAsync_v11020, cudaFreeAsync_ptsz_v11020
        22 | 24 | 26 | 194 | 375 | 376 => CallClass::Free,
        // cudaThreadSynchronize_v3020, cudaDeviceSynchronize_v3020
        126 | 165 => CallClass::DeviceWait,
        // cudaStreamSynchronize_v3020, cudaStreamSynchronize_ptsz_v7000
        131 | 239 => CallClass::StreamWait,
        // cudaEventSynchronize_v3020
        137 => CallClass::EventWait,
        // cudaStreamAddCallback_v5000, cudaStreamAddCallback_ptsz_v7000,
        // cudaLaunchHostFunc_v10000, cudaLaunchHostFunc_ptsz_v10000
        197 | 248 | 284 | 285 => CallClass::HostCallback,
        // cudaLaunchKernel_v7000, cudaLaunchKernel_ptsz_v7000,
        // cudaLaunchCooperativeKernel_v9000, cudaLaunchCooperativeKernel_ptsz_v9000,
        // cudaLaunchCooperativeKernelMultiDevice_v9000, cudaLaunchKernelExC_v11060,
        // cudaLaunchKernelExC_ptsz_v11060, __cudaLaunchKernel_v13000,
        // __cudaLaunchKernel_ptsz_v13000
        211 | 214 | 269 | 270 | 272 | 430 | 431 | 505 | 506 => CallClass::Launch,
        // cudaGraphLaunch_v10000, cudaGraphLaunch_ptsz_v10000
        311 | 312 => CallClass::GraphLaunch,
        // cudaMemcpy_v3020, cudaMemcpy2D_v3020, cudaMemcpyAsync_v3020, cudaMemcpy2DAsync_v3020,
        // cudaMemset_v3020, cudaMemset2D_v3020, cudaMemsetAsync_v3020, cudaMemset2DAsync_v3020,
        // cudaMemcpyPeer_v4000, cudaMemcpyPeerAsync_v4000, cudaMemcpy_ptds_v7000,
        // cudaMemcpy2D_ptds_v7000, cudaMemcpyAsync_ptsz_v7000, cudaMemcpy2DAsync_ptsz_v7000,
        // cudaMemset_ptds_v7000, cudaMemset2D_ptds_v7000, cudaMemsetAsync_ptsz_v7000,
        // cudaMemset2DAsync_ptsz_v7000
        31 | 32 | 41 | 44 | 49..=52 | 160 | 161 | 215 | 216 | 225 | 228 | 233..=236 => {
            CallClass::Copy
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(class: CallClass, thread: u32, start: u64, end: u64) -> ApiCall {
        ApiCall {
            class,
            thread,
            start,
            end,
            correlation: 0,
        }
    }

    fn counted(calls: &mut [ApiCall]) -> std::collections::BTreeMap<&'static str, CallCount> {
        let mut counts = CallCounts::default();
        count(&mut counts, calls, |_| {});
        counts.named().into_iter().collect()
    }

    #[test]
    fn a_call_within_a_call_is_the_same_one() {
        let named = counted(&mut [
            call(CallClass::Launch, 1, 12, 18), // the driver's, within the runtime's
            call(CallClass::Launch, 1, 10, 20),
            call(CallClass::Launch, 2, 13, 15), // another thread
            call(CallClass::Launch, 1, 20, 25), // the next
            call(CallClass::ModuleLoad, 1, 13, 14),
        ]);
        assert_eq!(named["launches"], CallCount { calls: 3, ns: 17 });
        assert_eq!(named["module_loads"], CallCount { calls: 1, ns: 1 });
    }

    #[test]
    fn waits_are_told_apart_and_added_up() {
        let named = counted(&mut [
            call(CallClass::DeviceWait, 1, 0, 100),
            call(CallClass::StreamWait, 1, 200, 210),
            call(CallClass::EventWait, 2, 200, 205),
            call(CallClass::HostCallback, 1, 300, 302),
        ]);
        assert_eq!(named["synchronisations"], CallCount { calls: 3, ns: 115 });
        assert_eq!(named["device_synchronisations"].ns, 100);
        assert_eq!(named["event_synchronisations"].ns, 5);
        assert_eq!(named["host_callbacks"], CallCount { calls: 1, ns: 2 });
        assert_eq!(named["stream_memory_operations"], CallCount::default());
    }

    #[test]
    fn functions_have_the_class_of_what_they_do() {
        assert_eq!(driver_class(307), Some(CallClass::Launch));
        assert_eq!(runtime_class(311), Some(CallClass::GraphLaunch));
        assert_eq!(runtime_class(1), None);
        let counted = |class: fn(u32) -> Option<CallClass>| (0..IDS).filter_map(class).count();
        assert_eq!((counted(driver_class), counted(runtime_class)), (92, 59));
    }
}
