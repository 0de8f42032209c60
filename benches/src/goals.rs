//! Goals: the promises compared with the figures of one run.

use serde::Serialize;

use crate::figures::{Figures, Key, Measured};
use crate::promises::{PROMISES, Promise};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Met,
    Missed,
    NotMeasured,
}

impl Verdict {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "MISSED",
            Self::NotMeasured => "not measured",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Goal {
    pub(crate) title: &'static str,
    pub(crate) measured: Option<f64>,
    pub(crate) limit: f64,
    pub(crate) unit: Unit,
    pub(crate) verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    Ratio,
    Seconds,
    Bytes,
}

/// The goals with the figures of one run.
pub(crate) fn judge(figures: &Figures) -> Vec<Goal> {
    PROMISES.iter().map(|promise| promise.judge(figures)).collect()
}

impl Promise {
    fn judge(&self, figures: &Figures) -> Goal {
        let Self { title, of, value, limit, unit } = *self;
        let measured = value(figures);
        let verdict = match (measured, figures.get(of)) {
            (Some(value), _) if value <= limit => Verdict::Met,
            (Some(_), _) | (None, Some(Measured::Failed(_))) => Verdict::Missed,
            (None, _) => Verdict::NotMeasured,
        };
        Goal { title, measured, limit, unit, verdict }
    }
}

/// Comparisons besides the goals: a name, and the ratio of two figures.
pub(crate) fn ratios(figures: &Figures) -> Vec<(&'static str, Option<f64>)> {
    let over = |a, b| figures.ratio(a, b);
    vec![
        ("cold boot to first exec / plain QEMU boot", over(Key::ColdCreate, Key::PlainBoot)),
        ("create from a template / plain QEMU boot", over(Key::TemplateCreate, Key::PlainBoot)),
        ("create from a template / crun run", over(Key::TemplateCreate, Key::CrunRun)),
        ("create from a template / bwrap", over(Key::TemplateCreate, Key::BwrapRun)),
        ("start after stop / cold boot to first exec", over(Key::StartAfterStop, Key::ColdCreate)),
        ("fork with memory / create from a template", over(Key::MemoryFork, Key::TemplateCreate)),
        ("reading through all snapshots / before any", over(Key::ReadThrough, Key::ReadBefore)),
        ("exec over MCP / crun exec", over(Key::Exec, Key::CrunExec)),
        ("exec over MCP / exec at the agent", over(Key::Exec, Key::AgentExec)),
        ("the agent's ping / raw echo", over(Key::AgentPing, Key::RawEcho)),
        ("1 GiB of output, exec / a pipe inside the guest", over(Key::Output, Key::GuestOutput)),
        ("1 GiB of output, exec / crun exec", over(Key::Output, Key::CrunOutput)),
        ("64 bytes over the network and back / by QEMU's user network", over(Key::NetEcho, Key::SlirpEcho)),
        ("receiving over the network / by passt", over(Key::NetDown, Key::PasstDown)),
        ("sending over the network / by passt", over(Key::NetUp, Key::PasstUp)),
        ("64 bytes over the network and back / by passt", over(Key::NetEcho, Key::PasstEcho)),
        ("connecting / by passt", over(Key::NetConnect, Key::PasstConnect)),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn millis(ms: u64) -> Measured {
        Measured::times([Duration::from_millis(ms)])
    }

    fn verdict(figures: &Figures, of: Key) -> Verdict {
        PROMISES.iter().find(|promise| promise.of == of).unwrap().judge(figures).verdict
    }

    #[test]
    fn goal_is_met_up_to_its_limit() {
        let mut figures = Figures::default();
        figures.set(Key::ColdCreate, millis(6000));
        figures.set(Key::TemplateCreate, millis(1000));
        figures.set(Key::RawEcho, millis(1));
        figures.set(Key::GuestSpawn, millis(4));
        figures.set(Key::Exec, millis(11));
        figures.set(Key::IdleMemory, Measured::Bytes(2_500_000_001));
        let verdicts = [Key::TemplateCreate, Key::Exec, Key::IdleMemory, Key::IdleDaemon]
            .map(|key| verdict(&figures, key));
        assert_eq!(verdicts, [Verdict::Met, Verdict::Missed, Verdict::Missed, Verdict::NotMeasured]);
    }

    #[test]
    fn failed_measurement_misses_its_goal() {
        let mut figures = Figures::default();
        figures.set(Key::ColdCreateCall, millis(6000));
        assert_eq!(verdict(&figures, Key::PooledCreate), Verdict::NotMeasured);
        figures.set(Key::PooledCreate, Measured::Failed("not from the pool".to_owned()));
        assert_eq!(verdict(&figures, Key::PooledCreate), Verdict::Missed);
    }

    #[test]
    fn pauses_are_judged_by_both_their_percentiles() {
        let mut figures = Figures::default();
        let pauses = (1..=20).map(|turn| Duration::from_millis(if turn > 18 { 100 } else { 10 }));
        figures.set(Key::PauseByQemu, Measured::times(pauses));
        let verdicts: Vec<_> = PROMISES
            .iter()
            .filter(|promise| promise.of == Key::PauseByQemu)
            .map(|promise| promise.judge(&figures).verdict)
            .collect();
        assert_eq!(verdicts, [Verdict::Met, Verdict::Missed]);
    }

    #[test]
    fn ratio_needs_both_of_its_figures() {
        let mut figures = Figures::default();
        figures.set(Key::Exec, millis(10));
        figures.set(Key::CrunExec, Measured::Absent("not installed".to_owned()));
        assert!(ratios(&figures).iter().all(|(_, value)| value.is_none()));
        figures.set(Key::CrunExec, millis(5));
        let exec = ratios(&figures).into_iter().find(|(title, _)| title.contains("crun exec")).unwrap();
        assert_eq!(exec.1, Some(2.0));
    }
}
