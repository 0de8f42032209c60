//! Search, lists and statistics of notes, and the time of a search in twenty thousand notes.

mod support;

use std::time::Instant;

use agentiso_vault::{Hits, MAX_KNOWLEDGE, Pattern, Query, Question, Tag};
use support::{TestVault, folder};

fn search(t: &TestVault, query: Query) -> Hits {
    let hits = t.vault.search(&query).unwrap();
    assert!(hits.complete);
    hits
}

fn plain(text: &str) -> Query {
    Query { pattern: Pattern::plain(text), prefix: folder(""), tag: None, max_hits: 20 }
}

fn paths(hits: &Hits) -> Vec<&str> {
    hits.hits.iter().map(|hit| hit.path.as_str()).collect()
}

#[test]
fn matching_lines_are_hits_with_context() {
    let t = TestVault::new();
    t.put("b.md", "1\n2\nneedle three\r\n4\n5\n6 needle\n7");
    t.put("a/x.md", "needle");
    t.put("none.txt", "needle");
    t.put(".git/n.md", "needle");
    t.put("a/.obsidian/n.md", "needle");
    t.put("binary.md", b"needle\0");
    t.put("latin.md", b"caf\xe9 needle");
    let found = search(&t, plain("needle"));
    assert_eq!(paths(&found), ["a/x.md", "b.md", "b.md", "latin.md"]);
    assert_eq!(found.total, 4);
    let hit = &found.hits[1];
    assert_eq!((hit.line_number, hit.line.as_str()), (3, "needle three"));
    assert_eq!(hit.context, "1\n2\nneedle three\n4\n5");
    assert_eq!(found.hits[2].context, "4\n5\n6 needle\n7");
    assert_eq!(found.hits[3].line, "caf\u{fffd} needle");
    assert_eq!(search(&t, plain("Needle")).total, 0, "upper and lower case differ");
}

#[test]
fn knowledge_skips_questions_without_answers() {
    let t = TestVault::new();
    t.put("plan.md", "# Plan\nbuild it\n");
    t.put("many.md", "before\nneedle\nafter\n".repeat(7));
    t.put("empty.md", "\n");
    let search = |words: &str| Question::Search(words.to_owned());
    let read = |path: &str| Question::Read(path.to_owned());
    let told = t
        .vault
        .knowledge(&[
            search("nowhere"),
            read("../x"),
            read("none.md"),
            read("empty.md"),
            search("needle"),
            read("plan.md"),
        ])
        .unwrap();
    assert!(told.starts_with("# Project Knowledge Base\n\n## Search: needle\n"), "{told}");
    assert_eq!(told.matches("many.md, line ").count(), 5, "{told}");
    assert!(told.contains("many.md, line 2:\n\nbefore\nneedle\nafter\n"), "{told}");
    assert!(told.ends_with("\n## plan.md\n\n# Plan\nbuild it\n"), "{told}");
    assert_eq!(t.vault.knowledge(&[search("nowhere"), read("none.md")]), None);
    t.put("large.md", "x".repeat(MAX_KNOWLEDGE));
    let told = t.vault.knowledge(&[read("large.md"), read("plan.md")]).unwrap();
    assert!(told.len() < 1000 && told.contains("left out") && told.contains("build it"), "{told}");
}

#[test]
fn expression_matches_within_one_line() {
    let t = TestVault::new();
    t.put("n.md", "v1.20 ä\r\nv2\nend v3.1\n");
    let expression = |text: &str| Query { pattern: Pattern::expression(text).unwrap(), ..plain("") };
    assert_eq!(search(&t, expression(r"^v\d+\.\d+ \w$")).total, 1);
    assert_eq!(search(&t, expression(r"v\d")).total, 3);
    assert_eq!(search(&t, expression(r"v2\nend")).total, 0);
    for bad in ["(", "a{100000000}", "(((a{100}){100}){100}){100}"] {
        assert_eq!(Pattern::expression(bad).unwrap_err().code(), "bad_pattern", "{bad}");
    }
}

#[test]
fn search_is_narrowed_by_folder_and_tag() {
    let t = TestVault::new();
    for path in ["teams/al/n.md", "teams/alpha/n.md", "teams/beta/n.md", "team.md"] {
        t.put(path, "needle\n");
    }
    t.put("teams/beta/tagged.md", "---\ntags: [hot]\n---\nneedle #inline\n");
    let below = |prefix: &str| search(&t, Query { prefix: folder(prefix), ..plain("needle") });
    assert_eq!(paths(&below("teams/al")), ["teams/al/n.md"], "a folder of that name is meant");
    assert_eq!(paths(&below("teams/alp")), ["teams/alpha/n.md"]);
    assert_eq!(paths(&below("teams/beta/n")), ["teams/beta/n.md"]);
    assert_eq!(paths(&below("team")).len(), 5);
    assert_eq!(below("none/at/all").total, 0);
    assert_eq!(below("team.md/x").total, 0);
    for tag in ["hot", "inline"] {
        let query = Query { tag: Some(Tag::parse(tag).unwrap()), ..plain("needle") };
        assert_eq!(paths(&search(&t, query)), ["teams/beta/tagged.md"]);
    }
    let error = t.vault.search(&Query { prefix: folder(".git"), ..plain("x") }).unwrap_err();
    assert_eq!(error.code(), "excluded");
}

#[test]
fn lists_and_figures_show_notes_and_folders_only() {
    let t = TestVault::new();
    t.put("b.md", "12345");
    t.put("a/n.md", "1");
    t.put("a/b/m.md", "");
    t.put("a/card.json", "{}");
    t.put(".obsidian/x.md", "");
    let list = |path: &str, recursive: bool| -> Vec<String> {
        t.vault.list(&folder(path), recursive).unwrap().entries.into_iter().map(|entry| entry.path).collect()
    };
    assert_eq!(list("", false), ["a", "b.md"]);
    assert_eq!(list("", true), ["a", "a/b", "a/b/m.md", "a/n.md", "b.md"]);
    assert_eq!(list("a", false), ["a/b", "a/n.md"]);
    assert_eq!(t.vault.list(&folder("none"), true).unwrap_err().code(), "not_found");
    assert_eq!(t.vault.list(&folder("b.md"), true).unwrap_err().code(), "not_directory");
    let old = std::fs::File::options().write(true).open(t.root().join("b.md")).unwrap();
    old.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1000)).unwrap();
    let stats = t.vault.stats(2).unwrap();
    assert_eq!((stats.total_notes, stats.total_folders, stats.total_size_bytes), (3, 2, 6));
    assert_eq!(stats.recent_files.len(), 2);
    assert!(stats.recent_files.iter().all(|file| file.path != "b.md"), "the newest first");
    assert_eq!(t.vault.stats(9).unwrap().recent_files[2].modified.to_string(), "1970-01-01T00:16:40Z");
}

#[test]
#[expect(clippy::print_stderr, reason = "the printed times are the purpose of the test")]
fn twenty_thousand_notes_are_searched_in_a_moment() {
    let t = TestVault::new();
    let body = "A line of an ordinary note, as people write them.\n".repeat(40);
    for number in 0..20_000 {
        let rare = if number % 4000 == 7 { "the rare needle\n" } else { "" };
        t.put(
            &format!("f{:03}/note-{number}.md", number / 100),
            format!("# Note {number}\n{body}{rare}common\n"),
        );
    }
    let timed = |what: &str, query: Query| {
        let begin = Instant::now();
        let found = search(&t, query);
        let took = begin.elapsed();
        eprintln!("{what}: {} matches among 20,000 notes in {took:?}", found.total);
        assert!(took.as_secs() < 10, "{what} took {took:?}, many times what it should");
        found
    };
    let found = timed("plain text, rare", plain("rare needle"));
    assert_eq!((found.total, found.hits.len()), (5, 5));
    let found = timed("plain text, everywhere", plain("common"));
    assert_eq!((found.total, found.hits.len()), (20_000, 20));
    assert_eq!(found.hits[0].path, "f000/note-0.md");
    let found =
        timed("expression", Query { pattern: Pattern::expression(r"rare \w+le$").unwrap(), ..plain("") });
    assert_eq!(found.total, 5);
    let begin = Instant::now();
    assert_eq!(t.vault.stats(10).unwrap().total_notes, 20_000);
    assert_eq!(t.vault.list(&folder(""), true).unwrap().entries.len(), 20_200);
    eprintln!("figures and list: {:?}", begin.elapsed());
}
