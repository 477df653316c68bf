//! A case on the device: its tensors, and the launches of one call.

use std::collections::BTreeSet;
use std::time::Instant;

use cudarc::driver::sys;

use super::argument::{self, ArgumentList, DeviceProblem, TensorMap};
use super::driver::{CudaDevice, LoadedKernel, Memory, NAN_IN_EVERY_TYPE};
use super::error::CudaError;
use super::plan::{Given, Plan, PlannedLaunch, Pointer};
use regatta_core::machine::{Launch, Structure};
use regatta_worker::attention::Attention;
use regatta_worker::operator::Direction;
use regatta_worker::units::Nanoseconds;

/// A prepared case: memory, inputs, and launches with their arguments bound.
pub struct CudaCase {
    /// The problem that is computed.
    pub problem: Attention,
    /// The launches.
    pub plan: Plan,
    /// The problem as it is passed to kernels.
    pub figures: DeviceProblem,
    memory: Vec<(Pointer, Memory)>,
    forward: Vec<BoundLaunch>,
    backward: Vec<BoundLaunch>,
    stream: sys::CUstream,
}

/// A kernel launch with its arguments bound.
struct BoundLaunch {
    name: String,
    function: LoadedKernel,
    grid: [u32; 3],
    arguments: ArgumentList,
}

impl BoundLaunch {
    fn run(&mut self, stream: sys::CUstream) -> Result<(), CudaError> {
        // SAFETY: the arguments are laid out as the kernel's file declares them, and the memory
        // that they point to lives as long as the case.
        unsafe { self.function.launch(self.grid, stream, &mut self.arguments) }
    }

    fn record(&self) -> Launch {
        let shape = self.function.shape;
        let shared = self.function.static_shared_bytes + shape.shared_bytes;
        Launch {
            name: self.name.clone(),
            grid: self.grid,
            block: shape.block,
            cluster: None,
            registers: Some(self.function.registers),
            shared_bytes: Some(shared.into()),
            local_bytes: Some(self.function.local_bytes.into()),
            blocks_per_sm: Some(self.function.blocks_per_sm),
            graph: None,
        }
    }
}

/// Bytes of device memory for a case: tensors, statistics and workspace.
pub fn bytes(problem: &Attention, plan: &Plan) -> u64 {
    let there = Pointer::ALL
        .into_iter()
        .filter(|pointer| pointer.is_of(problem));
    there
        .map(|pointer| pointer.bytes(problem, plan.workspace_bytes))
        .sum()
}

impl CudaCase {
    /// Allocates the memory of a case. Its inputs are not written yet.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn new(
        device: &CudaDevice,
        problem: &Attention,
        plan: Plan,
    ) -> Result<CudaCase, CudaError> {
        let p = problem;
        let mut figures = DeviceProblem::sized(p, plan.num_splits);
        let mut memory = Vec::new();
        for pointer in Pointer::ALL.into_iter().filter(|pointer| pointer.is_of(p)) {
            let bytes = pointer.bytes(p, plan.workspace_bytes);
            if bytes > 0 {
                let place = device.allocate(bytes)?;
                *figures.address_mut(pointer) = place.pointer;
                memory.push((pointer, place));
            }
        }
        Ok(CudaCase {
            problem: p.clone(),
            plan,
            figures,
            memory,
            forward: Vec::new(),
            backward: Vec::new(),
            stream: device.stream,
        })
    }

    /// Makes the first call, on poisoned results, and returns its time: compiling and loading
    /// missing code, launching, and waiting for the device. If only a gradient is computed, the
    /// forward pass before it is not timed.
    ///
    /// # Errors
    /// A kernel cannot be compiled or launched, or fails.
    pub fn first_call(&mut self, device: &mut CudaDevice) -> Result<Nanoseconds, CudaError> {
        let written = self
            .memory
            .iter_mut()
            .filter(|(pointer, _)| !pointer.is_input());
        for (_, memory) in written {
            memory.fill(NAN_IN_EVERY_TYPE, self.stream)?;
        }
        device.synchronise()?;
        let mut begin = Instant::now();
        self.forward = self.bound(device, &self.plan.forward)?;
        if self.problem.direction == Direction::Backward {
            run(&mut self.forward, self.stream)?;
            device.synchronise()?;
            begin = Instant::now();
        }
        self.backward = self.bound(device, &self.plan.backward)?;
        self.call()?;
        device.synchronise()?;
        Ok(begin.elapsed().into())
    }

    fn bound(
        &self,
        device: &mut CudaDevice,
        steps: &[PlannedLaunch],
    ) -> Result<Vec<BoundLaunch>, CudaError> {
        let bind = |step: &PlannedLaunch| {
            let function = device.function(step)?;
            let arguments = self.arguments(&step.arguments)?;
            // Tests check the arguments of regatta's own kernels against their files.
            if step.file.is_none() {
                let listed = step.arguments.iter().copied();
                let listed = listed.zip(arguments.sizes.iter().copied());
                // SAFETY: the function is loaded.
                if let Some(taken) = unsafe { argument::parameter_sizes(function.handle) } {
                    argument::check_parameters(&step.entry, &listed.collect::<Vec<_>>(), &taken)?;
                }
            }
            Ok(BoundLaunch {
                name: step.entry.clone(),
                function,
                grid: step.grid,
                arguments,
            })
        };
        steps.iter().map(bind).collect()
    }

    fn arguments(&self, given: &[Given]) -> Result<ArgumentList, CudaError> {
        let (p, figures) = (&self.problem, &self.figures);
        let mut list = ArgumentList::default();
        for given in given {
            list = match *given {
                Given::Problem => list.push(*figures),
                Given::Pointer(pointer) => list.push(figures.address(pointer)),
                Given::Map(of, rows) => {
                    let tensor = &figures.tensors[of as usize];
                    list.push(TensorMap::new(tensor, of.shape(p), p.dtype, rows)?)
                }
                Given::Int(value) => list.push(value),
                Given::Unsigned(value) => list.push(value),
                Given::Long(value) => list.push(value),
                Given::Float(value) => list.push(value),
                Given::Double(value) => list.push(value),
            };
        }
        Ok(list)
    }

    /// Queues the forward pass that precedes a gradient which is timed alone.
    ///
    /// # Errors
    /// As [`call`](CudaCase::call).
    pub fn forward_before(&mut self) -> Result<(), CudaError> {
        run(&mut self.forward, self.stream)
    }

    /// Queues the launches of one call.
    ///
    /// # Errors
    /// The driver refuses a launch. A failure on the device is reported later.
    pub fn call(&mut self) -> Result<(), CudaError> {
        if self.problem.direction.has_forward() {
            run(&mut self.forward, self.stream)?;
        }
        if self.problem.direction.has_backward() {
            run(&mut self.backward, self.stream)?;
        }
        Ok(())
    }

    /// The launches of one call.
    pub fn structure(&self) -> Structure {
        let direction = self.problem.direction;
        let forward = self.forward.iter().filter(|_| direction.has_forward());
        let launches = forward.chain(&self.backward);
        let counts = [
            ("copies", 0),
            ("workspace_bytes", self.plan.workspace_bytes),
        ];
        Structure {
            launches: launches.map(BoundLaunch::record).collect(),
            counts: counts.map(|(name, n)| (name.to_owned(), n)).into(),
            code: Some(self.code()),
            ..Structure::default()
        }
    }

    /// A hash over the machine code of all files that launches use, sorted by name.
    fn code(&self) -> String {
        let launches = self.forward.iter().chain(&self.backward);
        let images: BTreeSet<u32> = launches.map(|launch| launch.function.code).collect();
        let images: Vec<String> = images.iter().map(|sum| format!("{sum:08x}")).collect();
        images.join("-")
    }

    /// Bytes of device memory that the case has allocated.
    pub fn held_bytes(&self) -> u64 {
        let memory = self.memory.iter();
        memory.map(|(_, memory)| memory.bytes as u64).sum()
    }
}

fn run(launches: &mut [BoundLaunch], stream: sys::CUstream) -> Result<(), CudaError> {
    launches
        .iter_mut()
        .try_for_each(|launch| launch.run(stream))
}
