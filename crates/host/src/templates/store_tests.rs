//! Tests of what the store accepts, refuses and removes.

use super::super::key::tests::host_inputs;
use super::*;
use crate::qemu::argv::Shape;

fn image(id: &str) -> TemplateKind {
    TemplateKind::Image {
        image_id: id.to_owned(),
        image_name: "debian".to_owned(),
        disk_gb: 1,
        init_mode: "fast".to_owned(),
    }
}

fn inputs(memory_mb: u32, kind: TemplateKind) -> Inputs {
    Inputs::new(&host_inputs(), Shape { vcpus: 1, memory_mb }, kind)
}

fn publish(store: &Store, inputs: &Inputs) -> Template {
    let building = store.begin(&inputs.key()).unwrap();
    fs::write(building.dir().join(manifest::RAM), "ram").unwrap();
    fs::write(building.dir().join(manifest::DEVICE_STATE), "state").unwrap();
    manifest::seal(building.dir(), inputs.clone(), Duration::from_millis(1)).unwrap().unwrap();
    store.publish(building, &inputs.key()).unwrap()
}

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    (dir, store)
}

#[test]
fn template_is_found_only_after_publishing() {
    let (dir, store) = store();
    let inputs = inputs(512, TemplateKind::Bare);
    assert!(store.find(&inputs).is_none());
    let building = store.begin(&inputs.key()).unwrap();
    assert!(store.find(&inputs).is_none(), "half-made");
    drop(building);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "a build that is dropped leaves nothing");
    publish(&store, &inputs);
    assert!(store.find(&inputs).is_some());
    assert_eq!(store.list().len(), 1);
}

#[test]
fn damaged_template_is_removed_unused() {
    for (file, content) in
        [(manifest::RAM, "longer than before"), (manifest::DEVICE_STATE, "other"), (manifest::FILE, "{}")]
    {
        let (_dir, store) = store();
        let inputs = inputs(512, TemplateKind::Bare);
        let template = publish(&store, &inputs);
        fs::write(template.dir.join(file), content).unwrap();
        assert!(store.find(&inputs).is_none(), "{file}");
        assert!(!template.dir.exists(), "{file}");
    }
}

#[test]
fn publishing_again_replaces_the_template() {
    let (dir, store) = store();
    let inputs = inputs(512, TemplateKind::Bare);
    publish(&store, &inputs);
    publish(&store, &inputs);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn pruning_removes_only_unlocked_builds() {
    let (dir, store) = store();
    let key = inputs(512, TemplateKind::Bare).key();
    let building = store.begin(&key).unwrap();
    let lock = BuildLock::try_acquire(dir.path(), &key).unwrap().unwrap();
    store.prune(&host_inputs(), &HashSet::new()).unwrap();
    assert!(building.dir().exists());
    drop(lock);
    store.prune(&host_inputs(), &HashSet::new()).unwrap();
    assert!(!building.dir().exists());
}

#[test]
fn templates_of_removed_images_are_pruned() {
    let (_dir, store) = store();
    let (old, current, bare) =
        (inputs(512, image("old")), inputs(512, image("current")), inputs(512, TemplateKind::Bare));
    for inputs in [&old, &current, &bare] {
        publish(&store, inputs);
    }
    let pruned = store.prune(&host_inputs(), &HashSet::from(["current".to_owned()])).unwrap();
    assert_eq!(pruned, [old.key()]);
    assert!(store.find(&current).is_some() && store.find(&bare).is_some());
}

#[test]
fn recently_used_foreign_template_is_kept() {
    let info = |age_hours: u64| {
        let (_dir, store) = store();
        let mut foreign = inputs(512, TemplateKind::Bare);
        foreign.host.qemu_size += 1;
        publish(&store, &foreign);
        let mut info = store.list().remove(0);
        info.last_used = SystemTime::now() - Duration::from_secs(age_hours * 3600);
        info
    };
    let now = SystemTime::now();
    assert_eq!(stale(vec![info(1)], &host_inputs(), &HashSet::new(), now).len(), 0);
    assert_eq!(stale(vec![info(48)], &host_inputs(), &HashSet::new(), now).len(), 1);
}

#[test]
fn least_recently_used_templates_beyond_limit_are_stale() {
    let (_dir, store) = store();
    for n in 0..MAX_TEMPLATES as u32 + 2 {
        publish(&store, &inputs(128 + n, TemplateKind::Bare));
    }
    let mut all = store.list();
    let start = SystemTime::now() - Duration::from_secs(1000);
    for info in &mut all {
        info.last_used = start + Duration::from_secs(u64::from(info.manifest.inputs.memory_mb));
    }
    let mut gone = stale(all, &host_inputs(), &HashSet::new(), SystemTime::now());
    gone.sort();
    let mut expected = [inputs(128, TemplateKind::Bare).key(), inputs(129, TemplateKind::Bare).key()];
    expected.sort();
    assert_eq!(gone, expected);
}
