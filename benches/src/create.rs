//! Time of `workspace_create` to the first answer of `exec`, cold and from a template, in turns, so that other load of
//! the host affects both alike.

use std::time::Duration;

use agentiso_testkit::{Client, TestHost};
use anyhow::Result;

use crate::figures::{Figures, Key, Measured};
use crate::samples::timed;
use crate::setup::{Setup, expect_rung};
use crate::vm_line::Rung;

struct Times {
    create: Duration,
    first_exec: Duration,
}

pub(crate) fn measure(setup: &Setup) -> Result<Figures> {
    let booted = setup.host("[vm]\ntemplates = false\n");
    let restored = setup.host("");
    let (cold_client, restored_client) = (booted.client(), restored.client());
    // The first VM of a daemon waits for checks at the daemon's start, so it is not counted.
    create(&restored, &restored_client, Rung::ImageTemplate)?;
    // If the host does not cold boot on request, only that figure is left out.
    let no_cold = create(&booted, &cold_client, Rung::ColdBoot).err();
    let (mut from_cold, mut from_template) = (Vec::new(), Vec::new());
    for _ in 0..setup.runs.creates {
        if no_cold.is_none() {
            from_cold.push(create(&booted, &cold_client, Rung::ColdBoot)?);
        }
        from_template.push(create(&restored, &restored_client, Rung::ImageTemplate)?);
    }
    let mut figures = Figures::default();
    let cold = |time: fn(&Times) -> Duration| match &no_cold {
        None => Measured::times(from_cold.iter().map(time)),
        Some(error) => Measured::Absent(format!("{error:#}")),
    };
    figures.set(Key::ColdCreate, cold(|t| t.create + t.first_exec));
    figures.set(Key::ColdCreateCall, cold(|t| t.create));
    figures.set(Key::TemplateCreate, Measured::times(from_template.iter().map(|t| t.create + t.first_exec)));
    figures.set(Key::TemplateCreateCall, Measured::times(from_template.iter().map(|t| t.create)));
    figures.set(Key::TemplateFirstExec, Measured::times(from_template.iter().map(|t| t.first_exec)));
    Ok(figures)
}

fn create(host: &TestHost, client: &Client, rung: Rung) -> Result<Times> {
    let (workspace, create) = timed(|| client.workspace());
    let (output, first_exec) = timed(|| workspace.exec("true"));
    anyhow::ensure!(output.exit_code == 0, "true failed: {output:?}");
    let began = expect_rung(host, rung);
    workspace.destroy();
    began?;
    Ok(Times { create, first_exec })
}
