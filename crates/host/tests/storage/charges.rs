//! What counts towards a workspace's limit: what it wrote, whoever shares it, and nothing that it inherited.

use std::path::Path;

use agentiso_core::ids::SnapshotId;
use agentiso_host::disk::memory::BLOCK;
use agentiso_host::disk::{KeyframeDue, Layers, Storage};
use tokio_util::sync::CancellationToken;

use crate::conformance::Bench;
use crate::lab::Lab;
use crate::memory_lab::MemoryLab;
use crate::qcow2_lab::Qcow2Lab;

/// What a layer takes beside its blocks.
const TABLES: u64 = 6 * BLOCK;

/// Blocks that are written here, more than any tables take.
const MANY: u64 = 10;

macro_rules! for_every_backend {
    ($($name:ident)*) => {
        mod memory {
            $(#[tokio::test] async fn $name() { super::$name(super::Bench::<super::MemoryLab>::new()).await; })*
        }
        mod qcow2 {
            $(#[tokio::test] async fn $name() { super::$name(super::Bench::<super::Qcow2Lab>::new()).await; })*
        }
    };
}

for_every_backend! {
    a_layer_counts_for_whoever_wrote_it_shared_or_not
    what_a_fork_inherited_never_counts_for_it_and_what_it_writes_does
    a_keyframe_of_what_was_inherited_counts_as_little
    a_record_that_does_not_say_what_was_inherited_does_not_let_anybody_jump_over_a_limit
}

async fn charged<B: Lab>(bench: &Bench<B>, dir: &Path) -> u64 {
    bench.storage.sizes(dir).await.unwrap().charged_bytes
}

/// A volume with many blocks in a snapshot.
async fn filled<B: Lab>(bench: &Bench<B>) -> SnapshotId {
    bench.create().await;
    for block in 0..MANY {
        bench.write(&bench.dir, block, 1).await;
    }
    bench.snapshot(&bench.dir).await
}

async fn a_layer_counts_for_whoever_wrote_it_shared_or_not<B: Lab>(bench: Bench<B>) {
    let snapshot = filled(&bench).await;
    let alone = charged(&bench, &bench.dir).await;
    assert!(alone >= MANY * BLOCK, "{alone}");
    let fork = bench.lab.directory("fork");
    bench.storage.fork(&bench.dir, snapshot, &fork).await.unwrap();
    assert_eq!(charged(&bench, &bench.dir).await, alone, "a fork makes no room");
    bench.storage.delete(&fork).await.unwrap();
    assert_eq!(charged(&bench, &bench.dir).await, alone, "and takes none away when it goes");
}

async fn what_a_fork_inherited_never_counts_for_it_and_what_it_writes_does<B: Lab>(bench: Bench<B>) {
    let snapshot = filled(&bench).await;
    let fork = bench.lab.directory("fork");
    bench.storage.fork(&bench.dir, snapshot, &fork).await.unwrap();
    assert!(charged(&bench, &fork).await <= TABLES);
    bench.storage.delete(&bench.dir).await.unwrap();
    assert!(charged(&bench, &fork).await <= TABLES, "also when the source is gone");
    for block in 0..MANY {
        bench.write(&fork, block, 2).await;
    }
    let written = charged(&bench, &fork).await;
    assert!((MANY * BLOCK..=MANY * BLOCK + TABLES).contains(&written), "{written}");
    // All of it is written over what was inherited, and takes nothing beside it.
    bench.merge_all(&fork).await;
    assert!(charged(&bench, &fork).await <= TABLES);
    // In a layer that is its own, the same counts again.
    let snapshot = bench.snapshot(&fork).await;
    for block in 0..MANY {
        bench.write(&fork, block, 3).await;
    }
    assert!(charged(&bench, &fork).await >= MANY * BLOCK);
    let grandchild = bench.lab.directory("grandchild");
    bench.storage.fork(&fork, snapshot, &grandchild).await.unwrap();
    assert!(charged(&bench, &grandchild).await <= TABLES);
}

async fn a_keyframe_of_what_was_inherited_counts_as_little<B: Lab>(bench: Bench<B>) {
    filled(&bench).await;
    bench.write(&bench.dir, 0, 2).await;
    let snapshot = bench.snapshot(&bench.dir).await;
    let fork = bench.lab.directory("fork");
    bench.storage.fork(&bench.dir, snapshot, &fork).await.unwrap();
    let (due, never) = (KeyframeDue::after(2), CancellationToken::new());
    let keyframe = bench.storage.keyframe(&fork, due, &never).await.unwrap().expect("one is due");
    assert!(charged(&bench, &fork).await <= 2 * TABLES);
    bench.storage.adopt_keyframe(&fork, &keyframe).await.unwrap();
    assert!(charged(&bench, &fork).await <= 2 * TABLES);
}

async fn a_record_that_does_not_say_what_was_inherited_does_not_let_anybody_jump_over_a_limit<B: Lab>(
    bench: Bench<B>,
) {
    let snapshot = filled(&bench).await;
    let fork = bench.lab.directory("fork");
    bench.storage.fork(&bench.dir, snapshot, &fork).await.unwrap();
    for dir in [&bench.dir, &fork] {
        let text = bench.storage.load(dir).unwrap().unwrap();
        let mut record: serde_json::Value = serde_json::from_str(&text).unwrap();
        for field in ["inherited", "checksum"] {
            record.as_object_mut().unwrap().remove(field).expect("a record says it");
        }
        bench.storage.store(dir, &record.to_string()).unwrap();
    }
    bench.storage.settle(&bench.dir, None, &[snapshot]).await.unwrap();
    bench.storage.settle(&fork, None, &[]).await.unwrap();
    assert!(charged(&bench, &fork).await <= TABLES);
    let source = charged(&bench, &bench.dir).await;
    assert!(source <= TABLES, "it is not known who wrote what both have");
    bench.storage.delete(&fork).await.unwrap();
    assert_eq!(charged(&bench, &bench.dir).await, source);
    for block in 0..MANY {
        bench.write(&bench.dir, block, 2).await;
    }
    assert!(charged(&bench, &bench.dir).await >= MANY * BLOCK, "what is written since counts");
}
