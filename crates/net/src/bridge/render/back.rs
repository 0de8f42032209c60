//! Rules for packets from the outside to a guest: they pass only if the guest's rules would let it send there, so that
//! nothing arrives from destinations that are no longer allowed.

use agentiso_core::network::never_public_networks;

use super::Guest;
use super::outside::{RemoteSide, judge};
use crate::bridge::nft::{Action, Chain, Field, Match};

pub(super) fn chain(guest: &Guest) -> Chain {
    let mut chain = Chain::new(format!("back-{}", guest.short));
    let remote = RemoteSide {
        address: Field::SourceAddress,
        port: Field::SourcePort,
        special: "special-back",
        refuse: Action::Drop,
    };
    judge(&mut chain, guest, &remote);
    chain
}

pub(super) fn special() -> Chain {
    let mut chain = Chain::new("special-back");
    for network in never_public_networks() {
        chain.rule([Match::Within(Field::SourceAddress, network)], Action::Drop);
    }
    chain
}
