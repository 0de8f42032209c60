//! Tests of the bytes that count towards a workspace's limit: its own writes, shared or not, and nothing inherited.

use std::path::Path;

use agentiso_core::ids::SnapshotId;
use agentiso_disk::{KeyframeDue, Layers, Storage};
use tokio_util::sync::CancellationToken;

use crate::conformance::Bench;
use crate::lab::Lab;
use crate::memory::BLOCK;
use crate::memory_lab::MemoryLab;
use crate::qcow2_lab::Qcow2Lab;

/// The most that a layer takes besides its blocks.
const TABLES: u64 = 6 * BLOCK;

/// A number of blocks that takes more space than any tables.
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
    shared_layer_is_charged_to_its_writer
    fork_is_charged_only_for_its_writes
    keyframe_of_inherited_layers_is_not_charged
    record_without_inheritance_charges_only_new_writes
}

async fn charged<B: Lab>(bench: &Bench<B>, dir: &Path) -> u64 {
    bench.storage.sizes(dir).await.unwrap().charged_bytes
}

/// Makes a volume with a snapshot of many blocks.
async fn filled<B: Lab>(bench: &Bench<B>) -> SnapshotId {
    bench.create().await;
    for block in 0..MANY {
        bench.write(&bench.dir, block, 1).await;
    }
    bench.snapshot(&bench.dir).await
}

async fn shared_layer_is_charged_to_its_writer<B: Lab>(bench: Bench<B>) {
    let snapshot = filled(&bench).await;
    let alone = charged(&bench, &bench.dir).await;
    assert!(alone >= MANY * BLOCK, "{alone}");
    let fork = bench.lab.directory("fork");
    bench.storage.fork(&bench.dir, snapshot, &fork).await.unwrap();
    assert_eq!(charged(&bench, &bench.dir).await, alone, "a fork makes no room");
    bench.storage.delete(&fork).await.unwrap();
    assert_eq!(charged(&bench, &bench.dir).await, alone, "and takes none away when it goes");
}

async fn fork_is_charged_only_for_its_writes<B: Lab>(bench: Bench<B>) {
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
    // The writes replace inherited blocks and take no additional space.
    bench.merge_all(&fork).await;
    assert!(charged(&bench, &fork).await <= TABLES);
    // The same writes in a layer of its own are charged again.
    let snapshot = bench.snapshot(&fork).await;
    for block in 0..MANY {
        bench.write(&fork, block, 3).await;
    }
    assert!(charged(&bench, &fork).await >= MANY * BLOCK);
    let grandchild = bench.lab.directory("grandchild");
    bench.storage.fork(&fork, snapshot, &grandchild).await.unwrap();
    assert!(charged(&bench, &grandchild).await <= TABLES);
}

async fn keyframe_of_inherited_layers_is_not_charged<B: Lab>(bench: Bench<B>) {
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

async fn record_without_inheritance_charges_only_new_writes<B: Lab>(bench: Bench<B>) {
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
