//! Reading, writing, editing and listing files in a guest.

use agentiso_testkit::host_or_skip;
use serde_json::json;

#[test]
fn written_file_reads_back_unchanged() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let text = "zwölf\nBoxkämpfer\r\n\ttab \"quotes\" \\ $HOME `x`\n";
    ws.tool("file_write", json!({"path": "/workspace/a/b/c.txt", "content": text}))
        .mentions(&["/workspace/a/b/c.txt"]);
    assert_eq!(ws.read("/workspace/a/b/c.txt"), text);
    assert_eq!(ws.sh("stat -c %a /workspace/a/b/c.txt"), "644");
    for (mode, expected) in [("755", "755"), ("0600", "600"), ("0o640", "640")] {
        ws.tool("file_write", json!({"path": "/workspace/m", "content": "", "mode": mode}));
        assert_eq!(ws.sh("stat -c %a /workspace/m"), expected);
    }
    ws.write("/workspace/m", "");
    assert_eq!(ws.sh("stat -c %a /workspace/m"), "644", "also of a file that had another mode");
    ws.write("/workspace/a/b/c.txt", "new");
    assert_eq!(ws.read("/workspace/a/b/c.txt"), "new");
    assert_eq!(ws.sh("ls -A /workspace/a/b"), "c.txt", "no temporary file is left");
    ws.write("/workspace/with space/ä'\"\n;$(x)", "odd");
    assert_eq!(ws.read("/workspace/with space/ä'\"\n;$(x)"), "odd");
}

#[test]
fn read_slices_count_bytes_and_keep_characters_whole() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    ws.write("/f", "0123456789");
    let slice =
        |offset, limit| ws.tool("file_read", json!({"path": "/f", "offset": offset, "limit": limit})).text;
    assert_eq!(slice(2, 3), "234");
    assert_eq!(slice(8, 100), "89");
    assert_eq!(slice(50, 5), "");
    ws.write("/f", "aäöü");
    assert_eq!(slice(1, 3), "ä");
    assert_eq!(slice(2, 3), "ö");
}

#[test]
fn file_of_32_mib_round_trips() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let line = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde\n";
    let text = line.repeat((32 << 20) / line.len());
    ws.write("/workspace/big", &text);
    assert_eq!(ws.sh("stat -c %s /workspace/big"), (32 << 20).to_string());
    assert!(ws.read("/workspace/big") == text, "the file came back different");
    ws.sh("echo more >> /workspace/big");
    ws.tool_error("file_read", json!({"path": "/workspace/big"})).mentions(&["limit"]);
    let tail = ws.tool("file_read", json!({"path": "/workspace/big", "offset": 32 << 20}));
    assert_eq!(tail.text, "more\n");
}

#[test]
fn unreadable_path_error_names_the_reason() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    ws.sh("printf '\\377\\376\\000' > /binary; mkfifo /fifo; ln -s /loop /loop");
    let read = |path: &str| ws.tool_error("file_read", json!({ "path": path }));
    read("/binary").mentions(&["binary", "file_transfer"]);
    read("/missing").mentions(&["/missing"]);
    read("/etc").mentions(&["directory", "file_list"]);
    read("/fifo").mentions(&["/fifo"]);
    read("/dev/zero").mentions(&["/dev/zero"]);
    read("/loop").mentions(&["/loop"]);
    read("relative").mentions(&["absolute"]);
    read("/a\u{0}b").mentions(&["NUL"]);
    read(&format!("/{}", "x".repeat(5000))).mentions(&["4095"]);
    assert_eq!(ws.read("/workspace/../etc/hostname").trim(), ws.name, "dots are resolved inside the guest");
}

#[test]
fn failed_write_names_reason_and_changes_nothing() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    ws.write("/workspace/keep", "kept");
    let write = |path: &str, mode: &str| {
        ws.tool_error("file_write", json!({"path": path, "content": "x", "mode": mode}))
    };
    write("relative", "0644").mentions(&["absolute"]);
    write("/workspace/keep", "999").mentions(&["mode"]);
    write("/workspace/keep", "77777777").mentions(&["mode"]);
    write("/workspace/keep/below", "0644").mentions(&["/workspace/keep"]);
    write("/workspace", "0644").mentions(&["directory"]);
    write("/proc/none", "0644").mentions(&["/proc/none"]);
    ws.tool_error("file_write", json!({"path": "/workspace/keep"})).mentions(&["content"]);
    assert_eq!(ws.read("/workspace/keep"), "kept");
    ws.sh("fallocate -l $(($(df -k --output=avail / | tail -1) - 2048))K /fill; dd if=/dev/zero of=/rest bs=64k 2>/dev/null; sync; true");
    let big = "y".repeat(4 << 20);
    ws.tool_error("file_write", json!({"path": "/workspace/keep", "content": big})).mentions(&["space"]);
    assert_eq!(ws.read("/workspace/keep"), "kept");
    assert_eq!(ws.sh("rm /fill /rest; ls -A /workspace"), "keep");
}

#[test]
fn edit_replaces_only_the_first_occurrence() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    ws.tool("file_write", json!({"path": "/e.sh", "content": "one two one\n", "mode": "0750"}));
    let edit = |old: &str, new: &str| json!({"path": "/e.sh", "old_string": old, "new_string": new});
    assert!(!ws.tool("file_edit", edit("one", "1$&")).text.is_empty());
    assert_eq!(ws.read("/e.sh"), "1$& two one\n");
    assert_eq!(ws.sh("stat -c %a /e.sh"), "750", "the mode stays");
    ws.tool("file_edit", edit(" two", ""));
    assert_eq!(ws.read("/e.sh"), "1$& one\n");
    ws.tool_error("file_edit", edit("absent", "x")).mentions(&["/e.sh"]);
    ws.tool_error("file_edit", edit("", "x")).mentions(&["old_string"]);
    ws.tool_error("file_edit", json!({"path": "/none", "old_string": "a", "new_string": "b"}))
        .mentions(&["/none"]);
    assert_eq!(ws.read("/e.sh"), "1$& one\n");
}

#[test]
fn listing_is_sorted_complete_and_typed() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    ws.sh("mkdir -p /l/dir; touch /l/dir/below; printf 12345 > /l/file; chmod 640 /l/file; ln -s file /l/link; touch /l/.hidden");
    let list = ws.tool("file_list", json!({"path": "/l"})).json();
    let names: Vec<_> = list.as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
    assert_eq!(names, [".hidden", "dir", "file", "link"]);
    let kinds: Vec<_> = list.as_array().unwrap().iter().map(|e| e["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["file", "dir", "file", "symlink"]);
    assert_eq!(list[2]["size"], 5);
    assert_eq!(list[2]["permissions"], "rw-r-----");
    assert!(list[2]["modified"].as_u64().unwrap() > 1_700_000_000);
    assert_eq!(ws.sh("mkdir /empty"), "");
    assert_eq!(ws.tool("file_list", json!({"path": "/empty"})).text, "[]");
    ws.tool_error("file_list", json!({"path": "/l/file"})).mentions(&["/l/file", "directory"]);
    ws.tool_error("file_list", json!({"path": "/none"})).mentions(&["/none"]);
}

#[test]
fn edit_replaces_all_or_shows_nearest_text() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    ws.write("/e.rs", "fn main() {\n    let name = \"a\";\n    print(name);\n}\n");
    let edit = |old: &str, new: &str, all: bool| json!({"path": "/e.rs", "old_string": old, "new_string": new, "replace_all": all});
    let done = ws.tool("file_edit", edit("name", "word", true));
    assert_eq!(done.structured["replacements"], 2);
    assert_eq!(ws.read("/e.rs"), "fn main() {\n    let word = \"a\";\n    print(word);\n}\n");
    let miss = ws.tool_error("file_edit", edit("let word = \"a\";\n\tprint(word);", "", false));
    miss.mentions(&["line 2", "white space", "    print(word);"]);
    assert_eq!((miss.code(), &miss.structured["nearest"]["line"]), ("no_match", &json!(2)));
    let far = ws.tool_error("file_edit", edit("SELECT * FROM t", "", true));
    assert!(far.structured.get("nearest").is_none(), "{}", far.text);
}

#[test]
fn listing_supports_depth_and_glob() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    ws.sh("mkdir -p /t/src/deep; touch /t/a.rs /t/.h /t/src/b.rs /t/src/deep/c.rs /t/src/deep/d.txt; ln -s / /t/root");
    let names = |more: serde_json::Value| {
        let mut arguments = more;
        arguments["path"] = json!("/t");
        let list = ws.tool("file_list", arguments).json();
        list.as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(json!({"depth": 2})), [".h", "a.rs", "root", "src", "src/b.rs", "src/deep"]);
    assert_eq!(names(json!({"depth": 9, "glob": "*.rs"})), ["a.rs", "src/b.rs", "src/deep/c.rs"]);
    assert_eq!(names(json!({"depth": 9, "glob": "src/**/*.txt"})), ["src/deep/d.txt"]);
    ws.tool_error("file_list", json!({"path": "/t", "depth": 0})).mentions(&["between 1 and 64"]);
    let whole = ws.tool("file_list", json!({"path": "/", "depth": 64, "glob": "proc/*"})).json();
    assert_eq!(whole, json!([]), "other file systems are not entered");
}
