//! One run of the soak: start, clients and storm, comparison, report.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::journal::{Journal, Kind};
use crate::leaks::{Inventory, left_entries, left_files};
use crate::plan::Strikes;
use crate::player::Player;
use crate::report::Report;
use crate::site::{Settings, Site, pause};
use crate::storm::Storm;

/// The time in which background work ends after the last call.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);

const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The number of descriptors that an idle daemon may have at the end beyond those at the beginning.
const MOST_NEW_DESCRIPTORS: usize = 16;

/// Runs the soak. Returns the report, and whether there were no findings.
pub(crate) fn run(settings: &Settings) -> Result<(String, bool)> {
    let begun = Instant::now();
    let site = Site::open(settings, Journal::create(&settings.evidence)?)?;
    let jail = jail(&site);
    let before = Inventory::take();
    site.host.cli_ok(&["ps"]);
    let descriptors = descriptors(&site);
    let mut storm = weather_and_clients(&site, settings);
    for problem in storm.growth.problems() {
        leaked(&site, &problem);
    }
    guarded(&site, || look_for_leaks(&site, &before, descriptors));
    storm.look_for_panics();
    let highest_daemon_kb = storm.growth.highest_kb();
    site.keep_evidence();
    let counts = site.journal.counts();
    let report = Report { settings, jail: &jail, counts: &counts, took: begun.elapsed(), highest_daemon_kb };
    let text = report.text();
    std::fs::write(site.journal.dir.join("report.md"), &text)?;
    let is_clean = report.is_clean();
    site.close()?;
    Ok((text, is_clean))
}

fn weather_and_clients<'a>(site: &'a Site, settings: &Settings) -> Storm<'a> {
    let cap = (settings.workspaces / settings.clients).max(2);
    let between = settings.operations_between_faults;
    let mut storm = Storm::new(site, Strikes::of(settings.seed, between, settings.damages_ledger));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..settings.clients)
            .map(|index| {
                let mut player = Player::new(site, settings.seed, index, cap);
                scope.spawn(move || {
                    guarded(site, || player.play());
                    player
                })
            })
            .collect();
        guarded(site, || storm.rage());
        let players: Vec<_> = clients.into_iter().filter_map(|client| client.join().ok()).collect();
        site.journal.note("end", "all is compared");
        let ends: Vec<_> = players
            .into_iter()
            .map(|mut player| {
                scope.spawn(move || {
                    guarded(site, || player.verify_all());
                    guarded(site, || player.destroy_all());
                    player.leave();
                })
            })
            .collect();
        ends.into_iter().for_each(|end| drop(end.join()));
    });
    storm
}

/// The kind of jail on this host, as `agentiso check` reports it.
fn jail(site: &Site) -> String {
    let output = site.host.cli(&["check", "--json"]);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let checks = answer["checks"].as_array().cloned().unwrap_or_default();
    let detail = checks.iter().find(|check| check["name"] == "jail").and_then(|jail| jail["detail"].as_str());
    detail.and_then(|detail| detail.split(':').next()).unwrap_or("not known").to_owned()
}

/// Runs `work`. A panic of the soak itself is a finding too, and does not end the run.
fn guarded(site: &Site, work: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        site.journal.find(
            Kind::Unexpected,
            "soak",
            &format!("a part of the soak failed: {}", text.unwrap_or_default()),
        );
        site.end();
    }
}

fn leaked(site: &Site, text: &str) {
    site.journal.find(Kind::Leaked, "end", text);
}

fn look_for_leaks(site: &Site, before: &Inventory, descriptors_before: usize) {
    let host = &site.host;
    let left = |host: &agentiso_testkit::TestHost| {
        let mut left = left_files(host);
        left.extend(left_entries(&host.state()));
        left.extend(host.vms().iter().map(|pid| format!("VM {pid}")));
        left
    };
    eventually(|| left(host).is_empty());
    for thing in left(host) {
        leaked(site, &format!("with no workspace left: {thing}"));
    }
    eventually(|| descriptors(site) <= descriptors_before + MOST_NEW_DESCRIPTORS);
    let now = descriptors(site);
    if now > descriptors_before + MOST_NEW_DESCRIPTORS {
        leaked(site, &format!("the daemon had {descriptors_before} descriptors open and has {now}"));
    }
    host.stop_daemon();
    eventually(|| Inventory::take().leaked_since(before).is_empty());
    for thing in Inventory::take().leaked_since(before) {
        leaked(site, &format!("after the daemon ended: {thing}"));
    }
}

fn eventually(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + SETTLED_WITHIN;
    while !condition() && Instant::now() < deadline {
        pause(LOOK_EVERY);
    }
}

fn descriptors(site: &Site) -> usize {
    let Some(daemon) = site.host.daemon() else { return 0 };
    std::fs::read_dir(format!("/proc/{}/fd", daemon.pid)).map_or(0, Iterator::count)
}
