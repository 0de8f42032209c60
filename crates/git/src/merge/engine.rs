//! The merge engine: it packs, tries out and lands one source after the other.

use agentiso_core::paths::GuestPath;
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::carry;
use super::error::MergeError;
use super::guest::GitGuest;
use super::scripts;
use super::strategy::Strategy;

#[derive(Clone, Debug)]
pub struct Merge {
    /// The path of the working tree in every workspace.
    pub path: GuestPath,
    pub strategy: Strategy,
    /// The message of merge commits; the source's name is added.
    pub message: Option<String>,
}

/// A source of commits.
#[derive(Debug)]
pub struct Source<P> {
    pub guest: P,
    /// For the message of a merge commit.
    pub name: String,
}

/// The result of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Merged {
        commits: u64,
        /// A remark that its owner may not expect.
        note: Option<String>,
    },
    /// The target is unchanged.
    Failed { error: String },
}

/// A source that was applied on the bench.
struct Fitted {
    tip: String,
    commits: u64,
    note: Option<String>,
}

/// Merges the sources into the target, one after the other, and returns an outcome for each. It fails as a whole only
/// if the target cannot be used at all. When `stop` is cancelled, sources that have not landed are given up. However it
/// ends, no temporary files are left in any workspace, unless the future is dropped.
pub async fn merge<T: GitGuest, S: GitGuest>(
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

/// Opens the target's bench. Returns the target's current commit and the list of commits that it has.
async fn open<T: GitGuest>(merge: &Merge, target: &T) -> Result<(String, Bytes), MergeError<T::Error>> {
    let script = scripts::open(&merge.path, target.bench(), merge.strategy);
    let ran = MergeError::check(target.run(&script).await)?;
    let head = ran.value("head").and_then(commit_id).ok_or(MergeError::Answer("the commit of HEAD"))?;
    let path = carry::inside(target.bench(), "known").map_err(|_| MergeError::Answer("the bench"))?;
    let known = target.read(&path, 0, scripts::MAX_KNOWN_BYTES).await.map_err(MergeError::Guest)?;
    Ok((head, known))
}

/// Failures are ignored: the bench is in a directory for temporary files.
async fn close(guest: &impl GitGuest) {
    let _ = guest.run(&scripts::close(guest.bench())).await;
}

struct Bench<'a, T> {
    merge: &'a Merge,
    target: &'a T,
    /// The current commit of the target.
    head: String,
    known: Bytes,
}

impl<T: GitGuest> Bench<'_, T> {
    async fn take<S: GitGuest>(&mut self, source: &Source<S>, stop: &CancellationToken) -> Outcome {
        let fitted = stop.run_until_cancelled(self.fit(source)).await.unwrap_or(Err(MergeError::Stopped));
        close(&source.guest).await;
        let landed = match fitted {
            // Not interrupted from here on: moving the branch must complete.
            Ok(fitted) => self.land(fitted).await,
            Err(error) => Err(error),
        };
        landed.unwrap_or_else(|error| Outcome::Failed { error: error.to_string() })
    }

    /// Applies a source on the bench. The future may be dropped at any point: only benches are changed.
    async fn fit<S: GitGuest>(&self, source: &Source<S>) -> Result<Fitted, MergeError<String>> {
        let Merge { path, strategy, message } = self.merge;
        let guest = &source.guest;
        let known = carry::path(guest.bench(), "known")?;
        guest
            .write(&known, self.known.clone())
            .await
            .map_err(|error| MergeError::Guest(error.to_string()))?;
        let packed = guest.run(&scripts::pack(path, guest.bench())).await.map_err(|error| error.to_string());
        let packed = MergeError::check(packed)?;
        let count = packed.number("count").ok_or(MergeError::Answer("the number of commits"))?;
        let note = note(packed.number("uncommitted").unwrap_or_default());
        if count == 0 {
            return Ok(Fitted { tip: self.head.clone(), commits: 0, note });
        }
        let size = packed.number("size").ok_or(MergeError::Answer("the bundle's size"))?;
        carry::bundle(guest, self.target, size).await?;
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
        .then(|| format!("{uncommitted} changed files there are not committed and were not merged"))
}

/// A commit id from a guest becomes an argument only if it has the right form.
fn commit_id(text: String) -> Option<String> {
    let is_one = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_one.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_ids_from_guests_are_validated() {
        assert!(commit_id("0123456789abcdef0123456789abcdef01234567".to_owned()).is_some());
        for wrong in ["", "HEAD", "--exec=x", "0123456789abcdef0123456789abcdef0123456g"] {
            assert_eq!(commit_id(wrong.to_owned()), None);
        }
    }
}
