//! What every backend of the network holds against, hostile guests included: one list of cases, run on each backend.
//!
//! A case is told from within a guest and from the servers outside, never from a backend's own books, so that it means
//! the same wherever it runs. Everything happens in network namespaces of the test's own.

mod floods;
mod forwards;
mod git;
mod inside;
mod lives;
mod log;
mod names;
mod neighbours;
mod policy;

/// What carries the packets of the workspaces.
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

/// A backend is added here and above, and nowhere else.
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
    names::a_name_opens_its_address_and_no_other_name_of_it,
    names::names_carry_nothing_out,
    names::names_follow_the_policy_at_once,
    inside::what_is_inside_stays_out_of_reach,
    inside::a_name_that_leads_inside_is_not_told,
    policy::a_policy_that_closes_ends_what_is_open_at_once,
    policy::rules_are_never_text_for_somebody_else,
    lives::a_policy_goes_with_a_workspace_through_snapshots_forks_and_restarts,
    lives::what_a_machine_had_open_ends_with_it,
    lives::a_policy_holds_after_a_daemon_that_was_killed,
    neighbours::frames_in_the_name_of_another_reach_nobody,
    neighbours::a_connection_between_workspaces_ends_with_what_allowed_it,
    neighbours::nothing_of_ours_listens_in_a_guest,
    floods::ten_thousand_connections_come_and_go,
    floods::more_connections_than_there_may_be_hurt_only_who_opens_them,
    floods::a_flood_of_frames_hurts_only_who_sends_it,
    floods::a_request_that_is_never_finished_is_given_up,
    forwards::a_forward_is_the_hosts_own_and_stays,
    log::the_log_tells_what_was_opened_closed_and_refused,
    git::a_repository_is_cloned_by_an_allowed_name_only,
}
