//! Reading and writing single notes, hostile paths and files, and cleanup after errors.
#![expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]

mod support;

use std::os::unix::fs::{PermissionsExt, symlink};

use agentiso_vault::{MAX_NOTE, Replacement, Tag, VaultError, WriteMode};
use serde_json::json;
use support::{TestVault, folder, note};

#[test]
fn note_is_written_with_its_folders() {
    let t = TestVault::new();
    assert!(t.vault.write(&note("a/b/c.md"), "one\n", WriteMode::Overwrite).unwrap());
    assert!(!t.vault.write(&note("a/b/c.md"), "two\n", WriteMode::Overwrite).unwrap());
    t.write("a/b/c.md", "end\n", WriteMode::Append);
    t.write("a/b/c.md", "begin\n", WriteMode::Prepend);
    assert_eq!(t.vault.read(&note("a/b/c.md")).unwrap(), "begin\ntwo\nend\n");
    t.write("new.md", "x", WriteMode::Append);
    t.write("new2.md", "y", WriteMode::Prepend);
    assert_eq!(t.everything(), ["a", "a/b", "a/b/c.md", "new.md", "new2.md"]);
}

#[test]
fn text_is_prepended_after_the_frontmatter() {
    let t = TestVault::new();
    t.put("n.md", "---\nk: v\n---\nbody\n");
    t.write("n.md", "first\n", WriteMode::Prepend);
    assert_eq!(t.get("n.md"), "---\nk: v\n---\nfirst\nbody\n");
    t.put("m.md", "---\r\n---");
    t.write("m.md", "x", WriteMode::Prepend);
    assert_eq!(t.get("m.md"), "---\r\n---\nx");
}

#[test]
fn no_symbolic_link_leads_out_of_the_vault() {
    let t = TestVault::new();
    let outside = t.outside();
    std::fs::write(outside.join("secret.md"), "secret").unwrap();
    symlink(&outside, t.root().join("out")).unwrap();
    symlink(outside.join("secret.md"), t.root().join("link.md")).unwrap();
    symlink("nowhere.md", t.root().join("dangling.md")).unwrap();
    symlink("/", t.root().join("slash")).unwrap();
    t.put("real/n.md", "find secret\n");
    symlink("real", t.root().join("inner")).unwrap();
    let refused = |result: Result<(), VaultError>| {
        let code = result.expect_err("refused").code();
        assert!(matches!(code, "symbolic_link" | "not_directory"), "{code}");
    };
    for path in ["out/secret.md", "link.md", "out/new/deep.md", "slash/tmp/x.md", "inner/n.md", "dangling.md"]
    {
        refused(t.vault.read(&note(path)).map(drop));
        refused(t.vault.write(&note(path), "x", WriteMode::Overwrite).map(drop));
        refused(t.vault.write(&note(path), "x", WriteMode::Append).map(drop));
        refused(t.vault.delete(&note(path)));
        refused(t.vault.change_frontmatter(&note(path), &[("k", Some(json!(1)))]).map(drop));
        refused(t.vault.rename(&note(path), &note("moved.md"), true));
    }
    refused(t.vault.rename(&note("real/n.md"), &note("out/stolen.md"), true));
    refused(t.vault.list(&folder("out"), true).map(drop));
    let listed: Vec<String> =
        t.vault.list(&folder(""), true).unwrap().entries.into_iter().map(|entry| entry.path).collect();
    assert_eq!(listed, ["real", "real/n.md"]);
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(std::fs::read_to_string(outside.join("secret.md")).unwrap(), "secret");
}

#[test]
fn folder_swapped_for_a_link_leads_nowhere() {
    let t = TestVault::new();
    let outside = t.outside();
    let (folder, aside) = (t.root().join("d"), t.root().join("aside"));
    std::thread::scope(|scope| {
        let swapper = scope.spawn(|| {
            for _ in 0..300 {
                let _ = std::fs::create_dir(&folder);
                let _ = std::fs::rename(&folder, &aside);
                let _ = symlink(&outside, &folder);
                let _ = std::fs::remove_file(&folder);
                let _ = std::fs::remove_dir_all(&aside);
            }
        });
        let mut number = 0;
        while !swapper.is_finished() {
            number += 1;
            let _ = t.vault.write(&note(&format!("d/e/{number}.md")), "x", WriteMode::Overwrite);
        }
    });
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "something was written outside");
}

#[test]
fn special_files_are_refused_without_waiting() {
    let t = TestVault::new();
    let pipe = t.root().join("pipe.md");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    std::fs::create_dir(t.root().join("dir.md")).unwrap();
    assert_eq!(t.vault.read(&note("pipe.md")).unwrap_err().code(), "not_regular");
    assert_eq!(t.vault.write(&note("pipe.md"), "x", WriteMode::Append).unwrap_err().code(), "not_regular");
    assert_eq!(t.vault.write(&note("pipe.md"), "x", WriteMode::Overwrite).unwrap_err().code(), "not_regular");
    for result in [
        t.vault.read(&note("dir.md")).map(drop),
        t.vault.write(&note("dir.md"), "x", WriteMode::Overwrite).map(drop),
        t.vault.delete(&note("dir.md")),
        t.vault.rename(&note("dir.md"), &note("x.md"), false),
    ] {
        assert_eq!(result.unwrap_err().code(), "is_directory");
    }
    assert_eq!(t.vault.read(&note("pipe.md/x")).unwrap_err().code(), "not_directory");
    assert_eq!(t.everything(), ["dir.md", "pipe.md"], "nothing was left behind");
}

#[test]
fn excluded_folders_are_never_written() {
    let t = TestVault::new();
    t.put(".git/config", "x");
    t.put("n.md", "x");
    for path in [".git/hooks/x.md", "a/.git/x.md", ".obsidian/n.md", ".git"] {
        let error = t.vault.write(&note(path), "x", WriteMode::Overwrite).unwrap_err();
        assert_eq!(error.code(), "excluded", "{path}");
        assert_eq!(t.vault.rename(&note("n.md"), &note(path), true).unwrap_err().code(), "excluded");
    }
    assert_eq!(t.vault.delete(&note(".git/config")).unwrap_err().code(), "excluded");
    assert_eq!(t.vault.read(&note(".git/config")).unwrap(), "x");
    assert_eq!(t.everything(), [".git", ".git/config", "n.md"]);
}

#[test]
fn non_utf8_files_are_not_damaged() {
    let t = TestVault::new();
    t.put("latin.md", b"caf\xe9\n");
    let path = note("latin.md");
    let tag = Tag::parse("t").unwrap();
    for result in [
        t.vault.read(&path).map(drop),
        t.vault.write(&path, "x", WriteMode::Append).map(drop),
        t.vault.change_frontmatter(&path, &[("k", Some(json!(1)))]).map(drop),
        t.vault.add_tag(&path, &tag).map(drop),
        t.vault.replace(&path, &Replacement::plain("c", "d")).map(drop),
    ] {
        assert_eq!(result.unwrap_err().code(), "binary_file");
    }
    assert_eq!(std::fs::read(t.root().join("latin.md")).unwrap(), b"caf\xe9\n");
}

#[test]
fn oversized_write_is_refused_without_leftovers() {
    let t = TestVault::new();
    let most = "x".repeat(MAX_NOTE as usize);
    let error = t.vault.write(&note("a/b/n.md"), &format!("{most}x"), WriteMode::Overwrite).unwrap_err();
    assert_eq!(error.code(), "too_large");
    assert_eq!(t.everything(), [""; 0]);
    t.write("n.md", &most, WriteMode::Overwrite);
    assert_eq!(t.vault.write(&note("n.md"), "x", WriteMode::Append).unwrap_err().code(), "too_large");
    t.put("large.md", "x".repeat(MAX_NOTE as usize + 1));
    assert_eq!(t.vault.read(&note("large.md")).unwrap_err().code(), "too_large");
}

#[test]
fn note_keeps_its_permissions() {
    let t = TestVault::new();
    t.put("n.md", "a");
    let mode = |name: &str| std::fs::metadata(t.root().join(name)).unwrap().permissions().mode() & 0o777;
    std::fs::set_permissions(t.root().join("n.md"), std::fs::Permissions::from_mode(0o640)).unwrap();
    t.write("n.md", "b", WriteMode::Append);
    t.write("n.md", "c", WriteMode::Overwrite);
    t.write("new.md", "c", WriteMode::Overwrite);
    assert_eq!((mode("n.md"), mode("new.md")), (0o640, 0o644));
}

#[test]
fn frontmatter_change_keeps_other_lines() {
    let t = TestVault::new();
    t.put("n.md", "---\r\n# mine\r\ntitle:  'x'\r\ntags: [a]\r\n---\r\nText #inline\r\n");
    let (path, tag) = (note("n.md"), Tag::parse("#b").unwrap());
    assert_eq!(t.vault.tags(&path).unwrap(), ["a", "inline"]);
    assert!(t.vault.add_tag(&path, &tag).unwrap());
    assert!(!t.vault.add_tag(&path, &tag).unwrap(), "adding is idempotent");
    assert_eq!(t.vault.tags(&path).unwrap(), ["a", "b", "inline"]);
    assert!(t.vault.change_frontmatter(&path, &[("n", Some(json!({"deep": [1, null]})))]).unwrap());
    assert_eq!(t.vault.frontmatter(&path).unwrap().unwrap()["n"], json!({"deep": [1, null]}));
    assert!(t.get("n.md").starts_with("---\r\n# mine\r\ntitle:  'x'\r\n"), "{}", t.get("n.md"));
    assert!(!t.vault.remove_tag(&path, &Tag::parse("inline").unwrap()).unwrap(), "the text is left alone");
    assert!(t.vault.remove_tag(&path, &tag).unwrap());
    assert!(t.vault.remove_tag(&path, &Tag::parse("a").unwrap()).unwrap());
    for key in ["title", "n"] {
        assert!(t.vault.change_frontmatter(&path, &[(key, None)]).unwrap());
    }
    assert_eq!(t.get("n.md"), "Text #inline\r\n", "the last key takes the block with it");
    t.put("bad.md", "---\na: [\n---\n");
    let error = t.vault.change_frontmatter(&note("bad.md"), &[("k", Some(json!(1)))]).unwrap_err();
    assert_eq!(error.code(), "bad_frontmatter");
}

#[test]
fn replace_without_matches_changes_nothing() {
    let t = TestVault::new();
    t.put("n.md", "abc");
    let before = std::fs::metadata(t.root().join("n.md")).unwrap().modified().unwrap();
    assert_eq!(t.vault.replace(&note("n.md"), &Replacement::plain("z", "y")).unwrap(), 0);
    assert_eq!(std::fs::metadata(t.root().join("n.md")).unwrap().modified().unwrap(), before);
    assert_eq!(t.vault.replace(&note("n.md"), &Replacement::plain("b", "")).unwrap(), 1);
    assert_eq!(t.get("n.md"), "ac");
    assert_eq!(
        t.vault.replace(&note("none.md"), &Replacement::plain("b", "")).unwrap_err().code(),
        "not_found"
    );
}

#[test]
fn rename_overwrites_only_on_request() {
    let t = TestVault::new();
    t.put("a.md", "a");
    t.put("b.md", "b");
    let rename = |from: &str, to: &str, over: bool| t.vault.rename(&note(from), &note(to), over);
    assert_eq!(rename("a.md", "b.md", false).unwrap_err().code(), "file_exists");
    assert_eq!(rename("none.md", "deep/er/x.md", false).unwrap_err().code(), "not_found");
    assert_eq!(t.everything(), ["a.md", "b.md"]);
    rename("a.md", "deep/er/a.md", false).unwrap();
    rename("deep/er/a.md", "b.md", true).unwrap();
    assert_eq!(t.get("b.md"), "a");
    assert_eq!(t.everything(), ["b.md", "deep", "deep/er"]);
}

#[test]
fn missing_vault_is_reported_and_recovers() {
    let t = TestVault::new();
    let aside = t.root().with_file_name("aside");
    std::fs::rename(t.root(), &aside).unwrap();
    assert_eq!(t.vault.stats(1).unwrap_err().code(), "vault_unavailable");
    assert_eq!(
        t.vault.write(&note("n.md"), "x", WriteMode::Overwrite).unwrap_err().code(),
        "vault_unavailable"
    );
    std::fs::rename(&aside, t.root()).unwrap();
    t.write("n.md", "x", WriteMode::Overwrite);
}
