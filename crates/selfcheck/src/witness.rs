//! Starts processes in a VM before its snapshot, and checks afterwards that they continued.
//!
//! ```text
//! ticker   counts, ten times a second:           "<count> <uptime>"
//! alarm    sleeps, for a second at a time:       "<uptime before> <uptime after>"
//! holder   keeps a deleted file open, half read, and reads the rest on request
//! ```
//!
//! Their notes are in memory, so that each VM has its own. Uptimes are the guest's and do not include the time between
//! a snapshot and a restore.

use super::guest::Guest;
use super::verdict::Finding;

/// The sleeps of the ticker and the alarm, in seconds.
const TICK: f64 = 0.1;
const ALARM: f64 = 1.0;

/// Uptimes are truncated to hundredths.
const GRAIN: f64 = 0.02;

/// The tolerated delay of a timer. It is longer than any pause of a VM, and longer than a busy host withholds its
/// processor, which was 13 seconds for a healthy guest on a starved host. A lost timer never fires, and one that
/// sleeps through the time between a snapshot and its restore can be hours late; both are still found.
const LATE: f64 = 60.0;

/// The lines of the held file; the first is read before the snapshot, the others afterwards.
const LINES: usize = 400;

/// The processes in one VM, and their notes.
#[derive(Clone, Debug)]
pub(super) struct Witness {
    dir: String,
    nonce: String,
    /// The ticker's count before the snapshot.
    ticks: usize,
}

impl Witness {
    pub(super) async fn start(guest: Guest<'_>, nonce: &str) -> Result<Self, Finding> {
        let dir = format!("/run/proof-{nonce}");
        let last = LINES - 1;
        let script = format!(
            "set -e; mkdir {dir}; cd {dir}; mkfifo ask; : > ticks; : > alarms
cat > ticker <<'END'
count=0
while :; do count=$((count+1)); read up idle < /proc/uptime; echo $count $up; sleep {TICK}; done
END
cat > alarm <<'END'
while :; do read from idle < /proc/uptime; sleep {ALARM}; read to idle < /proc/uptime; echo $from $to; done
END
cat > holder <<'END'
exec 3< {FILE}-{nonce}; rm {FILE}-{nonce}
read first <&3; echo \"$first\" > first
read go < ask
cat <&3 > rest.part; mv rest.part rest
END
for i in $(seq 0 {last}); do echo {nonce} $i; done > {FILE}-{nonce}; sync
sh ticker > ticks 2>&1 < /dev/null & echo $! > pids
sh alarm > alarms 2>&1 < /dev/null & echo $! >> pids
sh holder > holder.log 2>&1 < /dev/null & echo $! > pid-of-holder
i=0; while [ $i -lt 100 ] && ! {{ [ -s first ] && [ -s ticks ]; }}; do i=$((i+1)); sleep 0.1; done
wc -l < ticks; cat first"
        );
        let said = guest.sh(&script).await?;
        let ticks = said.split_once('\n').filter(|(_, first)| *first == line(nonce, 0));
        match ticks.and_then(|(ticks, _)| ticks.trim().parse().ok()) {
            Some(ticks) => Ok(Self { dir, nonce: nonce.to_owned(), ticks }),
            None => Err(Finding::wrong(format!("unexpected output of the test processes: {said:?}"))),
        }
    }

    /// Ends the processes, if they exist, to make room for others.
    pub(super) async fn stop(&self, guest: Guest<'_>) -> Result<(), Finding> {
        let dir = &self.dir;
        guest
            .sh(&format!(
                "for p in $(cat {dir}/pid* 2>/dev/null); do kill $p 2>/dev/null || :; done; rm -rf {dir}"
            ))
            .await?;
        Ok(())
    }

    /// Reads the notes, after each process wrote a new one or ten seconds have passed.
    async fn notes(&self, guest: Guest<'_>) -> Result<Notes, Finding> {
        let dir = &self.dir;
        let wait = format!(
            "cd {dir}; t=$(wc -l < ticks); a=$(wc -l < alarms); i=0
while [ $i -lt 50 ] && {{ [ $(wc -l < ticks) -lt $((t+3)) ] || [ $(wc -l < alarms) -le $a ]; }}; do
i=$((i+1)); sleep 0.2; done"
        );
        let alive = format!("for p in $(cat {dir}/pids); do kill -0 $p 2>/dev/null && echo alive; done; :");
        let [_, began, ticks, alarms, alive] = guest
            .ask([&wait, "echo $t $a", &format!("cat {dir}/ticks"), &format!("cat {dir}/alarms"), &alive])
            .await?;
        Notes::parse(&began, &ticks, &alarms, &alive).ok_or_else(|| {
            Finding::wrong(format!("unexpected output of the test processes: {ticks:?} and {alarms:?}"))
        })
    }

    /// Runs both of the following checks on the same notes.
    pub(super) async fn undisturbed(&self, guest: Guest<'_>) -> Result<(), Finding> {
        let notes = self.notes(guest).await?;
        notes.continue_after(self.ticks)?;
        notes.are_in_time()
    }

    pub(super) async fn processes(&self, guest: Guest<'_>) -> Result<(), Finding> {
        self.notes(guest).await?.continue_after(self.ticks)
    }

    pub(super) async fn timers(&self, guest: Guest<'_>) -> Result<(), Finding> {
        self.notes(guest).await?.are_in_time()
    }

    /// Checks that the holder reads the rest of the deleted file. It can be asked only once.
    pub(super) async fn open_file(&self, guest: Guest<'_>) -> Result<(), Finding> {
        let dir = &self.dir;
        let rest = guest
            .sh(&format!(
                "cd {dir}; sync; echo 1 > /proc/sys/vm/drop_caches
timeout 10 sh -c 'echo go > ask' || {{ echo 'no process reads the request' >&2; exit 1; }}
i=0; while [ $i -lt 100 ] && ! [ -e rest ]; do i=$((i+1)); sleep 0.1; done; cat rest holder.log"
            ))
            .await?;
        judge_rest(&self.nonce, &rest)
    }
}

/// The path of the held file before it is deleted, on the root disk.
const FILE: &str = "/var/tmp/held";

fn line(nonce: &str, number: usize) -> String {
    format!("{nonce} {number}")
}

fn judge_rest(nonce: &str, rest: &str) -> Result<(), Finding> {
    let expected: Vec<_> = (1..LINES).map(|number| line(nonce, number)).collect();
    if rest.lines().eq(expected.iter().map(String::as_str)) {
        return Ok(());
    }
    let lines = rest.lines().count();
    Err(Finding::wrong(format!(
        "a deleted file that was open has the wrong content: {lines} lines, expected {}",
        expected.len()
    )))
}

#[derive(Debug)]
struct Notes {
    /// Count and uptime.
    ticks: Vec<(u64, f64)>,
    /// Uptime before and after a sleep.
    alarms: Vec<(f64, f64)>,
    /// Whether each of the two wrote a new note while it was watched.
    ticking: bool,
    sleeping: bool,
    alive: usize,
}

impl Notes {
    fn parse(began: &str, ticks: &str, alarms: &str, alive: &str) -> Option<Self> {
        fn pair<A: std::str::FromStr, B: std::str::FromStr>(line: &str) -> Option<(A, B)> {
            let (a, b) = line.split_once(' ')?;
            Some((a.parse().ok()?, b.parse().ok()?))
        }
        let (had_ticks, had_alarms): (usize, usize) = pair(began)?;
        let ticks = ticks.lines().map(pair).collect::<Option<Vec<(u64, f64)>>>()?;
        let alarms = alarms.lines().map(pair).collect::<Option<Vec<(f64, f64)>>>()?;
        let (ticking, sleeping) = (ticks.len() > had_ticks, alarms.len() > had_alarms);
        Some(Self { ticks, alarms, ticking, sleeping, alive: alive.lines().count() })
    }

    /// Checks that the ticker counts on from `before`, without a gap and without starting again.
    fn continue_after(&self, before: usize) -> Result<(), Finding> {
        let counts: Vec<_> = self.ticks.iter().map(|(count, _)| *count).collect();
        let last = counts.last().copied().unwrap_or(0);
        if !counts.iter().copied().eq(1..=last) {
            let at = counts.iter().zip(1..).position(|(count, wanted)| *count != wanted).unwrap_or(0);
            let near = &counts[at.saturating_sub(2)..counts.len().min(at + 3)];
            return Err(Finding::wrong(format!("a counting process wrote {near:?}")));
        }
        if counts.len() <= before || !self.ticking {
            return Err(Finding::wrong(format!("a counting process stopped at {last}")));
        }
        match self.alive {
            2 => Ok(()),
            alive => Err(Finding::wrong(format!("{alive} of 2 test processes still run"))),
        }
    }

    /// Checks that every sleeper woke in time: not early, in a burst, or never.
    fn are_in_time(&self) -> Result<(), Finding> {
        for (what, going) in [("counting", self.ticking), ("sleeping", self.sleeping)] {
            if !going {
                return Err(Finding::wrong(format!("a {what} process did nothing for ten seconds")));
            }
        }
        let ticks = self.ticks.windows(2).map(|pair| (TICK, pair[1].1 - pair[0].1));
        let alarms = self.alarms.iter().map(|(from, to)| (ALARM, to - from));
        for (wanted, slept) in ticks.chain(alarms) {
            if slept < wanted - GRAIN || slept > wanted + LATE {
                return Err(Finding::wrong(format!("a sleep of {wanted} s took {slept:.2} s")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(ticks: &str, alarms: &str) -> Notes {
        Notes::parse("1 0", ticks, alarms, "alive\nalive").unwrap()
    }

    const TICKS: &str = "1 5.00\n2 5.11\n3 5.25\n4 7.00";
    const ALARMS: &str = "5.00 6.01\n6.01 7.02";

    #[test]
    fn punctual_processes_pass() {
        notes(TICKS, ALARMS).continue_after(2).unwrap();
        notes(TICKS, ALARMS).are_in_time().unwrap();
    }

    #[test]
    fn interrupted_count_is_found() {
        assert!(notes(TICKS, ALARMS).continue_after(4).is_err(), "nothing came after the snapshot");
        assert!(notes("1 5.00\n2 5.11\n1 5.25\n2 5.36", ALARMS).continue_after(2).is_err(), "it began anew");
        assert!(notes("1 5.00\n2 5.11\n4 5.25", ALARMS).continue_after(2).is_err(), "3 is missing");
        assert!(notes("1 5.00", ALARMS).continue_after(0).is_err(), "no new tick was seen");
        let dead = Notes::parse("1 0", TICKS, ALARMS, "alive").unwrap();
        assert!(dead.continue_after(2).is_err(), "one of the processes is gone");
    }

    #[test]
    fn early_and_late_timers_are_found() {
        assert!(notes("1 5.00\n2 5.11\n3 5.12\n4 5.12", ALARMS).are_in_time().is_err(), "a burst");
        assert!(notes("1 5.00\n2 4.00", ALARMS).are_in_time().is_err(), "time ran backwards");
        assert!(notes("1 5.00\n2 3605.00", ALARMS).are_in_time().is_err(), "an hour was slept through");
        assert!(notes(TICKS, "5.00 5.50").are_in_time().is_err(), "woken early");
        assert!(notes(TICKS, "5.00 67.00").are_in_time().is_err(), "woken late");
        assert!(notes(TICKS, "").are_in_time().is_err(), "never woken");
        assert!(notes("1 5.00", ALARMS).are_in_time().is_err(), "no new tick was seen");
    }

    #[test]
    fn starved_guest_passes() {
        notes("1 5.00\n2 18.20", "5.00 19.20").are_in_time().unwrap();
    }

    #[test]
    fn malformed_process_notes_are_refused() {
        assert!(Notes::parse("1 0", "1 x", "", "").is_none());
        assert!(Notes::parse("", TICKS, ALARMS, "").is_none());
    }

    #[test]
    fn wrong_rest_of_deleted_file_is_found() {
        let rest: Vec<_> = (1..LINES).map(|number| line("n", number)).collect();
        judge_rest("n", &rest.join("\n")).unwrap();
        assert!(judge_rest("other", &rest.join("\n")).is_err());
        assert!(judge_rest("n", &rest[1..].join("\n")).is_err());
        assert!(judge_rest("n", "").is_err());
    }
}
