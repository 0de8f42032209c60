//! Conformance of the network backends, also against hostile guests: one list of cases, run on each backend.
//!
//! A case observes only the guest and the servers outside, never a backend's internal state, so that it means the same
//! on each. Everything runs in network namespaces of the test.

mod floods;
mod forwards;
mod git;
mod inside;
mod lives;
mod log;
mod names;
mod neighbours;
mod policy;

/// The network backend under test.
#[derive(Clone, Copy, Debug)]
enum Backend {
    Gateway,
    Bridge,
}

impl Backend {
    /// Lines of the `[network]` section that choose it.
    fn config(self) -> &'static str {
        match self {
            // The default.
            Self::Gateway => "",
            Self::Bridge => "backend = \"bridge\"\n",
        }
    }
}

/// A new backend is added here and to [`Backend`] only.
macro_rules! on_every_backend {
    ($($module:ident::$case:ident),+ $(,)?) => {
        mod gateway {
            $(#[test]
            fn $case() {
                crate::$module::$case(crate::Backend::Gateway);
            })+
        }
        mod bridge {
            $(#[test]
            fn $case() {
                crate::$module::$case(crate::Backend::Bridge);
            })+
        }
    };
}

on_every_backend! {
    names::allowed_name_does_not_open_other_names,
    names::forbidden_dns_queries_never_leave_the_host,
    names::names_follow_the_policy_at_once,
    inside::allow_internet_never_opens_internal_addresses,
    inside::names_of_internal_addresses_do_not_resolve,
    policy::tightened_policy_ends_open_flows_at_once,
    policy::malformed_rules_are_refused_and_change_nothing,
    lives::policy_survives_snapshots_forks_and_restarts,
    lives::open_connections_end_with_their_vm,
    lives::policy_holds_after_a_killed_daemon,
    neighbours::forged_frames_reach_nobody,
    neighbours::inter_vm_connection_ends_when_policy_closes,
    neighbours::nothing_listens_in_a_fresh_guest,
    floods::ten_thousand_connections_open_without_disturbing_neighbours,
    floods::excess_connections_hurt_only_their_own_workspace,
    floods::frame_flood_hurts_only_its_own_workspace,
    floods::unfinished_requests_are_dropped,
    forwards::forward_listens_on_loopback_and_persists,
    log::network_log_records_opened_closed_and_refused_flows,
    git::git_clones_by_allowed_names_only,
}
