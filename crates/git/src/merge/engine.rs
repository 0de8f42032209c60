//! The steps of a merge, source by source.

use agentiso_core::paths::GuestPath;
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::carry;
use super::error::MergeError;
use super::place::Place;
use super::scripts;
use super::strategy::Strategy;

#[derive(Clone, Debug)]
pub struct Merge {
    /// The working tree, in every machine.
    pub path: GuestPath,
    pub strategy: Strategy,
    /// Of merge commits; the source's name is added.
    pub message: Option<String>,
}

/// Where commits come from.
#[derive(Debug)]
pub struct Source<P> {
    pub place: P,
    /// For the message of a merge commit.
    pub name: String,
}

/// What became of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Merged {
        commits: u64,
        /// What its owner may not expect.
        note: Option<String>,
    },
    /// The target is as it was.
    Failed { error: String },
}

/// What was found to fit on the bench.
struct Fitted {
    tip: String,
    commits: u64,
    note: Option<String>,
}

/// Merges the sources into the target, one after the other, each as far as it goes; an outcome for each. It fails as
/// a whole only if the target cannot be used at all. When `stop` is cancelled, what has not landed is given up. Nothing
/// is left of it in any machine, however it ends, unless the future is dropped.
pub async fn merge<T: Place, S: Place>(
    merge: &Merge,
    target: &T,
    sources: &[Source<S>],
    stop: &CancellationToken,
) -> Result<Vec<Outcome>, MergeError<T::Error>> {
    let opened = stop.run_until_cancelled(open(merge, target)).await.unwrap_or(Err(MergeError::Stopped));
    let outcomes = match opened {
        Ok((head, known)) => {
            let mut bench = Bench { merge, target, head, known };
            let mut outcomes = Vec::with_capacity(sources.len());
            for source in sources {
                outcomes.push(bench.take(source, stop).await);
            }
            Ok(outcomes)
        }
        Err(error) => Err(error),
    };
    close(target).await;
    outcomes
}

/// The commit that the target is at, and the list of those that it knows.
async fn open<T: Place>(merge: &Merge, target: &T) -> Result<(String, Bytes), MergeError<T::Error>> {
    let script = scripts::open(&merge.path, target.bench(), merge.strategy);
    let ran = MergeError::check(target.run(&script).await)?;
    let head = ran.value("head").and_then(commit_id).ok_or(MergeError::Answer("the commit of HEAD"))?;
    let path = carry::inside(target.bench(), "known").map_err(|_| MergeError::Answer("the bench"))?;
    let known = target.read(&path, 0, scripts::MAX_KNOWN_BYTES).await.map_err(MergeError::Place)?;
    Ok((head, known))
}

/// What cannot be removed is in a directory for temporary files.
async fn close(place: &impl Place) {
    let _ = place.run(&scripts::close(place.bench())).await;
}

struct Bench<'a, T> {
    merge: &'a Merge,
    target: &'a T,
    /// The commit that the target is at.
    head: String,
    known: Bytes,
}

impl<T: Place> Bench<'_, T> {
    async fn take<S: Place>(&mut self, source: &Source<S>, stop: &CancellationToken) -> Outcome {
        let fitted = stop.run_until_cancelled(self.fit(source)).await.unwrap_or(Err(MergeError::Stopped));
        close(&source.place).await;
        let landed = match fitted {
            // From here on it is not stopped: a branch that moves must arrive.
            Ok(fitted) => self.land(fitted).await,
            Err(error) => Err(error),
        };
        landed.unwrap_or_else(|error| Outcome::Failed { error: error.to_string() })
    }

    /// Tries a source out. It may be dropped at any point: only benches are touched.
    async fn fit<S: Place>(&self, source: &Source<S>) -> Result<Fitted, MergeError<String>> {
        let Merge { path, strategy, message } = self.merge;
        let place = &source.place;
        let known = carry::path(place.bench(), "known")?;
        place
            .write(&known, self.known.clone())
            .await
            .map_err(|error| MergeError::Place(error.to_string()))?;
        let packed = place.run(&scripts::pack(path, place.bench())).await.map_err(|error| error.to_string());
        let packed = MergeError::check(packed)?;
        let count = packed.number("count").ok_or(MergeError::Answer("the number of commits"))?;
        let note = note(packed.number("uncommitted").unwrap_or_default());
        if count == 0 {
            return Ok(Fitted { tip: self.head.clone(), commits: 0, note });
        }
        let size = packed.number("size").ok_or(MergeError::Answer("the bundle's size"))?;
        carry::bundle(place, self.target, size).await?;
        let message = match message {
            Some(message) => format!("{message} (workspace {})", source.name),
            None => format!("Merge workspace {}", source.name),
        };
        let script = scripts::apply(path, self.target.bench(), &self.head, *strategy, &message);
        let applied = self.target.run(&script).await.map_err(|error| error.to_string());
        let applied = MergeError::check(applied)?;
        let tip = applied.value("tip").and_then(commit_id).ok_or(MergeError::Answer("the new commit"))?;
        let commits = applied.number("applied").ok_or(MergeError::Answer("the number of commits"))?;
        Ok(Fitted { tip, commits, note })
    }

    async fn land(&mut self, fitted: Fitted) -> Result<Outcome, MergeError<String>> {
        let Fitted { tip, commits, note } = fitted;
        if tip != self.head {
            let script = scripts::land(&self.merge.path, self.target.bench(), &self.head, &tip);
            MergeError::check(self.target.run(&script).await.map_err(|error| error.to_string()))?;
            self.head = tip;
        }
        Ok(Outcome::Merged { commits, note })
    }
}

fn note(uncommitted: u64) -> Option<String> {
    (uncommitted > 0)
        .then(|| format!("{uncommitted} changed files are not committed there and were not taken"))
}

/// What a machine says is a commit becomes an argument only if it looks like one.
fn commit_id(text: String) -> Option<String> {
    let is_one = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_one.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_calls_a_commit_is_looked_at() {
        assert!(commit_id("0123456789abcdef0123456789abcdef01234567".to_owned()).is_some());
        for wrong in ["", "HEAD", "--exec=x", "0123456789abcdef0123456789abcdef0123456g"] {
            assert_eq!(commit_id(wrong.to_owned()), None);
        }
    }
}
