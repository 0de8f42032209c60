//! What comes back to a guest from the outside: only what its rules would let out, so that nothing goes on arriving
//! from where it may not be any more.

use agentiso_core::network::never_public_networks;

use super::Guest;
use super::outside::{Way, judge};
use crate::bridge::nft::{Action, Chain, Field, Match};

pub(super) fn chain(guest: &Guest) -> Chain {
    let mut chain = Chain::new(format!("back-{}", guest.short));
    let way = Way {
        address: Field::SourceAddress,
        port: Field::SourcePort,
        special: "special-back",
        refuse: Action::Drop,
    };
    judge(&mut chain, guest, &way);
    chain
}

pub(super) fn special() -> Chain {
    let mut chain = Chain::new("special-back");
    for network in never_public_networks() {
        chain.rule([Match::Within(Field::SourceAddress, network)], Action::Drop);
    }
    chain
}
