//! Threads and waits of a call. Alone in its process, because threads of other tests would count.

use std::hint::black_box;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use regatta_worker::on_processor::{ProcessorCase, timing};
use regatta_worker::protocol::{Cache, Measure, Measured};

const WORK: Duration = Duration::from_millis(10);
const WORK_NS: f64 = 1e7;

/// Computes until the calling thread has used `work` of CPU time.
fn compute(work: Duration) {
    let clock = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let begin = clock();
    while clock() - begin < work {
        black_box((0..1000).fold(0u64, |sum, next| black_box(sum ^ next)));
    }
}

struct Calls<F>(F);

impl<F: FnMut()> ProcessorCase for Calls<F> {
    fn call(&mut self) {
        (self.0)();
    }

    fn change(&mut self, _set: u32) -> Result<(), String> {
        Ok(())
    }

    fn results(&self) -> Vec<Vec<f32>> {
        Vec::new()
    }
}

/// Five samples of a call.
fn measured(call: impl FnMut()) -> Measured {
    let request = Measure {
        warmup: 0,
        samples: 5,
        min_samples: 5,
        budget_ms: 0,
        cache: Cache::Hot,
        ..Measure::default()
    };
    timing::measure(
        &request,
        &mut None,
        None,
        &mut Calls(call),
        &mut |_| Ok(false),
        &mut |_, _, _| {},
    )
    .unwrap()
}

/// A busy loop in another process, which ends with the test.
struct BusyProcess(Child);

impl Drop for BusyProcess {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A thread that computes on request.
fn computing_thread(done: Sender<()>) -> Sender<Duration> {
    let (ask, asked): (_, Receiver<Duration>) = channel();
    thread::spawn(move || {
        for work in asked {
            compute(work);
            done.send(()).unwrap();
        }
    });
    ask
}

#[test]
fn a_call_has_its_threads_and_on_one_thread_no_waits_for_a_core() {
    // Sleeping threads do not count, and neither does one that distributes work and waits.
    let (done, wait) = channel();
    let pool: Vec<_> = (0..3).map(|_| computing_thread(done.clone())).collect();
    for (others, own, threads) in [
        (0, WORK, 1),
        (1, WORK, 2),
        (3, WORK, 4),
        (3, Duration::ZERO, 3),
        (1, Duration::ZERO, 2),
    ] {
        let measured = measured(|| {
            let asked = &pool[..others];
            asked.iter().for_each(|ask| ask.send(WORK).unwrap());
            compute(own);
            asked.iter().for_each(|_| wait.recv().unwrap());
        });
        assert_eq!(measured.threads, [threads; 5], "{others} and {own:?}");
        assert_eq!(measured.waited_ns.len(), 5);
    }
    drop(pool);

    // A thread that ended within the call has no count.
    let ended = measured(|| thread::spawn(|| compute(WORK)).join().unwrap());
    assert!(ended.threads.is_empty() && ended.waited_ns.is_empty());
    assert_eq!(ended.cpu_ns.len(), 5);

    // This thread and another process take turns on one core.
    let all = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let core = (0..CpuSet::count()).find(|core| all.is_set(*core).unwrap());
    let mut one = CpuSet::new();
    one.set(core.unwrap()).unwrap();
    sched_setaffinity(Pid::from_raw(0), &one).unwrap();
    let busy = Command::new("sh")
        .args(["-c", "while :; do :; done"])
        .spawn();
    let _busy = BusyProcess(busy.unwrap());
    let shared = measured(|| compute(4 * WORK));
    assert_eq!(shared.threads, [1; 5]);
    let waited_ns: f64 = shared.waited_ns.iter().map(|time| time.0).sum();
    assert!(
        waited_ns > 0.3 * 20.0 * WORK_NS,
        "nothing disturbed it: {shared:?}"
    );
    let device_ns: f64 = shared.device_ns.iter().map(|time| time.0).sum();
    assert!(
        (1.0..1.5).contains(&(device_ns / 20.0 / WORK_NS)),
        "{shared:?}"
    );

    let asleep = measured(|| thread::sleep(WORK));
    assert!(
        asleep.device_ns.iter().all(|time| time.0 >= WORK_NS),
        "{asleep:?}"
    );
}
