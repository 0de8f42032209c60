//! The report as files: JSON for programs, Markdown for people.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{Report, markdown};
use crate::figures::{Key, Measured};
use crate::goals;

/// The version of the JSON format. It is increased if readers would have to change.
const SCHEMA: u32 = 1;

/// Writes both files and returns the path of the document.
pub(crate) fn write(report: &Report, dir: &Path) -> Result<PathBuf> {
    fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    let name = format!("{}-{}", report.facts.date, report.facts.kind());
    let json = dir.join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(&value(report)).context("a report is JSON")? + "\n";
    fs::write(&json, text).with_context(|| format!("writing {}", json.display()))?;
    let document = dir.join(format!("{name}.md"));
    fs::write(&document, markdown::render(report))
        .with_context(|| format!("writing {}", document.display()))?;
    Ok(document)
}

fn value(report: &Report) -> Value {
    let figures: serde_json::Map<String, Value> =
        Key::ALL.iter().filter_map(|key| Some((name(*key), figure(report.figures.get(*key)?)))).collect();
    let ratios: serde_json::Map<String, Value> = goals::ratios(&report.figures)
        .into_iter()
        .map(|(title, ratio)| (title.to_owned(), json!(ratio)))
        .collect();
    json!({
        "schema": SCHEMA,
        "host": report.facts,
        "figures": figures,
        "ratios": ratios,
        "goals": report.goals(),
    })
}

fn name(key: Key) -> String {
    serde_json::to_value(key).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn figure(measured: &Measured) -> Value {
    match measured {
        Measured::Times(samples) => json!({
            "p50_us": samples.p50().as_micros() as u64,
            "p95_us": samples.p95().as_micros() as u64,
            "p99_us": samples.p99().as_micros() as u64,
            "min_us": samples.min().as_micros() as u64,
            "max_us": samples.max().as_micros() as u64,
            "runs": samples.count(),
        }),
        Measured::Transfer { bytes, micros } => json!({"bytes": bytes, "us": micros}),
        Measured::Bytes(bytes) => json!({ "bytes": bytes }),
        Measured::Absent(reason) => json!({ "absent": reason }),
        Measured::Failed(reason) => json!({ "failed": reason }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::figures::Figures;
    use crate::report::Facts;

    #[test]
    fn report_file_names_contain_the_host_kind() {
        let facts = Facts {
            date: "2026-01-02".to_owned(),
            cpu: "a processor".to_owned(),
            cores: 2,
            memory_bytes: 1,
            kernel: "6".to_owned(),
            qemu: "10".to_owned(),
            accelerator: "tcg".to_owned(),
            image: "debian-minimal".to_owned(),
            load_before: 0.0,
        };
        let mut figures = Figures::default();
        figures.set(Key::Exec, Measured::times([Duration::from_millis(5)]));
        let dir = tempfile::tempdir().unwrap();
        let document = write(&Report { facts, figures }, dir.path()).unwrap();
        assert_eq!(document.file_name().unwrap(), "2026-01-02-tcg-2core.md");
        let json: Value =
            serde_json::from_slice(&fs::read(document.with_extension("json")).unwrap()).unwrap();
        assert_eq!(json["figures"]["exec"]["p50_us"], 5000);
        assert_eq!(json["goals"][0]["verdict"], "not_measured");
    }
}
