//! From a started QEMU to a guest with its own identity: load the state, greet the agent, attach the root, give the
//! identity.

use std::path::Path;
use std::time::{Duration, SystemTime};

use agentiso_agent::{AgentClient, AgentError, AttachRoot, InitMode, Stage, limits};
use agentiso_core::config;
use agentiso_core::names::ImageName;
use agentiso_protocol::ErrorCode;
use agentiso_vm::Identity;
use tokio::time::Instant;

use super::error::BootError;
use super::launch::Launched;

/// Random bytes given to each guest: enough for the kernel to reseed its generator.
const ENTROPY_BYTES: usize = 256;

const _: () = assert!(ENTROPY_BYTES >= limits::MIN_ENTROPY_BYTES);

/// Device state has some 100 KB. A restore that takes longer has failed in a way that QEMU does not report.
const LOAD_DEADLINE: Duration = Duration::from_secs(30);

/// An identity with the current time and new random numbers.
pub(crate) fn as_of_now(identity: &Identity) -> Result<agentiso_agent::Identity, getrandom::Error> {
    let mut entropy = vec![0; ENTROPY_BYTES];
    getrandom::fill(&mut entropy)?;
    Ok(agentiso_agent::Identity {
        realtime: SystemTime::now(),
        entropy,
        hostname: identity.hostname.clone(),
        machine_id: identity.machine_id.clone(),
        network: identity.network.clone(),
    })
}

/// Adds the image's name and the configuration key to the agent's error, which contains neither. Of all that the agent
/// looks for on the disk, only the init may be missing.
fn explain_missing_init(error: AgentError, mode: config::InitMode, image: &ImageName) -> AgentError {
    match (error, mode) {
        (AgentError::Guest { code: ErrorCode::NotFound, message }, config::InitMode::System) => {
            let message = format!(
                "{message}, which vm.init_mode = \"system\" (or \"openrc\") needs; the image is {image}"
            );
            AgentError::Guest { code: ErrorCode::NotFound, message }
        }
        (error, config::InitMode::System | config::InitMode::Fast) => error,
    }
}

impl Launched {
    /// Loads a template's device state and lets the guest run.
    pub(crate) async fn restore(&self, device_state: &Path) -> Result<(), BootError> {
        match self.qmp().load_devices(device_state, LOAD_DEADLINE).await {
            Ok(()) => {}
            Err(error) => return Err(self.explain(error).await),
        }
        self.qmp().execute("cont", None).await?;
        Ok(())
    }

    /// Waits for the agent's greeting. Fails when the VM ends or at the deadline.
    pub(crate) async fn greet(&self, deadline: Instant) -> Result<AgentClient, BootError> {
        self.unless_dead(AgentClient::connect(self.agent_socket(), deadline)).await
    }

    /// Makes the disk the root file system, grown to the disk's size. Does nothing if it is the root already.
    pub(crate) async fn root(
        &self,
        agent: AgentClient,
        mode: config::InitMode,
        image: &ImageName,
        deadline: Instant,
    ) -> Result<AgentClient, BootError> {
        if agent.hello().stage == Stage::Rooted {
            return Ok(agent);
        }
        let init_mode = match mode {
            config::InitMode::Fast => InitMode::Fast,
            config::InitMode::System => InitMode::System,
        };
        let attached = agent.attach_root(AttachRoot { init_mode, ..AttachRoot::default() });
        self.unless_dead(async { attached.await.map_err(|error| explain_missing_init(error, mode, image)) })
            .await?;
        match agent.is_closed() {
            false => Ok(agent),
            // Handing process 1 to the image's init may restart the agent.
            true => self.greet(deadline).await,
        }
    }

    /// Gives the guest its clock, random numbers, names and addresses.
    pub(crate) async fn identify(&self, agent: &AgentClient, identity: &Identity) -> Result<(), BootError> {
        let identity = as_of_now(identity).map_err(BootError::Entropy)?;
        self.unless_dead(agent.identify(identity)).await?;
        Ok(())
    }

    /// Runs a call to the agent. If the VM ends meanwhile, fails at once with the reason.
    pub(crate) async fn unless_dead<T>(
        &self,
        call: impl Future<Output = Result<T, AgentError>>,
    ) -> Result<T, BootError> {
        tokio::select! {
            // The VM's end is checked first: its reason says more than the failed call.
            biased;
            reason = self.exit_reason() => Err(BootError::Died { reason, console_tail: self.console_tail() }),
            answer = call => match answer {
                Ok(answer) => Ok(answer),
                // An error that the agent reports needs no console lines.
                Err(error @ AgentError::Guest { .. }) => {
                    Err(BootError::Agent { error, console_tail: String::new() })
                }
                Err(error) => Err(BootError::Agent { error, console_tail: self.report_stuck().await }),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_init_names_image_and_key() {
        let image = ImageName::parse("debian-minimal").unwrap();
        let missing = || AgentError::Guest {
            code: ErrorCode::NotFound,
            message: "the image has no /sbin/init".to_owned(),
        };
        let said = explain_missing_init(missing(), config::InitMode::System, &image).to_string();
        assert!(said.contains("debian-minimal") && said.contains("vm.init_mode"), "{said}");
        let said = explain_missing_init(missing(), config::InitMode::Fast, &image).to_string();
        assert!(!said.contains("vm.init_mode"), "{said}");
    }
}
