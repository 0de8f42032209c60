//! Runs all applicable checks on a VM, one after the other.

use tokio::time::Instant;

use super::before::Before;
use super::check::{Check, Origin};
use super::entropy::{self, Seen};
use super::guest::Guest;
use super::identity::ObservedIdentity;
use super::verdict::{CheckResult, Finding};
use super::witness::Witness;
use super::{clock, filesystem};

/// A VM to be examined.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    pub origin: Origin,
    pub guest: Guest<'a>,
    /// Running VMs that were made from the same disk or memory.
    pub siblings: Vec<Guest<'a>>,
    /// The state before the snapshot that it comes from.
    pub before: Option<&'a Before>,
    pub parent: Option<Parent<'a>>,
}

/// The running VM that another was forked from.
#[derive(Clone, Copy, Debug)]
pub struct Parent<'a> {
    pub guest: Guest<'a>,
    pub before: &'a Before,
}

/// Runs every applicable check. A failed one does not stop the others.
pub async fn examine(subject: &Subject<'_>, seen: &Seen) -> Vec<CheckResult> {
    let mut results = Vec::new();
    for check in Check::ALL.into_iter().filter(|check| check.applies_to(subject.origin)) {
        let began = Instant::now();
        let found = subject.check(check, seen).await;
        results.push(CheckResult { check, verdict: found.into(), time: began.elapsed() });
    }
    results
}

impl<'a> Subject<'a> {
    /// A VM without siblings, snapshot or parent.
    pub fn alone(origin: Origin, guest: Guest<'a>) -> Self {
        Self { origin, guest, siblings: Vec::new(), before: None, parent: None }
    }

    async fn check(&self, check: Check, seen: &Seen) -> Result<(), Finding> {
        let guest = self.guest;
        match check {
            Check::Clock => clock::check(guest).await,
            Check::Entropy => entropy::kernel(guest, seen).await,
            Check::PythonEntropy => entropy::python(guest, seen).await,
            Check::Identity => self.identity().await,
            Check::Network => self.network().await,
            Check::Filesystem => {
                let marker = self.before.map(|before| &before.marker);
                filesystem::check(guest, marker, &self.others()).await
            }
            Check::OpenFiles => self.witness()?.open_file(guest).await,
            Check::Processes => self.witness()?.processes(guest).await,
            Check::Timers => self.timers().await,
            Check::Parent => match &self.parent {
                Some(parent) => parent.before.is_undisturbed(parent.guest).await,
                None => Err(Finding::untried("the VM it was forked from does not run")),
            },
        }
    }

    fn others(&self) -> Vec<Guest<'a>> {
        self.siblings.iter().copied().chain(self.parent.map(|parent| parent.guest)).collect()
    }

    fn witness(&self) -> Result<&'a Witness, Finding> {
        let witness = self.before.and_then(|before| before.witness.as_ref());
        witness.ok_or_else(|| Finding::wrong("no test processes were started before the snapshot"))
    }

    async fn identity(&self) -> Result<(), Finding> {
        let own = ObservedIdentity::read(self.guest).await?;
        own.names_match(&self.guest.spec.identity)?;
        for other in self.others() {
            own.names_differ(&ObservedIdentity::read(other).await?)?;
        }
        Ok(())
    }

    async fn network(&self) -> Result<(), Finding> {
        let Some(promised) = &self.guest.spec.identity.network else {
            return Err(Finding::untried("the VM has no network"));
        };
        let own = ObservedIdentity::read(self.guest).await?;
        own.network_matches(promised)?;
        for other in self.others() {
            own.network_differs(&ObservedIdentity::read(other).await?)?;
        }
        Ok(())
    }

    /// Checks the timers of the restored processes or, without any, of processes started for this purpose.
    async fn timers(&self) -> Result<(), Finding> {
        if let Some(witness) = self.before.and_then(|before| before.witness.as_ref()) {
            return witness.timers(self.guest).await;
        }
        let witness = Witness::start(self.guest, &uuid::Uuid::new_v4().simple().to_string()).await?;
        witness.timers(self.guest).await?;
        witness.stop(self.guest).await
    }
}
