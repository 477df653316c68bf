use super::*;
use crate::judgement::StructuralChange;
use crate::testing::around;
use regatta_core::machine::Launch;
use regatta_core::suite::structural::StructurePolicy;
use regatta_worker::attention::ParamValue;
use regatta_worker::units::Bytes;

fn launch(name: &str, grid: u32) -> Launch {
    Launch {
        name: name.to_owned(),
        grid: [grid, 1, 1],
        block: [128, 1, 1],
        registers: Some(128),
        shared_bytes: Some(4096),
        local_bytes: Some(0),
        blocks_per_sm: Some(2),
        ..Launch::default()
    }
}

fn record(launches: &[Launch], counts: &[(&str, u64)]) -> CaseRecord {
    let counts = counts.iter().map(|(name, n)| ((*name).to_owned(), *n));
    CaseRecord {
        structure: Some(Box::new(Structure {
            launches: launches.to_vec(),
            counts: counts.collect(),
            ..Structure::default()
        })),
        ..around(100.0)
    }
}

/// Every change as `action direction text`.
fn told(base: &CaseRecord, head: &CaseRecord) -> Vec<String> {
    let changes = changes(&Pair {
        case: "torch/flash:s64,d64",
        base,
        head,
        sms: Some(132),
        policy: &StructurePolicy::default(),
    });
    let text =
        |change: &StructuralChange| format!("{:?} {:?} {change}", change.action, change.direction);
    changes.unwrap().iter().map(text).collect()
}

fn kernels(base: &[Launch], head: &[Launch]) -> Vec<String> {
    told(&record(base, &[]), &record(head, &[]))
}

fn counts(base: &[(&str, u64)], head: &[(&str, u64)]) -> Vec<String> {
    told(&record(&[], base), &record(&[], head))
}

#[test]
fn a_grid_that_leaves_the_device_idle_fails() {
    assert_eq!(
        kernels(&[launch("flash", 157)], &[launch("flash", 1)]),
        [
            "Fail Worse fill 132 of 132 SMs → 1 of 132 SMs of flash",
            "Warn Worse grid 157x1x1 → 1x1x1 of flash"
        ]
    );
    // As long as every multiprocessor has a block, another grid is told and no more.
    assert_eq!(
        kernels(&[launch("flash", 400)], &[launch("flash", 200)]),
        ["Warn Worse grid 400x1x1 → 200x1x1 of flash"]
    );
    assert_eq!(
        kernels(&[launch("fill_kernel", 157)], &[launch("fill_kernel", 1)]).len(),
        1,
        "data is moved by few blocks as well"
    );
    assert_eq!(
        kernels(&[launch("flash", 1)], &[launch("flash", 157)]),
        [
            "Warn Other grid 1x1x1 → 157x1x1 of flash",
            "Ignore Better fill 1 of 132 SMs → 132 of 132 SMs of flash"
        ]
    );
}

#[test]
fn kernels_are_replaced_added_and_removed() {
    assert_eq!(
        kernels(&[launch("flash_v3", 157)], &[launch("flash_v2", 10)]),
        [
            "Fail Worse fill 132 of 132 SMs → 10 of 132 SMs of flash_v2",
            "Warn Other kernel-replaced flash_v3 → flash_v2"
        ]
    );
    let (flash, combine, copy) = (
        launch("flash", 157),
        launch("combine", 157),
        launch("direct_copy_kernel", 157),
    );
    let only = std::slice::from_ref(&flash);
    assert_eq!(
        kernels(only, &[flash.clone(), combine.clone()]),
        ["Warn Worse launches 0 → 1 of combine"]
    );
    assert_eq!(
        kernels(&[flash.clone(), combine], only),
        ["Ignore Better launches 1 → 0 of combine"]
    );
    assert_eq!(
        kernels(only, &[copy.clone(), flash.clone(), copy.clone()]),
        ["Fail Worse copies 0 → 2 of direct_copy_kernel"]
    );
    assert_eq!(
        kernels(only, &[flash.clone(), flash.clone()]),
        ["Warn Worse launches 1 → 2 of flash"]
    );
}

#[test]
fn figures_of_a_kernel_are_compared_one_by_one() {
    let mut head = launch("flash", 157);
    head.registers = Some(255);
    head.local_bytes = Some(64);
    head.shared_bytes = Some(8192);
    head.blocks_per_sm = Some(1);
    head.block = [64, 2, 1];
    assert_eq!(
        kernels(&[launch("flash", 157)], std::slice::from_ref(&head)),
        [
            "Fail Worse spills 0 → 64 of flash",
            "Warn Other block 128x1x1 → 64x2x1 of flash",
            "Warn Worse registers 128 → 255 of flash",
            "Warn Worse shared-memory 4096 → 8192 of flash",
            "Warn Worse occupancy 2 → 1 of flash",
        ]
    );
    // What one side does not tell is no difference.
    (head.local_bytes, head.blocks_per_sm) = (None, None);
    assert_eq!(kernels(&[launch("flash", 157)], &[head]).len(), 3);
}

#[test]
fn order_and_spelling_are_no_difference() {
    let base = [
        launch("void _GLOBAL__N__1a::a<int, 2>(int *)", 9),
        launch("a<int>", 5),
        launch("a<int>", 7),
    ];
    let head = [
        launch("a<int>", 7),
        launch("a< int >", 5),
        launch("(anonymous namespace)::a<int,2>(int*)", 9),
    ];
    assert!(kernels(&base, &head).is_empty());
    assert!(kernels(&base[1..], &head[..2]).is_empty());
    assert!(kernels(&base[..1], &head[2..]).is_empty());
}

#[test]
fn counts_are_compared_where_both_sides_count() {
    assert_eq!(
        counts(
            &[
                ("calls.selections", 0),
                ("tasks", 8),
                ("threads", 2),
                ("copies", 0)
            ],
            &[
                ("calls.selections", 1),
                ("tasks", 4),
                ("threads", 1),
                ("copies", 3)
            ],
        ),
        [
            "Fail Worse tasks 8 → 4",
            "Fail Worse copies 0 → 3",
            "Fail Worse counts 0 → 1 of calls.selections",
            "Warn Worse threads 2 → 1",
        ]
    );
    assert!(counts(&[("tasks", 8)], &[("tasks", 8), ("module_loads", 9)]).is_empty());
    // Times and shares are no structure.
    assert!(counts(&[("gap_ns", 8)], &[("gap_ns", 80)]).is_empty());
}

#[test]
fn memory_counts_beyond_a_share_and_parameters_always() {
    let workspace = |bytes| [("workspace_bytes", bytes)];
    assert!(counts(&workspace(1000), &workspace(1099)).is_empty());
    assert_eq!(
        counts(&workspace(1000), &workspace(1101)),
        ["Warn Worse memory 1000 B → 1.08 KiB of workspace_bytes"]
    );
    let mut base = record(&[launch("flash", 157)], &[]);
    let mut head = base.clone();
    (base.peak_bytes, head.peak_bytes) = (Some(Bytes(10 << 20)), Some(Bytes(12 << 20)));
    base.effective
        .insert("tile".to_owned(), ParamValue::Int(64));
    head.effective
        .insert("tile".to_owned(), ParamValue::Int(32));
    head.effective.insert("new".to_owned(), ParamValue::Int(1));
    assert_eq!(
        told(&base, &head),
        [
            "Warn Worse memory 10.0 MiB → 12.0 MiB of peak_bytes",
            "Warn Other parameters 64 → 32 of tile"
        ]
    );
}

#[test]
fn a_side_without_a_structure_is_not_compared() {
    let known = record(&[launch("flash", 157)], &[]);
    let policy = StructurePolicy::default();
    for unknown in [around(1.0), record(&[], &[])] {
        for (base, head) in [(&known, &unknown), (&unknown, &known)] {
            let compared = changes(&Pair {
                case: "a",
                base,
                head,
                sms: None,
                policy: &policy,
            });
            assert_eq!(compared, None);
        }
    }
}
