//! The graph of the crates in ARCHITECTURE.md, drawn from their manifests.
//!
//! Crates are in layers. A crate may depend only on crates of lower layers. So there are no cycles, and a dependency
//! that points the wrong way is reported here. Dependencies of tests do not count.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell;

const DOCUMENT: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- crates: written by ./x docs --update -->\n```text\n";
const END: &str = "```\n<!-- end of crates -->";

/// From the foundation up. Every crate of the workspace is in one layer.
const LAYERS: [&[&str]; 10] = [
    &["core", "diff", "http", "protocol", "tree", "vault", "testkit", "xtask"],
    &["git", "guest", "net", "sys"],
    &["vm"],
    &["agent", "disk"],
    &["host", "image"],
    &["selfcheck"],
    &["daemon"],
    &["mcp"],
    &["agentiso"],
    &["bench", "e2e", "soak"],
];

type Graph = BTreeMap<String, Vec<String>>;

pub(super) fn problems(root: &Path, update: bool) -> Result<Vec<String>> {
    let graph = graph(&metadata()?)?;
    let mut problems: Vec<String> = graph.keys().filter_map(|name| unplaced(name)).collect();
    problems.extend(wrong_ways(&graph));
    let path = root.join(DOCUMENT);
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {DOCUMENT}"))?;
    let drawn = replaced(&text, &drawing(&graph))?;
    if drawn != text {
        if update {
            std::fs::write(&path, drawn).with_context(|| format!("writing {DOCUMENT}"))?;
        } else {
            problems
                .push(format!("{DOCUMENT}: the graph of the crates is out of date; run ./x docs --update"));
        }
    }
    Ok(problems)
}

fn metadata() -> Result<Value> {
    let mut cargo = shell::cargo();
    let output =
        cargo.args(["metadata", "--format-version", "1", "--no-deps"]).output().context("running cargo")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("reading the output of cargo metadata")
}

/// The crates of the workspace, without their common prefix, each with those it depends on.
fn graph(metadata: &Value) -> Result<Graph> {
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let name = |value: &Value| value["name"].as_str().map(str::to_owned);
    let members: Vec<String> = packages.iter().filter_map(name).collect();
    let short = |name: &String| name.strip_prefix("agentiso-").unwrap_or(name).to_owned();
    let mut graph = Graph::new();
    for package in packages {
        let all = package["dependencies"].as_array().into_iter().flatten();
        let needed = all.filter(|dependency| dependency["kind"].is_null()).filter_map(name);
        let mut inner: Vec<String> =
            needed.filter(|name| members.contains(name)).map(|name| short(&name)).collect();
        inner.sort();
        inner.dedup();
        graph.insert(short(&name(package).context("cargo metadata lists a package without a name")?), inner);
    }
    Ok(graph)
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

fn unplaced(name: &str) -> Option<String> {
    layer(name).is_none().then(|| format!("crate {name} is in no layer of xtask/src/docs/crates.rs"))
}

fn wrong_ways(graph: &Graph) -> Vec<String> {
    let edges = graph.iter().flat_map(|(from, all)| all.iter().map(move |to| (from, to)));
    edges
        .filter(|(from, to)| layer(to) >= layer(from))
        .map(|(from, to)| format!("crate {from} must not depend on {to}, which is not in a lower layer"))
        .collect()
}

/// One line per crate, the highest layer first.
fn drawing(graph: &Graph) -> String {
    let width = graph.keys().map(String::len).max().unwrap_or_default();
    let mut lines = String::new();
    for layer in LAYERS.iter().rev() {
        for name in *layer {
            let below = graph.get(*name).map(|all| all.join(", ")).unwrap_or_default();
            let arrow = if below.is_empty() { String::new() } else { format!(" → {below}") };
            lines.push_str(format!("{name:width$}{arrow}").trim_end());
            lines.push('\n');
        }
    }
    lines
}

/// The document with this drawing between its marks.
fn replaced(text: &str, drawing: &str) -> Result<String> {
    let marks = || format!("{DOCUMENT} has no marks for the graph of the crates");
    let (before, rest) = text.split_once(BEGIN).with_context(marks)?;
    let (_, after) = rest.split_once(END).with_context(marks)?;
    Ok(format!("{before}{BEGIN}{drawing}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(edges: &[(&str, &[&str])]) -> Graph {
        edges
            .iter()
            .map(|(from, to)| ((*from).to_owned(), to.iter().map(|to| (*to).to_owned()).collect()))
            .collect()
    }

    #[test]
    fn dependencies_point_to_lower_layers() {
        assert_eq!(wrong_ways(&of(&[("daemon", &["host"]), ("host", &["core"])])), Vec::<String>::new());
        assert_eq!(wrong_ways(&of(&[("host", &["daemon"])])).len(), 1);
        assert_eq!(wrong_ways(&of(&[("host", &["image"])])).len(), 1, "neighbours do not know each other");
        assert!(unplaced("new").is_some() && unplaced("host").is_none());
    }

    #[test]
    fn dependencies_of_tests_do_not_count() {
        let metadata = serde_json::json!({"packages": [
            {"name": "agentiso-host", "dependencies": [
                {"name": "agentiso-core", "kind": null},
                {"name": "agentiso-testkit", "kind": "dev"},
                {"name": "serde", "kind": null},
            ]},
            {"name": "agentiso-core", "dependencies": []},
            {"name": "agentiso-testkit", "dependencies": []},
        ]});
        let graph = graph(&metadata).unwrap();
        assert_eq!(graph, of(&[("core", &[]), ("host", &["core"]), ("testkit", &[])]));
    }

    #[test]
    fn drawing_replaces_only_its_own_lines() {
        let text = format!("before\n{BEGIN}old\n{END}\nafter\n");
        assert_eq!(replaced(&text, "new\n").unwrap(), format!("before\n{BEGIN}new\n{END}\nafter\n"));
        assert!(replaced("nothing", "new").is_err());
    }
}
