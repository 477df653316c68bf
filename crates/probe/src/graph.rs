//! A call captured into a CUDA graph and replayed.

use crate::Error;
use crate::Result;
use crate::cuda::Cuda;
use crate::driver::{self, Driver, cu};
use crate::measure::Capture;
use std::ptr;

/// A call as a CUDA graph.
pub struct Graph {
    driver: &'static Driver,
    exec: driver::GraphExec,
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: ours; the driver lets running replays end first.
        unsafe { (self.driver.cuGraphExecDestroy)(self.exec) };
    }
}

/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` (900) to `..._WRONG_THREAD` (908): each says
/// that what was asked for cannot be done in a capture.
fn not_capturable(error: Error) -> Error {
    match error {
        Error::Cuda {
            code: 900..=908, ..
        } => Error::NotCapturable(error.to_string()),
        other => other,
    }
}

impl Capture for Cuda {
    type Graph = Graph;

    fn begin_capture(&mut self) -> Result<()> {
        if self.stream.is_null() {
            return Err(Error::NotCapturable(
                "the legacy default stream has no capture; open the clock on another stream"
                    .to_owned(),
            ));
        }
        // Thread-local: other threads of a framework may go on allocating.
        // SAFETY: the stream is live, see `open`.
        unsafe {
            cu!(
                self.driver,
                cuStreamBeginCapture(self.stream, driver::CAPTURE_MODE_THREAD_LOCAL)
            )
        }
        .map_err(not_capturable)
    }

    fn end_capture(&mut self) -> Result<Graph> {
        let mut graph = ptr::null_mut();
        let mut exec = ptr::null_mut();
        // SAFETY: out-pointers as in `open`; the graph is destroyed once, after its use.
        unsafe {
            cu!(self.driver, cuStreamEndCapture(self.stream, &raw mut graph))
                .map_err(not_capturable)?;
            let made = cu!(
                self.driver,
                cuGraphInstantiateWithFlags(&raw mut exec, graph, 0)
            );
            (self.driver.cuGraphDestroy)(graph);
            made?;
        }
        Ok(Graph {
            driver: self.driver,
            exec,
        })
    }

    fn launch(&mut self, graph: &Graph) -> Result<()> {
        // SAFETY: the graph is instantiated, and the stream live.
        unsafe { cu!(self.driver, cuGraphLaunch(graph.exec, self.stream)) }
    }
}
