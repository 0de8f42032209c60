//! `file_read`: reads a file's text, whole or in part.

use agentiso_core::paths::GuestPath;
use agentiso_daemon::FileContent;
use serde_json::{Value, json};

use super::shared::{MAX_FILE, PATH, WORKSPACE, file_failure};
use super::view::schema;
use crate::answer::{Answer, Failure};
use crate::args::{Integer, Invalid, Reader, Slot};
use crate::hint::Hint;
use crate::registry::{Call, Hints, Running, Tool};
use crate::truncate::unfinished;

/// No file system of a guest has larger files.
const MAX_OFFSET: u64 = 16 << 40;

const OFFSET: Integer = Integer::new("offset", "Byte to start at.", 0..=MAX_OFFSET).default(0);
const LIMIT: Integer = Integer::new("limit", "Bytes to read. Default: to the end.", 1..=MAX_FILE);

pub(crate) const TOOL: Tool = Tool {
    name: "file_read",
    title: "Read a file",
    description: "Read a text file of up to 32 MiB, or part of a larger one with offset and limit. For binary \
                  files use exec with base64.",
    slots: &[
        Slot::Target(&WORKSPACE),
        Slot::Required(&PATH),
        Slot::Optional(&OFFSET),
        Slot::Optional(&LIMIT),
    ],
    output,
    hints: Hints::READS,
    prepare,
};

fn output() -> Value {
    json!({
        "path": schema::text(), "content": schema::text(), "offset": schema::integer(), "bytes": schema::integer(),
        "size": schema::integer(),
    })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let path = args.required(&PATH);
    let offset = args.optional(&OFFSET);
    let limit = args.optional(&LIMIT);
    let (workspace, path, offset, limit) =
        args.finish((|| Some((workspace?, path?, offset?.unwrap_or(0), limit?)))())?;
    let most = call.max_read;
    Ok(Box::pin(async move {
        let guest = call.session.guest(&workspace).await?;
        let content = guest
            .read_file(&path, offset, limit.unwrap_or(most).min(most))
            .await
            .map_err(|error| file_failure(error, &path))?;
        let rest = content.size.saturating_sub(offset);
        if limit.is_none_or(|limit| limit > most) && rest > most {
            let message =
                format!("{path} has {} bytes; at most {most} can be read in one call", content.size);
            return Err(
                Failure::new("too_large", message).with_hint("read it in parts with offset and limit")
            );
        }
        answer(&path, offset, content)
    }))
}

fn answer(path: &GuestPath, offset: u64, content: FileContent) -> Result<Answer, Failure> {
    let (skipped, bytes) = whole_characters(&content, offset);
    let Ok(text) = std::str::from_utf8(bytes) else {
        let message = format!("{path} is a binary file ({} bytes), not text in UTF-8", content.size);
        let hint = Hint::new("copy it to the host with `file_transfer`, or run `base64` on it with `exec`")
            .or("run `base64` on it with `exec`");
        return Err(Failure::new("binary_file", message).with_hint(hint));
    };
    let structured = json!({
        "path": path.as_str(),
        "content": text,
        "offset": offset + skipped,
        "bytes": text.len(),
        "size": content.size,
    });
    Ok(Answer::text(text.to_owned(), structured))
}

/// The data without characters that the slice cut in two, and how many bytes were dropped at the beginning.
fn whole_characters(content: &FileContent, offset: u64) -> (u64, &[u8]) {
    let data = &content.data[..];
    let begin = match offset {
        0 => 0,
        _ => data.iter().take(3).take_while(|byte| (**byte & 0b1100_0000) == 0b1000_0000).count(),
    };
    let ends_inside = offset + (data.len() as u64) < content.size;
    let end = if ends_inside { data.len() - unfinished(data) } else { data.len() };
    (begin as u64, &data[begin..end.max(begin)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(file: &[u8], offset: usize, limit: usize) -> Result<Answer, Failure> {
        let begin = offset.min(file.len());
        let data = file[begin..(begin + limit).min(file.len())].to_vec();
        let content = FileContent { data: data.into(), size: file.len() as u64, mode: 0o644 };
        answer(&GuestPath::parse("/f").unwrap(), offset as u64, content)
    }

    fn text(file: &[u8], offset: usize, limit: usize) -> String {
        let result = read(file, offset, limit).unwrap().into_result();
        result.content[0].as_text().unwrap().text.clone()
    }

    #[test]
    fn slice_drops_only_characters_it_cuts() {
        let file = "aä€😀z".as_bytes();
        assert_eq!(text(file, 0, 100), "aä€😀z");
        assert_eq!(text(file, 0, 2), "a");
        assert_eq!(text(file, 2, 4), "€");
        assert_eq!(text(file, 100, 5), "");
    }

    #[test]
    fn binary_file_is_refused() {
        for file in [b"\xff\xfe".as_slice(), b"abc\xc3", b"\x80abc"] {
            assert_eq!(read(file, 0, 100).unwrap_err().code, "binary_file");
        }
    }

    proptest! {
        #[test]
        fn any_slice_of_any_text_is_text(file in "(a|ä|€|😀){0,40}", offset in 0usize..130, limit in 1usize..130) {
            let read = text(file.as_bytes(), offset, limit);
            prop_assert!(file.contains(&read));
        }
    }
}
