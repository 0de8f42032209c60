//! The closing table, ready for docs/reliability.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::journal::{Counts, Kind};
use crate::site::Settings;

#[derive(Debug)]
pub(crate) struct Report<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) jail: &'a str,
    pub(crate) counts: &'a Counts,
    pub(crate) took: Duration,
    pub(crate) highest_daemon_kb: u64,
}

impl Report<'_> {
    pub(crate) fn found(&self, kind: Kind) -> usize {
        self.counts.findings.iter().filter(|finding| finding.kind == kind).count()
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.counts.findings.is_empty()
    }

    pub(crate) fn text(&self) -> String {
        let Settings { seed, minutes, clients, backend, .. } = self.settings;
        let (jail, workspaces) = (self.jail, self.counts.most_workspaces);
        let mut text = format!(
            "| seed | minutes | backend | jail | clients | workspaces at most | operations | comparisons | faults | lost | leaked | unexpected errors |\n\
             |---|---|---|---|---|---|---|---|---|---|---|---|\n\
             | {seed} | {minutes} | {backend} | {jail} | {clients} | {workspaces} | {} | {} | {} | {} | {} | {} |\n",
            self.counts.deeds.values().sum::<u64>(),
            self.counts.checks,
            self.counts.faults.values().sum::<u64>(),
            self.found(Kind::Lost),
            self.found(Kind::Leaked),
            self.found(Kind::Unexpected),
        );
        text.push_str(&table("fault", &self.counts.faults));
        text.push_str(&table("operation", &self.counts.deeds));
        let _ = writeln!(
            text,
            "\nThe whole run took {} s with verification and clean-up; the daemon took {} MiB at most.",
            self.took.as_secs(),
            self.highest_daemon_kb >> 10,
        );
        for finding in &self.counts.findings {
            let _ = writeln!(text, "{:?}: {}", finding.kind, finding.text);
        }
        text
    }
}

fn table(heading: &str, counts: &BTreeMap<String, u64>) -> String {
    let mut text = format!("\n| {heading} | times |\n|---|---|\n");
    for (name, count) in counts {
        let _ = writeln!(text, "| {name} | {count} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Finding;

    #[test]
    fn report_counts_findings_by_kind() {
        let settings = Settings {
            seed: 7,
            minutes: 2.0,
            clients: 3,
            workspaces: 12,
            memory_mb: 256,
            operations_between_faults: 4,
            damages_ledger: false,
            backend: "gateway".to_owned(),
            evidence: "x".into(),
        };
        let lost = Finding { kind: Kind::Lost, text: "c0: file f1".to_owned() };
        let mut counts = Counts { checks: 5, most_workspaces: 9, findings: vec![lost], ..Counts::default() };
        counts.deeds.insert("Create".to_owned(), 4);
        counts.faults.insert("daemon killed".to_owned(), 3);
        let report = Report {
            settings: &settings,
            jail: "landlock",
            counts: &counts,
            took: Duration::from_secs(130),
            highest_daemon_kb: 2048,
        };
        let row = "| 7 | 2 | gateway | landlock | 3 | 9 | 4 | 5 | 3 | 1 | 0 | 0 |";
        assert!(report.text().contains(row), "{}", report.text());
        assert!(!report.is_clean());
        assert!(Report { counts: &Counts::default(), ..report }.is_clean());
    }
}
