//! A checksum in a JSON document, which detects bytes that changed on disk even if the document is still valid.
//!
//! The last field of a sealed document is the SHA-256 of the text before it. Programs that do not know the field
//! ignore it, and a document without it is accepted unchecked.

use sha2::{Digest, Sha256};

use crate::hex;

/// The beginning of the last field. A string in the document cannot contain it, because its line breaks are escaped.
const FIELD: &str = ",\n  \"checksum\": \"";

/// The text after the digits.
const END: &str = "\"\n}";

/// The field in any layout.
const ANY_FIELD: [&str; 2] = ["\"checksum\": \"", "\"checksum\":\""];

/// The result of checking a document's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// The document has no checksum.
    Absent,
    Intact,
    /// The content differs from what was written.
    Broken,
}

/// Adds the checksum to an object in the pretty layout of `serde_json`.
pub fn seal(text: &str) -> String {
    match text.strip_suffix("\n}") {
        Some(body) => format!("{body}{FIELD}{}{END}", digest(body)),
        None => text.to_owned(),
    }
}

pub fn check(text: &str) -> Seal {
    match text.rsplit_once(FIELD) {
        Some((body, rest)) if rest.strip_suffix(END) == Some(digest(body).as_str()) => Seal::Intact,
        Some(_) => Seal::Broken,
        None if ANY_FIELD.iter().any(|field| text.contains(field)) => Seal::Broken,
        None => Seal::Absent,
    }
}

fn digest(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pretty(value: &Value) -> String {
        serde_json::to_string_pretty(value).unwrap()
    }

    #[test]
    fn sealing_keeps_the_document_content() {
        let value = json!({"name": "checksum", "text": ",\n  \"checksum\": \"0\"\n}", "list": [{}, 1]});
        let sealed = seal(&pretty(&value));
        assert_eq!(check(&sealed), Seal::Intact);
        let mut read: Value = serde_json::from_str(&sealed).unwrap();
        assert!(read.as_object_mut().unwrap().remove("checksum").is_some());
        assert_eq!(read, value);
        assert_eq!(check(&pretty(&value)), Seal::Absent);
    }

    #[test]
    fn changed_document_never_passes_as_intact() {
        let sealed = seal(&pretty(&json!({"id": "0f8fad5b", "count": 17})));
        let said = sealed.rfind(FIELD).unwrap();
        for at in 0..sealed.len() {
            for byte in (b' '..=b'~').filter(|byte| *byte != sealed.as_bytes()[at]) {
                let mut changed = sealed.clone().into_bytes();
                changed[at] = byte;
                let seal = check(std::str::from_utf8(&changed).unwrap());
                // A change of the checksum field's own name makes it absent, but leaves the content as it was.
                assert!(seal == Seal::Broken || (seal == Seal::Absent && at >= said), "{at} {byte}");
            }
        }
        assert_eq!(check(&sealed[..sealed.len() - 1]), Seal::Broken, "cut off");
        assert_eq!(check(&format!("{sealed} ")), Seal::Broken, "more than there was");
        let laid_out_anew: Value = serde_json::from_str(&sealed).unwrap();
        assert_eq!(check(&laid_out_anew.to_string()), Seal::Broken);
    }

    #[test]
    fn text_without_an_object_is_left_alone() {
        for text in ["", "[]", "{}", "7"] {
            assert_eq!((seal(text).as_str(), check(text)), (text, Seal::Absent));
        }
    }
}
