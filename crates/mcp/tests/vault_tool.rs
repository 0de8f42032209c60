//! The tool `vault` as a client sees it: every action, its answers and its refusals.

mod support;

use serde_json::{Value, json};
use support::{Client, World};

struct Notes {
    world: World,
    client: Client,
}

async fn notes() -> Notes {
    let world = support::world().await;
    let client = Client::initialized(world.session(), "vault", false).await;
    Notes { world, client }
}

impl Notes {
    async fn call(&mut self, arguments: Value) -> Value {
        self.client.call("vault", arguments).await
    }

    /// The text of an answer that must be a success.
    async fn text(&mut self, arguments: Value) -> String {
        let answer = self.call(arguments.clone()).await;
        assert_ne!(answer["isError"], true, "{arguments}: {answer}");
        answer["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// The same as JSON, which must equal the structured form.
    async fn json(&mut self, arguments: Value) -> Value {
        let answer = self.call(arguments.clone()).await;
        assert_ne!(answer["isError"], true, "{arguments}: {answer}");
        let text: Value = serde_json::from_str(answer["content"][0]["text"].as_str().unwrap()).unwrap();
        if text.is_object() && answer["content"][1].is_null() {
            assert_eq!(text, answer["structuredContent"]);
        }
        text
    }

    async fn code(&mut self, arguments: Value) -> String {
        let answer = self.call(arguments.clone()).await;
        assert_eq!(answer["isError"], true, "{arguments}: {answer}");
        answer["structuredContent"]["code"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn note_is_written_read_and_deleted() {
    let mut n = notes().await;
    let text = "---\nstatus: pending\n---\n# Plan\nstep\n";
    n.text(json!({"action": "write", "path": "plans/today.md", "content": text})).await;
    n.text(json!({"action": "write", "path": "plans/today.md", "content": "more\n", "mode": "append"})).await;
    assert_eq!(n.text(json!({"action": "read", "path": "plans/today.md"})).await, format!("{text}more\n"));
    let read = n.json(json!({"action": "read", "path": "plans/today.md", "format": "json"})).await;
    assert_eq!(
        (&read["path"], &read["frontmatter"]),
        (&json!("plans/today.md"), &json!({"status": "pending"}))
    );
    n.text(json!({"action": "write", "path": "cards/a.json", "content": "{}"})).await;
    let plain = n.json(json!({"action": "read", "path": "cards/a.json", "format": "json"})).await;
    assert_eq!(plain["frontmatter"], Value::Null);

    let listed = n.json(json!({"action": "list", "recursive": true})).await;
    assert_eq!(
        listed["entries"],
        json!([
            {"path": "cards", "is_dir": true}, {"path": "plans", "is_dir": true},
            {"path": "plans/today.md", "is_dir": false, "size": text.len() + 5},
        ])
    );
    assert_eq!((&listed["count"], &listed["recursive"]), (&json!(3), &json!(true)));
    assert_eq!(n.json(json!({"action": "list", "path": "plans"})).await["count"], 1);
    assert_eq!(n.json(json!({"action": "list", "path_prefix": "plans/"})).await["path"], "plans");

    for confirm in [json!({}), json!({"confirm": false})] {
        let mut arguments = json!({"action": "delete", "path": "plans/today.md"});
        arguments.as_object_mut().unwrap().extend(confirm.as_object().unwrap().clone());
        assert_eq!(n.code(arguments).await, "invalid_arguments");
    }
    n.text(json!({"action": "delete", "path": "plans/today.md", "confirm": true})).await;
    assert_eq!(n.code(json!({"action": "read", "path": "plans/today.md"})).await, "not_found");
}

#[tokio::test]
async fn search_finds_notes_by_text_folder_and_tag() {
    let mut n = notes().await;
    for (path, text) in [("a/x.md", "1\n2\nneedle #hot\n4\n5\n6\n"), ("b/y.md", "needle\nneedle 22\n")] {
        n.text(json!({"action": "write", "path": path, "content": text})).await;
    }
    let found = n.json(json!({"action": "search", "query": "needle"})).await;
    assert_eq!((&found["query"], &found["result_count"]), (&json!("needle"), &json!(3)));
    assert_eq!(
        found["results"][0],
        json!({
            "path": "a/x.md", "line_number": 3, "line": "needle #hot", "context": "1\n2\nneedle #hot\n4\n5",
        })
    );
    for narrowed in [
        json!({"action": "search", "query": "needle", "path_prefix": "a"}),
        json!({"action": "search", "query": "needle", "path": "a/"}),
        json!({"action": "search", "query": "needle", "tag": "hot"}),
        json!({"action": "search", "query": r"needle \d+$", "regex": true}),
    ] {
        assert_eq!(n.json(narrowed.clone()).await["result_count"], 1, "{narrowed}");
    }
    let limited = n.call(json!({"action": "search", "query": "needle", "max_results": 1})).await;
    let structured = &limited["structuredContent"];
    assert_eq!((&structured["result_count"], &structured["total_matches"]), (&json!(1), &json!(3)));
    assert!(structured["note"].as_str().unwrap().contains("2 more"), "{limited}");
    assert_eq!(
        n.json(json!({"action": "search", "query": "needle", "max_results": 0})).await["result_count"],
        3
    );
    assert_eq!(n.code(json!({"action": "search", "query": "(", "regex": true})).await, "bad_pattern");
    assert_eq!(n.code(json!({"action": "search", "query": "é".repeat(1025)})).await, "invalid_arguments");
    assert_eq!(n.json(json!({"action": "search", "query": "é".repeat(1024)})).await["result_count"], 0);
    let stats = n.json(json!({"action": "stats", "recent_count": 1})).await;
    assert_eq!((&stats["total_notes"], &stats["total_folders"]), (&json!(2), &json!(2)));
    assert_eq!(stats["recent_files"].as_array().unwrap().len(), 1);
    assert!(stats["recent_files"][0]["modified"].as_str().unwrap().ends_with('Z'));
}

#[tokio::test]
async fn vault_defaults_match_the_contract() {
    let mut n = notes().await;
    n.text(json!({"action": "write", "path": "deep/many.md", "content": "a needle (x)\n".repeat(25)})).await;
    let found = n.call(json!({"action": "search", "query": "needle (x)"})).await["structuredContent"].clone();
    assert_eq!((&found["result_count"], &found["total_matches"]), (&json!(20), &json!(25)), "as plain text");
    assert_eq!(n.json(json!({"action": "search", "query": "Needle"})).await["result_count"], 0);

    let replace =
        json!({"action": "replace", "path": "deep/many.md", "old_string": "(x)", "new_string": "$1"});
    assert_eq!(n.json(replace).await["replacements"], 25, "all of them");
    assert!(n.text(json!({"action": "read", "path": "deep/many.md"})).await.starts_with("a needle $1\n"));

    // Notes with a higher number are older.
    let now = std::time::SystemTime::now();
    for number in 0..12 {
        let file = std::fs::File::create(n.world.vault().join(format!("{number:02}.md"))).unwrap();
        file.set_modified(now - std::time::Duration::from_secs(3600 + number)).unwrap();
    }
    let stats = n.json(json!({"action": "stats"})).await;
    let recent = stats["recent_files"].as_array().unwrap();
    let newest: Vec<&str> = recent.iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!((newest.len(), &newest[..3]), (10, &["deep/many.md", "00.md", "01.md"][..]), "{stats}");
    let size = "a needle $1\n".len() * 25;
    assert_eq!((&stats["total_size_bytes"], &recent[0]["size_bytes"]), (&json!(size), &json!(size)));

    let listed = n.json(json!({"action": "list"})).await;
    assert_eq!((&listed["recursive"], &listed["count"]), (&json!(false), &json!(13)), "{listed}");
}

#[tokio::test]
async fn vault_edits_frontmatter_tags_text_and_paths() {
    let mut n = notes().await;
    n.text(json!({"action": "write", "path": "n.md", "content": "body #inline\n"})).await;
    let get = json!({"action": "frontmatter", "path": "n.md", "frontmatter_action": "get"});
    assert_eq!(n.json(get.clone()).await, json!({"path": "n.md", "frontmatter": null}));
    let value = json!({"list": [1, "two", null], "deep": {"er": true}});
    n.text(json!({"action": "frontmatter", "path": "n.md", "frontmatter_action": "set", "key": "k", "value": value})).await;
    assert_eq!(n.json(get.clone()).await["frontmatter"], json!({"k": value}));
    n.text(json!({"action": "tags", "path": "n.md", "tags_action": "add", "tag": "#new"})).await;
    n.text(json!({"action": "tags", "path": "n.md", "tags_action": "add", "tag": "new"})).await;
    let tags = json!({"action": "tags", "path": "n.md", "tags_action": "list"});
    assert_eq!(n.json(tags).await, json!({"path": "n.md", "tags": ["new", "inline"]}));
    n.text(json!({"action": "tags", "path": "n.md", "tags_action": "remove", "tag": "new"})).await;
    n.text(json!({"action": "frontmatter", "path": "n.md", "frontmatter_action": "delete", "key": "k"}))
        .await;
    assert_eq!(n.text(json!({"action": "read", "path": "n.md"})).await, "body #inline\n");

    let replaced = n
        .json(json!({"action": "replace", "path": "n.md", "old_string": r"(\w+) #", "new_string": "$1: #",
        "regex": true}))
        .await;
    assert_eq!(replaced, json!({"path": "n.md", "replacements": 1}));
    assert_eq!(n.text(json!({"action": "read", "path": "n.md"})).await, "body: #inline\n");
    let none =
        n.json(json!({"action": "replace", "path": "n.md", "old_string": "zzz", "new_string": ""})).await;
    assert_eq!(none["replacements"], 0);
    assert_eq!(
        n.code(json!({"action": "replace", "path": "n.md", "old_string": "", "new_string": "x"})).await,
        "invalid_arguments"
    );

    let moved = n.json(json!({"action": "move", "path": "n.md", "new_path": "deep/m.md"})).await;
    assert_eq!(moved, json!({"moved": true, "from": "n.md", "to": "deep/m.md"}));
    n.text(json!({"action": "write", "path": "n.md", "content": "other"})).await;
    let over = json!({"action": "move", "path": "n.md", "new_path": "deep/m.md"});
    assert_eq!(n.code(over.clone()).await, "file_exists");
    n.json(json!({"action": "move", "path": "n.md", "new_path": "deep/m.md", "overwrite": true})).await;

    let batch = n.json(json!({"action": "batch_read", "paths": ["deep/m.md", "../x", "none.md"]})).await;
    assert_eq!(batch[0], json!({"path": "deep/m.md", "content": "other", "frontmatter": null}));
    assert!(batch[1]["error"].as_str().unwrap().contains("..") && batch[2]["error"].is_string(), "{batch}");
    let brief = json!({"action": "batch_read", "paths": ["deep/m.md"], "include_content": false, "include_frontmatter": false});
    assert_eq!(n.json(brief).await, json!([{"path": "deep/m.md"}]));
    assert_eq!(n.code(json!({"action": "batch_read", "paths": vec!["a.md"; 11]})).await, "invalid_arguments");
}

#[tokio::test]
async fn vault_reports_all_argument_problems_at_once() {
    let mut n = notes().await;
    let answer = n.call(json!({"action": "serach", "query": 5, "max_results": -1})).await;
    let text = answer["content"][0]["text"].as_str().unwrap();
    for part in ["did you mean \"search\"?", "query must be a string", "max_results must be"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let answer = n.call(json!({"action": "move", "path": "../out.md"})).await;
    let text = answer["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("path cannot be used") && text.contains("new_path is missing"), "{text}");
    for path in ["/etc/passwd", "a/../../b", "x\u{0}", "a\nb", ""] {
        assert_eq!(n.code(json!({"action": "read", "path": path})).await, "invalid_arguments", "{path:?}");
    }
    let outside = n.world.vault().with_file_name("outside");
    std::fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, n.world.vault().join("link")).unwrap();
    let through = json!({"action": "write", "path": "link/new/n.md", "content": "x"});
    assert_eq!(n.code(through).await, "symbolic_link");
    assert_eq!(std::fs::read_dir(outside).unwrap().count(), 0);
    assert_eq!(n.code(json!({"action": "write", "path": ".git/x.md", "content": "x"})).await, "excluded");
    let large = json!({"action": "write", "path": "n.md", "content": "x".repeat(10 * 1024 * 1024 + 1)});
    assert_eq!(n.code(large).await, "invalid_arguments");
}

#[tokio::test]
async fn long_vault_answers_say_how_to_continue() {
    let mut n = notes().await;
    let long = "ä€😀 words\n".repeat(20_000);
    std::fs::write(n.world.vault().join("long.md"), &long).unwrap();
    let (mut offset, mut joined) = (0, String::new());
    while offset < long.len() {
        let answer = n.call(json!({"action": "read", "path": "long.md", "offset": offset})).await;
        let part = answer["content"][0]["text"].as_str().unwrap();
        assert!(part.len() < 50_000 && !part.is_empty());
        joined.push_str(part);
        offset += part.len();
        let says_more = answer["structuredContent"]["note"]
            .as_str()
            .is_some_and(|note| note.contains(&format!("offset {offset}")));
        assert_eq!(says_more, offset < long.len(), "{}", answer["structuredContent"]["note"]);
    }
    assert_eq!(joined, long);
    for number in 0..2000 {
        std::fs::write(n.world.vault().join(format!("note-{number:04}.md")), "needle ".repeat(100)).unwrap();
    }
    for (arguments, count) in [
        (json!({"action": "list"}), "count"),
        (json!({"action": "search", "query": "needle", "max_results": 0}), "total_matches"),
    ] {
        let answer = n.call(arguments).await;
        assert!(answer["content"][0]["text"].as_str().unwrap().len() < 50_000);
        assert!(answer["structuredContent"][count].as_u64().unwrap() >= 2000, "{count}");
        assert!(answer["structuredContent"]["note"].as_str().unwrap().contains("more"));
    }
    let paths: Vec<String> = (0..10).map(|_| "long.md".to_owned()).collect();
    let batch = n.call(json!({"action": "batch_read", "paths": paths})).await;
    assert!(batch["content"][0]["text"].as_str().unwrap().len() < 50_000);
    assert_eq!(batch["structuredContent"]["notes"][9]["size"], long.len());
}

#[tokio::test]
async fn disabled_vault_calls_name_the_configuration_key() {
    let world = support::world_without_vault().await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    let list = client.request("tools/list", None).await;
    assert!(list["result"]["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "vault"));
    for arguments in [json!({"action": "stats"}), json!({"action": "nonsense"}), json!({})] {
        let answer = client.call("vault", arguments).await;
        assert_eq!(
            (&answer["isError"], &answer["structuredContent"]["code"]),
            (&json!(true), &json!("vault_disabled"))
        );
        assert!(answer["structuredContent"]["hint"].as_str().unwrap().contains("vault.enabled"), "{answer}");
    }
}
