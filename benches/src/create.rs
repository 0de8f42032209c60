//! `workspace_create` to the first answer of `exec`, cold and from a template, in turns: what else the host does
//! then hits both alike.

use std::time::Duration;

use agentiso_testkit::{Client, TestHost};
use anyhow::Result;

use crate::figures::{Figures, Key, Measured};
use crate::machine_line::Rung;
use crate::samples::timed;
use crate::setup::{Setup, expect_rung};

struct Times {
    create: Duration,
    first_exec: Duration,
}

pub(crate) fn measure(setup: &Setup) -> Result<Figures> {
    let cold = setup.host("[vm]\ntemplates = false\n");
    let restored = setup.host("");
    let (cold_client, restored_client) = (cold.client(), restored.client());
    // The first machine of a daemon waits for what the daemon finds out at its start.
    create(&restored, &restored_client, Rung::ImageTemplate)?;
    create(&cold, &cold_client, Rung::ColdBoot)?;
    let (mut from_cold, mut from_template) = (Vec::new(), Vec::new());
    for _ in 0..setup.runs.creates {
        from_cold.push(create(&cold, &cold_client, Rung::ColdBoot)?);
        from_template.push(create(&restored, &restored_client, Rung::ImageTemplate)?);
    }
    let mut figures = Figures::default();
    figures.set(Key::ColdCreate, Measured::times(from_cold.iter().map(|t| t.create + t.first_exec)));
    figures.set(Key::TemplateCreate, Measured::times(from_template.iter().map(|t| t.create + t.first_exec)));
    figures.set(Key::TemplateCreateCall, Measured::times(from_template.iter().map(|t| t.create)));
    figures.set(Key::TemplateFirstExec, Measured::times(from_template.iter().map(|t| t.first_exec)));
    Ok(figures)
}

fn create(host: &TestHost, client: &Client, rung: Rung) -> Result<Times> {
    let (workspace, create) = timed(|| client.workspace());
    let (output, first_exec) = timed(|| workspace.exec("true"));
    anyhow::ensure!(output.exit_code == 0, "true failed: {output:?}");
    expect_rung(host, rung)?;
    workspace.destroy();
    Ok(Times { create, first_exec })
}
