//! Ownership of workspaces, adoption, and quotas of sessions.

use serde_json::{Value, json};

use crate::addressing::{calls, with_own};
use crate::support::Client;
use crate::{another, code, compact, connected, create, keys, text};

#[tokio::test]
async fn every_tool_refuses_workspaces_of_other_sessions() {
    let (world, mut owner) = connected().await;
    let id = create(&mut owner, "web").await;
    owner.call("snapshot", json!({"workspace_id": "web", "action": "create", "name": "s"})).await;
    let mut other = another(&world).await;
    with_own(&mut other).await;
    for theirs in ["web", id.as_str()] {
        let all = calls(theirs).into_iter().filter(|(_, arguments)| arguments.to_string().contains(theirs));
        for (tool, arguments) in all {
            let refused = other.call(tool, arguments.clone()).await;
            assert_eq!(code(&refused), "not_owned", "{tool} {arguments}: {refused}");
            assert!(text(&refused).contains("workspace_adopt"), "{tool}: {refused}");
        }
    }
    let destroy = other.call("workspace_destroy", json!({"workspace_id": "web"})).await;
    assert_eq!(code(&destroy), "owner_active", "{destroy}");
    assert!(text(&destroy).contains("60"), "{destroy}");
    let same = other.call("workspace_create", json!({"name": "web"})).await;
    assert_eq!(code(&same), "name_taken", "names are of the server, not of a session: {same}");
    let listed = compact(&other.call("workspace_list", json!({})).await);
    let owned = |name: &str| {
        let found = listed.as_array().unwrap().iter().find(|entry| entry["name"] == name);
        found.map(|entry| entry["owned"].clone())
    };
    assert_eq!((owned("web"), owned("own")), (Some(json!(false)), Some(json!(true))));
    assert_eq!(code(&owner.call("workspace_info", json!({"workspace_id": "web"})).await), "");
}

#[tokio::test]
async fn adopt_takes_one_or_all_and_reports_refusals() {
    let (world, mut owner) = connected().await;
    let kept = create(&mut owner, "kept").await;
    let mut gone = another(&world).await;
    let left = create(&mut gone, "left").await;
    gone.close().await;
    let mut heir = another(&world).await;
    let one = compact(&heir.call("workspace_adopt", json!({"workspace_id": "left"})).await);
    assert_eq!(keys(&one), ["workspace_id", "name", "state", "ip", "adopted", "forced"]);
    assert_eq!(
        (&one["workspace_id"], &one["adopted"], &one["forced"]),
        (&json!(left), &json!(true), &json!(false))
    );
    let all = compact(&heir.call("workspace_adopt", json!({})).await);
    assert_eq!(all, json!({"adopted_count": 0, "adopted": [], "error_count": 0, "errors": []}));
    let forced = compact(&heir.call("workspace_adopt", json!({"force": true})).await);
    assert_eq!((&forced["adopted_count"], &forced["error_count"]), (&json!(0), &json!(1)));
    assert_eq!(keys(&forced["errors"][0]), ["workspace_id", "error"]);
    assert_eq!(forced["errors"][0]["workspace_id"], kept);
    heir.close().await;
    let mut third = another(&world).await;
    let one = json!({"workspace_id": "left", "force": true});
    assert_eq!(compact(&third.call("workspace_adopt", one).await)["forced"], true);
    third.close().await;
    let mut next = another(&world).await;
    let all = compact(&next.call("workspace_adopt", json!({})).await);
    assert_eq!(all["adopted"], json!([{"workspace_id": left, "name": "left", "state": "running"}]));
}

#[tokio::test]
async fn workspaces_are_adoptable_at_once_after_restart() {
    let (world, mut owner) = connected().await;
    for name in ["a", "b"] {
        create(&mut owner, name).await;
    }
    owner.close().await;
    let world = world.restarted().await;
    let mut next = another(&world).await;
    let destroyed = next.call("workspace_destroy", json!({"workspace_id": "a"})).await;
    assert!(text(&destroyed).contains("destroyed"), "{destroyed}");
    let adopted = compact(&next.call("workspace_adopt", json!({})).await);
    assert_eq!((&adopted["adopted_count"], &adopted["adopted"][0]["name"]), (&json!(1), &json!("b")));
}

#[tokio::test]
async fn first_call_adopts_an_ownerless_workspace() {
    let (world, mut owner) = connected().await;
    for name in ["a", "b"] {
        create(&mut owner, name).await;
    }
    let mut next = another(&world).await;
    let (run, note) = (json!({"workspace_id": "a", "command": "true"}), "/structuredContent/note");
    let refused = next.call("exec", run.clone()).await;
    assert_eq!(code(&refused), "not_owned", "its owner is connected: {refused}");
    owner.close().await;
    let done = next.call("exec", run.clone()).await;
    assert_eq!(code(&done), "", "{done}");
    let told = done.pointer(note).and_then(Value::as_str).unwrap_or_default();
    assert_eq!(told, "Adopted because its session has ended: a.");
    let again = next.call("exec", run).await;
    assert_eq!(again.pointer(note), None, "it is told once: {again}");
    let both = json!({"workspace_ids": ["a", "b"], "commands": "true"});
    let told = next.call("exec_parallel", both).await;
    assert!(told.pointer(note).is_some_and(|note| note.as_str().unwrap().ends_with(": b.")), "{told}");
    next.close().await;
    let mut failing = another(&world).await;
    let failed = failing.call("file_read", json!({"workspace_id": "b", "path": "/none"})).await;
    assert_ne!(code(&failed), "", "{failed}");
    assert!(failed.pointer(note).is_some_and(|note| note.as_str().unwrap().ends_with(": b.")), "{failed}");
    assert!(text(&failed).ends_with(": b."), "{failed}");
    let third = another(&world).await.call("workspace_info", json!({"workspace_id": "b"})).await;
    assert_eq!(code(&third), "not_owned", "{third}");
}

async fn sized(client: &mut Client, memory_mb: u64, disk_gb: u64) -> Value {
    client.call("workspace_create", json!({"memory_mb": memory_mb, "disk_gb": disk_gb})).await
}

#[tokio::test]
async fn session_quota_limits_workspaces_memory_and_disk() {
    let (world, mut client) = connected().await;
    for _ in 0..2 {
        assert_eq!(code(&sized(&mut client, 8192, 1).await), "");
    }
    let memory = sized(&mut client, 128, 1).await;
    assert_eq!(code(&memory), "quota_exceeded", "{memory}");
    assert!(text(&memory).contains("memory") && text(&memory).contains("16384"), "{memory}");

    // Every session has a quota of its own.
    let mut client = another(&world).await;
    assert_eq!(code(&sized(&mut client, 128, 99).await), "");
    assert_eq!(code(&sized(&mut client, 128, 2).await), "quota_exceeded");
    let last = sized(&mut client, 128, 1).await;
    let disk = sized(&mut client, 128, 1).await;
    assert!(text(&disk).contains("disk") && text(&disk).contains("100"), "{disk}");
    let id = compact(&last)["workspace_id"].clone();
    client.call("workspace_destroy", json!({"workspace_id": id})).await;
    assert_eq!(code(&sized(&mut client, 128, 1).await), "", "what is destroyed is given back");

    let mut client = another(&world).await;
    for _ in 0..10 {
        assert_eq!(code(&sized(&mut client, 128, 1).await), "");
    }
    let eleventh = sized(&mut client, 128, 1).await;
    assert!(code(&eleventh) == "quota_exceeded" && text(&eleventh).contains("10"), "{eleventh}");
}
