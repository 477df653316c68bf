//! Causes of differences between two records of a case.

use super::*;
use crate::judgement::Mismatch;
use crate::structure::{Structures, changes};
use crate::testing::written;
use regatta_core::record::{CaseRecord, median};
use regatta_core::suite::Policy;
use regatta_worker::units::Share;

fn pair<'a>(base: &'a CaseRecord, head: &'a CaseRecord, ratio: f64) -> Pair<'a> {
    Pair {
        base,
        head,
        base_ns: median(&base.device_ns()),
        head_ns: median(&head.device_ns()),
        base_clock: TimeSource::Events,
        clock: TimeSource::Events,
        ratio: Ratio(ratio),
        threshold: Share(0.05),
        versions: Vec::new(),
        sms: None,
        cores: Some(2),
        restructured: changes(&Structures {
            base,
            head,
            sms: None,
            policy: &Policy::default(),
            counterparts: None,
        })
        .map(|changes| !changes.is_empty()),
    }
}

fn texts(pair: &Pair) -> Vec<String> {
    let findings = explained(pair).0.into_iter();
    findings.map(|finding| finding.to_string()).collect()
}

/// Checks each line of a table: `BASE ; HEAD xRATIO => FINDING | FINDING`, with the beginning of
/// each finding. A line that begins with `gate` has times of a blocked stream, with `wall` the host's.
fn hold(table: &str) {
    for line in table.lines().filter(|line| !line.trim().is_empty()) {
        let (sides, expected) = line.split_once("=>").unwrap();
        let (sides, ratio) = sides.rsplit_once(" x").unwrap();
        let clocks = [("gate ", TimeSource::Gated), ("wall ", TimeSource::Wall)];
        let mut clocks = clocks.into_iter();
        let named = clocks.find_map(|(word, clock)| Some((sides.strip_prefix(word)?, clock)));
        let (sides, clock) = named.unwrap_or((sides, TimeSource::Events));
        let (base, head) = sides.split_once(';').unwrap();
        let (base, head) = (written(base), written(head));
        let mut pair = pair(&base, &head, ratio.trim().parse().unwrap());
        (pair.base_clock, pair.clock) = (clock, clock);
        let texts = texts(&pair);
        let expected = expected.split(" | ").map(str::trim);
        let expected: Vec<&str> = expected.filter(|begin| !begin.is_empty()).collect();
        let mut both = texts.iter().zip(&expected);
        let begin = both.all(|(texts, begin)| texts.starts_with(begin));
        assert!(begin && texts.len() == expected.len(), "{line}\n{texts:#?}");
    }
}

#[test]
fn what_differs_of_a_structure_is_told_as_its_cause() {
    hold("
flash@157 ; flash@157 x2 =>
; x2 =>
f<ns::T<64>>@157 ; f<ns::T<64>>@1 x40 => less-parallel: grid 157x1x1 → 1x1x1 of f<ns::T<64>>
flash@157 ; flash@1 flash@1 x40 => less-parallel: grid 157x1x1 → 1x1x1 of flash | launches-added:
flash@1 ; flash@157 x0.1 =>
threads=2 tasks=4 .num_splits_key=4 ; threads=1 tasks=1 .num_splits_key=1 x2 => less-parallel: threads 2 → 1, tasks 4 → 1, num_splits_key 4 → 1
.num_splits_key=157 ; .num_splits_key=1 x30 => less-parallel: num_splits_key 157 → 1
.num_splits_key=1 ; .num_splits_key=4 x1.5 => parameter-changed: num_splits_key 1 → 4
.tile=64 ; .tile=32 x1.5 => parameter-changed: tile 64 → 32
flash_v3@9 ; flash_v2@9 x1.5 => kernel-replaced: kernel flash_v3 → flash_v2
flash@9 ; at::native::elementwise_kernel<128>@9 flash@9 x1.3 => copies-added: copies 0 → 1 of elementwise_kernel<128>
copies=0 ; copies=3 x1.3 => copies-added: copies 0 → 3
flash@9 ; flash@9 reduce@9 x1.3 => launches-added: launches 1 → 2
flash@157 ; flash@79 flash@78 x1.3 => launches-added: launches 1 → 2
workspace_bytes=10 ; workspace_bytes=90 x1.2 => workspace: workspace 10 B → 90 B
+peak=10 ; +peak=20 x1 => workspace:
+peak=100 ; +peak=101 x1 =>
flash@157 +peak=0 ; flash@1 copy_kernel@9 +peak=1024 x9 => less-parallel: | copies-added: | workspace:
");
    let mut head = written("flash@9");
    head.structure.as_mut().unwrap().launches[0].registers = Some(255);
    let texts = texts(&pair(&written("flash@9"), &head, 1.3));
    assert_eq!(texts, ["recompiled: registers 128 → 255 of flash"]);
}

#[test]
fn a_call_on_a_processor_has_causes_with_what_to_set() {
    hold("
+threads=1 ; +threads=8 x1.5 => oversubscribed: threads 1 → 8; the machine has 2 cores: set OMP_NUM_THREADS=2 (polars: POLARS_MAX_THREADS) before the command, or in `env`
+threads=1 ; +threads=3 x1.5 =>
+threads=2 ; +threads=1 x2 => less-parallel: threads 2 → 1
+device=100 +cpu=190 +threads=2 +waited=5 ; +device=60000 +cpu=200 +threads=2 +waited=50000 x600 => waiting-for-cores: a call takes 300.0 times its CPU time: threads wait for cores; OMP_NUM_THREADS=1 (polars: POLARS_MAX_THREADS) before the command, or in `env`
+device=1 +cpu=1 +threads=2 +waited=0.1 ; +device=100 +cpu=45 +threads=2 +waited=155 x100 => waiting-for-cores: threads wait for cores 1.55 times as long as a call takes; OMP_NUM_THREADS=1 (polars: POLARS_MAX_THREADS) before the command, or in `env`
+device=100 +cpu=99 +threads=1 +waited=0 ; +device=400 +cpu=100 +threads=1 +waited=0 x4 => blocked: a call takes 4.00 times its CPU time, before 1.01 times: it sleeps, or waits for a lock
+device=400 +cpu=99 +threads=1 +waited=0 ; +device=800 +cpu=200 +threads=1 +waited=0 x2 =>
+device=100 +cpu=99 ; +device=400 +cpu=100 x4 =>
denormal_values=0 ; denormal_values=5000 x9 => denormals: denormal values 0 → 5000; such an operation may take 100 times as long; flush denormals to zero
wider_results=0 ; wider_results=3 x2 => wider-type: wider results 0 → 3; make constants and temporaries of the type
call_peak_bytes=1048576 numba_allocations=2 ; call_peak_bytes=4194304 numba_allocations=20002 x2 => workspace: call peak 1.00 MiB → 4.00 MiB, numba allocations 2 → 20002
call_peak_bytes=1048576 ; call_peak_bytes=1048976 x1 =>
; +growth=1 x1.1 => memory-growth: memory kept a call 0 B → 1.00 MiB; free what a call allocates
+growth=2 ; +growth=1 x1 =>
call_peak_bytes=54400 +device=500 ; call_peak_bytes=63500 +device=35000 x70 =>
call_peak_bytes=1024 +device=50 +peak=54 ; call_peak_bytes=501024 +device=500 +peak=90 x10 => workspace: call peak 1.00 KiB → 489.3 KiB, peak memory
call_peak_bytes=1024 +device=50 +peak=54 ; call_peak_bytes=1024 +device=500000 +peak=60 x10000 =>
call_peak_bytes=98700 +device=880 ; call_peak_bytes=146900 +device=125 x0.15 =>
garbage_collections=0 ns.garbage_collections=0 +device=100 ; garbage_collections=28 ns.garbage_collections=60000 +device=200 x2 => garbage-collection: garbage collections 0 → 28, their CPU time 0 → 60.0 µs a call; create fewer objects
garbage_collections=0 ns.garbage_collections=0 +device=100 ; garbage_collections=1 ns.garbage_collections=6000 +device=200 x2 =>
garbage_collections=9 ns.garbage_collections=60000 +device=100 ; garbage_collections=9 ns.garbage_collections=72000 +device=150 x1.5 =>
garbage_collections=0 ns.garbage_collections=0 ; garbage_collections=9 ns.garbage_collections=60000 x1 =>
wall ppm.in.a=400000 ppm.in.b=600000 +device=100 ; ppm.in.a=650000 ppm.in.b=350000 +device=200 x2 => slower-function: a 40.0 → 130.0 µs a call, by a profiler
wall ppm.in.a=900000 +device=100 ; ppm.in.a=450000 ppm.in.re:compile=500000 +device=200 x2 => slower-function: re:compile 0 → 100.0 µs a call, by a profiler
wall ppm.in.a=900000 +device=100 ; ppm.in.a=600000 ppm.in.b=200000 +device=200 x2 =>
wall ppm.in.a=900000 +device=1000 ; ppm.in.a=900000 +device=1100 x1.1 =>
wall ppm.in.a=900000 +device=200 ; ppm.in.a=900000 +device=100 x0.5 =>
wall +device=100 ; ppm.in.a=990000 +device=200 x2 =>
ppm.in.a=400000 +device=100 ; ppm.in.a=990000 +device=200 x2 =>
+device=900 +faults=140 ; +device=1150 +faults=268 x1.28 => page-faults: page faults 140 → 268; the allocator gives memory back after a call: keep the arrays of a call, or set MALLOC_TRIM_THRESHOLD_
+device=900 +faults=2 ; +device=1150 +faults=9 x1.28 =>
+device=1150 +faults=140 ; +device=900 +faults=268 x0.78 =>
");
}

/// A count that one side lacks was not made there: no change from 0, nor to it.
#[test]
fn what_was_not_counted_is_no_cause() {
    let all = "threads=2 tasks=1 copies=3 module_loads=3 workspace_bytes=9999999 allocations=9 \
               synchronisations=1 driver_allocations=2 calls.triton_autotune=24";
    hold(&format!("threads=2 ; {all} x2 =>\n{all} ; threads=2 x2 =>"));
}

#[test]
fn functions_that_run_more_often_are_told_with_their_time() {
    hold("
calls.triton_autotune=0 ; calls.triton_autotune=24 ns.triton_autotune=52163708 .lengths=24 x12 => retuned: retuned 0 → 24 a call, 52.2 ms of the host a call in it; a call has 24 lengths
calls.triton_autotune=0 ; calls.triton_autotune=1 ns.triton_autotune=2000 .lengths=1 x2 => retuned: retuned 0 → 1 a call, 2.00 µs of the host a call in it; a call has 1 length
calls.triton_autotune=24 ns.triton_autotune=5 ; calls.triton_autotune=24 ns.triton_autotune=90 x1 =>
calls.triton_autotune=24 ; calls.triton_autotune=0 x0.1 =>
calls.backend_selections=0 ; calls.backend_selections=8 ns.backend_selections=812400 x1.3 => events-added: backend re-selected 0 → 8 a call, 812.4 µs of the host a call in it
calls.get_attn_backend=0 ; calls.get_attn_backend=8 x1.3 => events-added: backend re-selected 0 → 8 a call
calls.backend_selections=0 calls.c=1 ; calls.backend_selections=1 calls.c=3 x1.3 => events-added: backend re-selected 0 → 1 a call, c 1 → 3 a call
calls.backend_selections=1 calls.c=3 ; calls.backend_selections=0 calls.c=1 x0.8 =>
");
}

#[test]
fn the_machine_is_told_where_it_explains_the_time() {
    hold("
+mhz=1980 ; +mhz=1410 x1.404 => lower-clock: clock 1980 → 1410 MHz
+mhz=1000 ; +mhz=1200 x0.85 => higher-clock:
+mhz=1980 ; +mhz=1780 x3 =>
+mhz=1980 ; +mhz=1780 x0.8 =>
+mhz=1980 ; +mhz=1780 x1 =>
+known=5 ; +known=5 +throttled=3 x1.2 => throttled: the device held its clocks back in 3 of 5 invocations (software power cap), before in 0 of 5: the machine, not the code
+known=5 ; +known=5 +shared=2 x1.2 => shared-device: other processes computed on the device in 2 of 5 invocations (up to 2), before in 0 of 5: the machine, not the code
+known=5 +throttled=5 ; +known=5 x0.8 => throttled:
+known=5 +throttled=3 +shared=3 ; +known=5 +throttled=3 +shared=3 x1.2 =>
+known=5 ; +known=5 +throttled=3 +shared=3 x1 =>
+known=5 ; +known=5 +throttled=3 +shared=3 x0.8 =>
; +known=5 +throttled=3 +shared=3 x1.2 =>
");
}

#[test]
fn versions_are_told_where_time_moved() {
    let record = written("flash@9");
    let change = Mismatch {
        field: "torch.versions.cudnn".to_owned(),
        base: "9.1".to_owned(),
        head: "9.2".to_owned(),
    };
    let texts = |ratio| {
        let mut pair = pair(&record, &record, ratio);
        pair.versions.push(&change);
        texts(&pair)
    };
    let toolchain = "toolchain: torch.versions.cudnn 9.1 → 9.2; structure unchanged";
    assert_eq!(texts(1.2), [toolchain]);
    assert!(texts(1.01).is_empty());
}

/// The first three: all-gather and product on two H200s, 1024 x 4096 x 4096, as measured; one
/// operator that does both is slower than the two, because the host cannot feed it.
#[test]
fn a_device_waits_for_the_host_or_for_anything_else() {
    let unfused = "+device=75.8 +host=50.3 +span=76 +busy=73 +bound=0";
    let fused = "+device=267.1 +host=277 +span=280 +busy=70 +bound=195";
    let bound = "host-bound: host 50.3 → 277.0 µs a call, device idle between launches 3.00 → 210.0 \
                 µs of 280.0 µs, 92.9 % of it waiting for the host, device time 75.8 → 267.1 µs";
    let base = "+device=100 +host=20 +span=100 +busy=98 +bound=0";
    let slow = "+device=200 +span=210 +busy=108";
    hold(&format!("
{unfused} ; {fused} x3.52 => {bound}
{unfused} ; {fused} +copying=28 x3.52 => {bound} | no-overlap: copies and compute at once 0 of 28.0 µs of copying a call
{fused} ; {unfused} x0.28 =>
{base} ; {slow} +host=20 +bound=3 x2 => gaps:
{base} ; {slow} +host=20 +bound=90 x2 => gaps:
{base} ; {slow} +host=205 +bound=3 x2 => gaps:
{base} ; {slow} +host=190 x2 => gaps:
{base} ; {slow} +host=205 x2 => host-bound:
{base} ; {slow} +host=120 +bound=90 x2 => host-bound:
{base} ; +device=200 +host=20 +span=205 +busy=190 +bound=10 x2 =>
{base} ; {slow} +host=20 +bound=3 x1 =>
gate {base} ; {slow} +host=20 +bound=3 x2 =>
+device=0.1 +host=0.05 ; +device=0.1 +host=0.3 x1 => host-bound: host 50.0 → 300.0 ns a call, device time 100.0 ns
+device=0.1 +host=0.05 ; +device=0.1 +host=0.09 x1 =>
+device=0.1 +host=0.3 ; +device=0.1 +host=0.3 x1 =>
"));
}

/// `flash-layout` on an H200, [64, 256, 12, 64] in float16: views against needless copies; and a
/// clone of q before the call, [2, 16, 512, 64]. Behind a gate the host's gaps in the recorded
/// call are in no time that was judged.
#[test]
fn copies_are_told_with_their_part_of_the_call() {
    let copy = "at::native::elementwise_kernel<Copy>@9";
    let views = "flash@9 +device=65.7 +host=33.6 +span=64 +busy=64 +bound=0";
    let copies = format!(
        "{copy} {copy} {copy} {copy} flash@9 +device=216 +host=95.1 +span=267 +busy=214 +bound=30"
    );
    let plain = "flash@9 +device=14.9 +host=50 +span=15 +busy=15 +bound=0";
    let cloned = format!("{copy} flash@9 +device=18.1 +host=75.2 +span=151 +busy=15 +bound=134");
    let added = "copies-added: copies 0 → 4 of elementwise_kernel<Copy>";
    hold(&format!(
        "
{views} ; {copies} +moving=149.982 x3.29 => {added}, 150.0 of 216.0 µs
gate {plain} ; {cloned} +moving=2.9 x1.215 => copies-added: copies 0 → 1 of
{plain} ; {cloned} +moving=2.9 x1.215 => copies-added: | host-bound:
"
    ));
    // A baseline of an older version does not tell their time.
    let (views, mut copies) = (written(views), written(&copies));
    copies.activity.as_mut().unwrap().moving_ns = None;
    assert_eq!(texts(&pair(&views, &copies, 3.29)), [added]);
    // Copies that cost next to nothing are not what made it slower.
    copies.activity.as_mut().unwrap().moving_ns = Some(9_000);
    let aside = found(&pair(&views, &copies, 3.29).facts());
    assert!(aside[0].order < 0.6);
}

#[test]
fn what_no_longer_runs_at_once_is_told() {
    let (base, head) = (
        "+device=100 +span=300 +busy=290",
        "+device=180 +span=300 +busy=290",
    );
    hold(&format!("
{base} +at_once=70 ; {head} +at_once=0 x1.8 => lost-overlap: kernels of two streams at once 70.0 µs → 0 a call
{base} +at_once=30 ; {head} +at_once=0 x1.8 =>
{base} +at_once=70 ; {head} +at_once=70 x1.8 =>
{base} ; {head} +at_once=0 x1.8 =>
{base} +copying=80 +overlap=80 ; {head} +copying=80 +overlap=0 x1.8 => lost-overlap: copies and compute at once 80.0 µs → 0 a call
{base} +copying=0 +overlap=0 ; {head} +copying=80 +overlap=1 x1.8 => no-overlap: copies and compute at once 1.00 of 80.0 µs of copying a call
{base} +copying=80 +overlap=80 ; {head} +copying=160 +overlap=80 x1.8 =>
{base} +copying=80 +overlap=0 ; {head} +copying=80 +overlap=0 x1.8 =>
"));
}

#[test]
fn waits_and_memory_of_the_driver_come_before_the_host_they_hold_up() {
    let quiet = "+device=15 +host=15 +span=15 +busy=15 +bound=0";
    let late = "+device=60 +host=60 +span=65 +busy=15 +bound=48";
    let waits = "synchronisation: waits for the device 0 → 1 a call";
    hold(&format!("
synchronisations=0 {quiet} ; synchronisations=1 {late} x4 => {waits} | host-bound:
synchronisations=0 driver_allocations=0 driver_frees=0 {quiet} ; synchronisations=1 driver_allocations=2 driver_frees=2 {late} x4 => driver-memory: cudaMalloc 0 → 2 a call, cudaFree 0 → 2 a call | {waits} | host-bound:
{quiet} ; {late} +opened=5 x4 => host-bound:
"));
    // Without counts, the clock knows that its stream had to be released.
    let (quiet, opened) = (written(quiet), written(&format!("{late} +opened=5")));
    let texts = texts(&Pair {
        base_clock: TimeSource::Gated,
        ..pair(&quiet, &opened, 4.0)
    });
    assert!(texts[0].starts_with("synchronisation: "), "{texts:?}");
}

#[test]
fn where_the_hosts_time_is_judged_it_is_told_whatever_the_clock() {
    let before = written("+device=14.9 +host=48.5 +span=15 +busy=15 +bound=0");
    let after = written("+device=14.9 +host=355 +span=330 +busy=15 +bound=300");
    let texts = texts(&Pair {
        base_ns: Some(Nanoseconds(48.5e3)),
        head_ns: Some(Nanoseconds(355e3)),
        clock: TimeSource::Host,
        base_clock: TimeSource::Host,
        ..pair(&before, &after, 7.3)
    });
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(
        texts[0].starts_with("host-bound: host 48.5 → 355.0 µs a call"),
        "{texts:?}"
    );
}
