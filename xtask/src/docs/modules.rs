//! The modules at the top of a crate must not depend on each other in a circle.
//!
//! A module depends on those that its files name as `crate::…`, outside tests. Only the crates that are listed here are
//! checked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::sources::Source;

const CRATES: [&str; 6] = ["agent", "core", "daemon", "disk", "net", "vm"];

type Graph<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

pub(super) fn problems(sources: &[Source]) -> Vec<String> {
    let circles = CRATES.iter().filter_map(|name| {
        let root = format!("crates/{name}/src");
        let files: Vec<_> = sources.iter().filter_map(|source| file(source, &root)).collect();
        let circle = circle(&graph(&files))?;
        Some(format!("crates/{name}: its modules depend on each other in a circle: {}", circle.join(" → ")))
    });
    circles.collect()
}

/// The module at the top that a file belongs to, and the file's text.
fn file<'a>(source: &'a Source, root: &str) -> Option<(&'a str, &'a str)> {
    let path = source.path.strip_prefix(root).ok()?;
    let module = Path::new(path.components().next()?.as_os_str()).file_stem()?.to_str()?;
    let is_test = path.file_stem().and_then(|stem| stem.to_str()).is_some_and(|stem| stem.ends_with("tests"));
    (module != "lib" && !is_test).then_some((module, source.text.as_str()))
}

fn graph<'a>(files: &[(&'a str, &'a str)]) -> Graph<'a> {
    let modules: BTreeSet<_> = files.iter().map(|(module, _)| *module).collect();
    let mut graph = Graph::new();
    for (module, text) in files {
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let named = lines.flat_map(|line| line.split("crate::").skip(1)).filter_map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            modules.get(&rest[..end]).copied()
        });
        graph.entry(*module).or_default().extend(named.filter(|other| other != module));
    }
    graph
}

/// A circle in the graph, if there is one; its first module is repeated at the end.
fn circle<'a>(graph: &Graph<'a>) -> Option<Vec<&'a str>> {
    let mut left = graph.clone();
    // Modules that depend on nothing that is left are in no circle.
    while let Some(done) = left.iter().find_map(|(module, on)| {
        let free = on.iter().all(|other| !left.contains_key(other));
        free.then_some(*module)
    }) {
        left.remove(done);
    }
    let mut path = vec![*left.keys().next()?];
    loop {
        let next = left.get(path.last()?)?.iter().find(|other| left.contains_key(**other))?;
        if let Some(first) = path.iter().position(|module| module == next) {
            path.push(next);
            return Some(path.split_off(first));
        }
        path.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circle_of_modules_is_named() {
        let files = [
            ("a", "use crate::b::B;"),
            ("b", "fn f() { crate::c::g(); }"),
            ("c", "use crate::{x};\nuse crate::b;"),
            ("d", "// crate::a\n#[cfg(test)]\nmod tests { use crate::a; }"),
        ];
        assert_eq!(circle(&graph(&files)), Some(vec!["b", "c", "b"]));
        assert_eq!(circle(&graph(&[files[0], files[1], files[3]])), None);
    }

    #[test]
    fn files_belong_to_modules_at_the_top() {
        let source = |path: &str| Source { path: path.into(), text: String::new() };
        let module = |path: &str| file(&source(path), "crates/net/src").map(|(module, _)| module.to_owned());
        assert_eq!(module("crates/net/src/bridge/mod.rs").as_deref(), Some("bridge"));
        assert_eq!(module("crates/net/src/dns.rs").as_deref(), Some("dns"));
        assert_eq!(module("crates/net/src/lib.rs"), None);
        assert_eq!(module("crates/net/src/bridge/flow_tests.rs"), None);
        assert_eq!(module("crates/core/src/dns.rs"), None);
    }
}
