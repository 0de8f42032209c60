//! Checks docs/configuration.md, which is written by hand: its table must name exactly the existing keys with their
//! true defaults.

use std::collections::BTreeSet;

use agentiso_core::config::{Config, UserDirs};

use super::document;

/// The rows of the table: key and default (`None` for a key that is unset by default).
fn rows() -> Vec<(String, Option<String>)> {
    let text = std::fs::read_to_string(document("configuration.md")).unwrap();
    text.lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|line| {
            let mut cells = line.split(" | ");
            let key = cells.next()?.trim_end_matches('`').to_owned();
            let default = cells.next()?.trim();
            let default = default.strip_prefix('`').map(|rest| rest.trim_end_matches('`').to_owned());
            key.contains('.').then_some((key, default))
        })
        .collect()
}

/// The keys that the code knows: the public fields of the sections.
fn known_keys() -> BTreeSet<String> {
    let source = include_str!("../../../core/src/config/sections.rs");
    let sections = [
        ("ServerConfig", "server"),
        ("StorageConfig", "storage"),
        ("ImageConfig", "image"),
        ("NetworkConfig", "network"),
        ("VmConfig", "vm"),
        ("ResourcesConfig", "resources"),
        ("PoolConfig", "pool"),
        ("VaultConfig", "vault"),
        ("RateLimitConfig", "rate_limit"),
        ("McpBridgeConfig", "mcp_bridge"),
        ("DashboardConfig", "dashboard"),
    ];
    let structs = source.matches("pub struct ").count();
    assert_eq!(structs, sections.len(), "a section was added; name it here and in docs/configuration.md");
    let mut keys = BTreeSet::new();
    for (name, section) in sections {
        let body =
            source.split(&format!("pub struct {name} {{")).nth(1).and_then(|rest| rest.split("\n}").next());
        for line in body.unwrap().lines() {
            if let Some((field, _)) = line.trim().strip_prefix("pub ").and_then(|rest| rest.split_once(':')) {
                keys.insert(format!("{section}.{field}"));
            }
        }
    }
    keys
}

#[test]
fn docs_configuration_md_names_every_key_once() {
    let rows = rows();
    let documented: BTreeSet<String> = rows.iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(documented.len(), rows.len(), "a key is there twice");
    let known = known_keys();
    let missing: Vec<_> = known.difference(&documented).collect();
    let invented: Vec<_> = documented.difference(&known).collect();
    assert!(missing.is_empty() && invented.is_empty(), "missing: {missing:?}, not a key: {invented:?}");
}

#[test]
fn docs_configuration_md_gives_the_true_defaults() {
    let mut text = String::new();
    for (key, default) in rows() {
        if let Some(default) = default {
            text.push_str(&format!("{key} = {default}\n"));
        }
    }
    let dirs = UserDirs { uid: 1000, home: "/home/u".into(), state_home: None, runtime_dir: None };
    let written = Config::parse(&text, &dirs).unwrap();
    assert_eq!(written, Config::parse("", &dirs).unwrap());
}
