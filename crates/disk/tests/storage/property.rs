//! Random stories: volumes must hold the expected content after any steps, faults and crashes.

use proptest::prelude::*;

use crate::faulty::Fault;
use crate::lab::{BLOCKS, Lab};
use crate::memory_lab::MemoryLab;
use crate::qcow2_lab::Qcow2Lab;
use crate::story::{Attempt, Step, Story};

fn step() -> impl Strategy<Value = Step> {
    let which = 0..8usize;
    prop_oneof![
        4 => (0..BLOCKS, 0..5u8).prop_map(|(block, value)| Step::Write { block, value }),
        4 => (0..BLOCKS, 0..5u8).prop_map(|(block, value)| Step::Snapshot { block, value }),
        1 => Just(Step::Abandon),
        2 => which.clone().prop_map(|which| Step::Restore { which }),
        2 => which.clone().prop_map(|which| Step::Fork { which }),
        3 => which.clone().prop_map(|which| Step::Forget { which }),
        4 => (which, any::<bool>()).prop_map(|(which, by_vm)| Step::Merge { which, by_vm }),
        2 => (2..4usize).prop_map(|after| Step::Flatten { after }),
        1 => Just(Step::Destroy),
    ]
}

fn fault() -> impl Strategy<Value = Option<(usize, Fault)>> {
    let kind = prop_oneof![
        Just(Fault::Before),
        Just(Fault::After),
        Just(Fault::CrashBefore),
        Just(Fault::CrashAfter)
    ];
    proptest::option::weighted(0.4, (0..8usize, kind))
}

fn attempt() -> impl Strategy<Value = Attempt> {
    (0..4usize, step(), fault(), any::<bool>(), any::<u64>())
        .prop_map(|(volume, step, fault, survives, kept)| Attempt { volume, step, fault, survives, kept })
}

fn run<B: Lab>(attempts: &[Attempt]) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut story = Story::<B>::begin().await;
        for attempt in attempts {
            story.attempt(attempt).await;
        }
        story.end().await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_volumes_match_the_model(attempts in proptest::collection::vec(attempt(), 1..60)) {
        run::<MemoryLab>(&attempts);
    }
}

proptest! {
    // Real files take longer.
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn qcow2_volumes_match_the_model(attempts in proptest::collection::vec(attempt(), 1..60)) {
        run::<Qcow2Lab>(&attempts);
    }
}
