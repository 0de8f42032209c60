//! Ten thousand random argument sets for each tool, generated from its schema. Every call is answered, arguments that
//! the schema allows are never called invalid, and those that it forbids always are.

mod support;

use agentiso_core::names::WorkspaceName;
use agentiso_core::network::{NetworkPolicy, PolicyChange};
use agentiso_core::team::TeamName;
use agentiso_git::calls::Author;
use agentiso_git::{BranchName, Remote};
use serde_json::{Map, Value, json};
use support::Client;

const ROUNDS: usize = 10_000;

/// Limits that the schema leaves to the configuration; these tests use its defaults.
const CONFIGURED_LIMITS: [(&str, f64); 3] = [("vcpus", 8.0), ("memory_mb", 8192.0), ("disk_gb", 100.0)];

/// Calls in progress at once.
const WINDOW: usize = 50;

/// One test for each tool, so that they share the cores and a failure names its tool.
macro_rules! fuzz {
    ($($tool:ident),+ $(,)?) => {
        const FUZZED: &[&str] = &[$(stringify!($tool)),+];

        mod random_arguments_are_answered_by {
            $(
                #[tokio::test]
                async fn $tool() {
                    super::fuzz(stringify!($tool)).await;
                }
            )+
        }
    };
}

fuzz!(
    workspace_create,
    workspace_destroy,
    workspace_start,
    workspace_stop,
    workspace_list,
    workspace_info,
    workspace_logs,
    workspace_adopt,
    exec,
    exec_background,
    exec_parallel,
    set_env,
    file_read,
    file_write,
    file_edit,
    file_list,
    file_transfer,
    snapshot,
    workspace_fork,
    network_policy,
    port_forward,
    git_clone,
    git_status,
    git_commit,
    git_push,
    git_diff,
    workspace_merge,
    workspace_prepare,
    swarm_run,
    vault,
    team,
    snapshot_create,
    snapshot_restore,
    snapshot_list,
    snapshot_delete,
    snapshot_diff,
);

/// Tools that are listed only if a profile names them.
const SINGLE_ACTIONS: &str = "snapshot_create,snapshot_restore,snapshot_list,snapshot_delete,snapshot_diff";

#[tokio::test]
async fn every_listed_tool_is_fuzzed() {
    let world = support::world().await;
    let tools = format!("full,{SINGLE_ACTIONS}");
    let mut client = Client::initialized(world.session(), &tools, false).await;
    let list = client.request("tools/list", None).await;
    let names: Vec<&str> = list["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, FUZZED);
}

async fn fuzz(name: &str) {
    let world = support::world().await;
    let mut client = Client::initialized(world.session(), name, false).await;
    let list = client.request("tools/list", None).await;
    let schema = &list["result"]["tools"][0]["inputSchema"];
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    for round in 0..ROUNDS / WINDOW {
        let mut expected = Vec::with_capacity(WINDOW);
        for slot in 0..WINDOW {
            let (arguments, valid) = arguments(&mut dice, schema);
            let within =
                |(key, max): &(&str, f64)| arguments[*key].as_f64().is_none_or(|given| given <= *max);
            let valid = valid && CONFIGURED_LIMITS.iter().all(within) && fits_its_action(name, &arguments);
            let id = format!("{round}-{slot}");
            let params = json!({"name": name, "arguments": arguments});
            let request = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
            client.send(&request.to_string()).await;
            expected.push((id, arguments, valid));
        }
        for _ in 0..WINDOW {
            let answer = client.receive().await;
            let at = expected.iter().position(|(id, ..)| answer["id"] == *id).expect("an id that was sent");
            let (_, arguments, valid) = expected.swap_remove(at);
            let refused = answer["result"]["structuredContent"]["code"] == "invalid_arguments";
            assert!(answer["result"]["content"][0]["text"].is_string(), "{arguments}: {answer}");
            assert_eq!(refused, !valid, "{arguments}: {answer}");
            assert_ne!(answer["result"]["structuredContent"]["code"], "internal", "{arguments}");
        }
    }
    client.close().await;
}

/// Rules that no plain schema expresses: which arguments belong to which action, the form of policy rules, and the
/// names that git accepts.
fn fits_its_action(tool: &str, arguments: &Value) -> bool {
    let action = &arguments["action"];
    let is_word = |key: &str, check: fn(&str) -> bool| arguments[key].as_str().is_none_or(check);
    match tool {
        "git_clone" => is_word("branch", |text| BranchName::parse(text).is_ok()),
        "git_commit" => {
            ["author_name", "author_email"].iter().all(|key| is_word(key, |text| Author::check(text).is_ok()))
        }
        "git_push" => {
            is_word("branch", |text| BranchName::parse(text).is_ok())
                && is_word("remote", |text| Remote::parse(text).is_ok())
        }
        "swarm_run" => {
            let tasks = arguments["tasks"].as_array().cloned().unwrap_or_default();
            let mut names: Vec<_> = tasks.iter().map(|task| task["name"].to_string()).collect();
            names.sort_unstable();
            names.dedup();
            names.len() == tasks.len()
                && arguments["vault_context"].as_array().is_none_or(Vec::is_empty)
                && (arguments["merge_target"].is_null() || !arguments["merge_strategy"].is_null())
        }
        "snapshot" => {
            (action == "list" || !arguments["name"].is_null())
                && (action == "create" || arguments["include_memory"] != true)
        }
        "exec" => {
            let (after, timeout) = (&arguments["background_after_secs"], &arguments["timeout_secs"]);
            after.is_null() || timeout.is_null() || after.as_f64() < timeout.as_f64()
        }
        "exec_background" => match action.as_str() {
            Some("poll" | "kill") => !arguments["job_id"].is_null(),
            Some("list") => true,
            _ => !arguments["command"].is_null(),
        },
        "exec_parallel" => match (&arguments["commands"], &arguments["workspace_ids"]) {
            (Value::Array(commands), Value::Array(workspaces)) => commands.len() == workspaces.len(),
            _ => true,
        },
        "vault" => fits_vault(arguments),
        "team" => fits_team(arguments),
        "workspace_create" | "workspace_prepare" => is_policy(&arguments["network_policy"]),
        "network_policy" => {
            let mut policy = arguments.clone();
            let fields = policy.as_object_mut().unwrap();
            fields.retain(|key, value| {
                !["workspace_id", "bandwidth_mbps", "allowed_ports"].contains(&key.as_str())
                    && !value.is_null()
            });
            is_policy(&policy)
        }
        _ => true,
    }
}

/// The arguments that each action of `vault` requires, and the form of paths and tags.
fn fits_vault(arguments: &Value) -> bool {
    let given = |name: &str| !arguments[name].is_null();
    let text = |name: &str| arguments[name].as_str().unwrap_or_default();
    let is_path = |path: &str| path.len() < 256 && !path.chars().any(char::is_control);
    let note = |name: &str| given(name) && is_path(text(name));
    let folder = || is_path(text(if given("path_prefix") { "path_prefix" } else { "path" }));
    let is_tag = || text("tag").chars().all(char::is_alphanumeric);
    match text("action") {
        "read" => note("path"),
        "write" => note("path") && given("content"),
        "search" => given("query") && folder() && is_tag(),
        "list" => folder(),
        "delete" => note("path") && arguments["confirm"] == true,
        "frontmatter" => {
            note("path")
                && match text("frontmatter_action") {
                    "get" => true,
                    "set" => given("key") && given("value"),
                    "delete" => given("key"),
                    _ => false,
                }
        }
        "tags" => {
            note("path")
                && match text("tags_action") {
                    "list" => true,
                    "add" | "remove" => given("tag") && is_tag(),
                    _ => false,
                }
        }
        "replace" => note("path") && given("old_string") && given("new_string"),
        "move" => note("path") && note("new_path"),
        "batch_read" => given("paths"),
        _ => true,
    }
}

/// The arguments that each action of `team` requires, and the form of names.
fn fits_team(arguments: &Value) -> bool {
    let given = |names: &[&str]| names.iter().all(|name| !arguments[*name].is_null());
    let all = |names: &[&str], fits: &dyn Fn(&str) -> bool| {
        names.iter().filter_map(|name| arguments[*name].as_str()).all(fits)
    };
    let is_label = |text: &str| TeamName::parse(text).is_ok();
    let roles = arguments["roles"].as_array().cloned().unwrap_or_default();
    // The generator makes no other text that is too long.
    let short = all(
        &["agent", "to", "message_type", "task_id", "golden_workspace", "base_snapshot", "title"],
        &|text| text.len() < 800,
    );
    let ids = arguments["depends_on"].as_array().cloned().unwrap_or_default();
    short
        && ids.iter().filter_map(Value::as_str).all(|id| id.len() < 800)
        && all(&["name", "parent_team"], &is_label)
        && roles.iter().filter_map(|role| role["name"].as_str()).all(is_label)
        && match arguments["action"].as_str().unwrap_or_default() {
            "create" => {
                given(&["name", "roles"])
                    && (given(&["golden_workspace"]) || arguments["base_snapshot"].is_null())
                    && all(&["golden_workspace", "base_snapshot"], &|text| WorkspaceName::parse(text).is_ok())
            }
            "list" => true,
            "message" => given(&["name", "agent", "to", "content"]),
            "receive" => given(&["name", "agent"]),
            "task_create" => given(&["name", "title"]),
            "task_claim" | "task_start" | "task_complete" | "task_release" => {
                given(&["name", "agent", "task_id"])
            }
            "task_fail" => given(&["name", "task_id"]),
            _ => given(&["name"]),
        }
}

fn is_policy(value: &Value) -> bool {
    let change = serde_json::from_value::<PolicyChange>(value.clone());
    value.is_null() || change.is_ok_and(|change| change.apply_to(&NetworkPolicy::default()).is_ok())
}

/// A small random generator, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }
}

/// Random arguments, and whether the schema allows them.
fn arguments(dice: &mut Dice, schema: &Value) -> (Value, bool) {
    let required: Vec<&str> = schema["required"]
        .as_array()
        .map(|r| r.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let mut object = Map::new();
    let mut valid = true;
    for (name, property) in schema["properties"].as_object().unwrap() {
        let is_required = required.contains(&name.as_str());
        if dice.one_in(if is_required { 12 } else { 2 }) {
            valid &= !is_required;
            if dice.one_in(2) {
                object.insert(name.clone(), Value::Null);
            }
            continue;
        }
        // A parameter without a type takes anything.
        if dice.one_in(6) && !property["type"].is_null() {
            let value = wrong(dice, name, property);
            object.insert(name.clone(), value);
            valid = false;
        } else {
            let value = right(dice, name, property);
            object.insert(name.clone(), value);
        }
    }
    if dice.one_in(15) {
        object.insert(dice.pick(&["", "workspace", "cmd", "x\n", "__proto__", "🦀"]).to_owned(), json!(1));
        valid = false;
    }
    (object.into(), valid)
}

/// Beginning of the pattern of a name; the maximum length follows.
const NAMES: &str = r"^[\w.-]{1,";

/// Names of workspaces have a pattern too, which the tool list leaves out because it has so many of them.
fn pattern<'a>(name: &str, schema: &'a Value) -> Option<&'a str> {
    // Only one action of `team` checks its workspace name.
    let of_one_action = schema["description"].as_str().is_some_and(|about| about.starts_with("create:"));
    let is_workspace = (name.contains("workspace") || name == "merge_target") && !of_one_action;
    schema["pattern"].as_str().or_else(|| is_workspace.then_some(r"^[\w.-]{1,128}$"))
}

fn right(dice: &mut Dice, name: &str, schema: &Value) -> Value {
    if let Some(choices) = schema["anyOf"].as_array() {
        let choice = dice.pick(choices);
        return right(dice, name, &choice);
    }
    if schema["type"].is_null() {
        return dice.pick(&[
            json!(1),
            json!("x: [\n"),
            json!([null, {}]),
            json!({"a": {"b": true}}),
            json!(-0.5),
        ]);
    }
    match schema["type"].as_str().unwrap() {
        "integer" => {
            let min = schema["minimum"].as_u64().unwrap();
            let max = schema["maximum"].as_u64().unwrap_or(u64::from(u32::MAX));
            let value = dice.pick(&[min, max, min + dice.0 % (max - min + 1)]);
            if dice.one_in(3) && value < 1 << 53 { json!(value as f64) } else { json!(value) }
        }
        "boolean" => json!(dice.one_in(2)),
        "array" => {
            // Full lists now and then, short ones mostly.
            let most = schema["maxItems"].as_u64().unwrap();
            let most = if dice.one_in(50) { most } else { most.min(12) };
            let least = schema["minItems"].as_u64().unwrap_or(0);
            let items = least + dice.below(most + 1 - least);
            (0..items).map(|_| right(dice, name, &schema["items"])).collect()
        }
        "object" if schema["properties"].is_object() => {
            let required = schema["required"].as_array().unwrap();
            let properties = schema["properties"].as_object().unwrap();
            let given = properties.iter().filter_map(|(name, property)| {
                let is_given = required.contains(&json!(name)) || dice.one_in(2);
                is_given.then(|| (name.clone(), right(dice, name, property)))
            });
            Value::Object(given.collect())
        }
        "object" => {
            let pairs = [("CI", ""), ("_x1", "ä\n\"'`$(id)"), ("PYTHONPATH", "/x"), ("LDX", "1")];
            json!(Map::from_iter((0..dice.below(4)).map(|_| {
                let (name, value) = dice.pick(&pairs);
                (name.to_owned(), json!(value))
            })))
        }
        "string" => json!(match (schema["enum"].as_array(), pattern(name, schema)) {
            (Some(words), _) => dice.pick(words).as_str().unwrap().to_owned(),
            (None, Some("^/")) =>
                dice.pick(&["/", "/x/../y", "/ü \n\"'", "/a;rm -rf /", "//", "/\u{202e}"]).to_owned(),
            (None, Some(pattern)) if pattern.starts_with(NAMES) => {
                let longest = pattern[NAMES.len()..].trim_end_matches("}$").parse().unwrap();
                let longest = "n".repeat(longest);
                dice.pick(&["a", "A.b_c-9", "0", "x.y", "00000000-0000-0000-0000-000000000000", &longest])
                    .to_owned()
            }
            (None, Some("://|@")) => dice
                .pick(&["https://example.com/a.git", "git@host:path", "ssh://git@h:22/x", "http://u:p@h/x"])
                .to_owned(),
            (None, Some(_)) => dice.pick(&["0644", "755", "0o600", "7777", "0"]).to_owned(),
            (None, None) =>
                dice.pick(&["true", "ä€😀", "\u{1}", "' \" ` $ \\", &"long ".repeat(25)]).to_owned(),
        }),
        other => panic!("no generator for {other}"),
    }
}

fn wrong(dice: &mut Dice, name: &str, schema: &Value) -> Value {
    if schema["anyOf"].is_array() {
        return dice.pick(&[
            json!(1),
            json!(true),
            json!({}),
            json!([]),
            json!(""),
            json!(["\0"]),
            json!([1]),
        ]);
    }
    let kind = schema["type"].as_str().unwrap();
    let other_types =
        [json!([]), json!([1, [2]]), json!(1.5e-3), json!({"a": {"b": null}}), json!(true), json!("text")];
    let specific: Vec<Value> = match (kind, pattern(name, schema), schema["enum"].is_array()) {
        ("integer", ..) => {
            vec![
                json!(-1),
                json!(0.5),
                json!("5"),
                json!(u64::MAX),
                json!(1e300),
                json!(-1e300),
                json!(i64::MIN),
            ]
        }
        ("array", ..) if schema["items"]["type"] == "integer" => {
            vec![json!([0]), json!(["1"]), json!([null]), json!([65_536]), json!(vec![1; 1000])]
        }
        ("array", ..) => {
            vec![json!([1]), json!(["true", ""]), json!([null]), json!(["\0"]), json!(vec!["true"; 1000])]
        }
        ("object", ..) => vec![json!({"A": 1}), json!({"PATH": "x"}), json!({"": "x"}), json!({"A=B": "x"})],
        ("string", Some("^/"), _) => {
            vec![json!(""), json!("relative"), json!("/nul\0"), json!(format!("/{}", "x".repeat(5000)))]
        }
        ("string", Some(pattern), _) if pattern.starts_with(NAMES) => {
            vec![
                json!(""),
                json!("a b"),
                json!("ü"),
                json!("x\n"),
                json!("a/b"),
                json!(".."),
                json!("n".repeat(129)),
            ]
        }
        ("string", Some("://|@"), _) => {
            vec![
                json!(""),
                json!("-x"),
                json!("/etc"),
                json!("file:///x"),
                json!("https://a/b;c"),
                json!("ext::x"),
            ]
        }
        ("string", Some(_), _) => {
            vec![json!("888"), json!("rwx"), json!("0x1"), json!("77777777777777777777")]
        }
        // log_type takes every text.
        ("string", None, true) if name != "log_type" => vec![json!("RUNNING"), json!("")],
        _ => Vec::new(),
    };
    if !specific.is_empty() && dice.one_in(2) {
        return dice.pick(&specific);
    }
    loop {
        let value = dice.pick(&other_types);
        let same_type = match kind {
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "object" => value.is_object(),
            "array" => value.is_array(),
            _ => false,
        };
        if !same_type {
            return value;
        }
    }
}
