//! Renders the table that counts what the kernel carries for each guest: datagrams to the outside, and everything
//! between guests.
//!
//! It is a separate table because the others are replaced whenever a policy changes, and the counts would be lost with
//! them. Each guest has its own sets, so that none can fill those of another.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::{BridgeLayout, set};
use crate::bridge::nft::{
    Action, Chain, ChainKind, Direction, Family, Field, HookPoint, Match, Set, SetKind, Table, Target, Tuple,
    Value,
};

/// Priority after the rules that refuse, so that only passing packets are counted.
const AFTER_FILTER: i32 = 10;

/// Most keys in one set: as many connections as the kernel tracks for a guest, each with its beginning, its end and two
/// header sizes between them.
pub(crate) const KEYS: u32 = 4 * super::outside::CONNECTIONS;

/// Expiry of a count: longer than an open flow may be silent. Counts are removed after they were read; the expiry is
/// for the case that no daemon runs again.
const FORGOTTEN: Duration = Duration::from_secs(3 * 60 * 60);

/// New keys that are logged per second. One is enough, because the reader then reads all counts.
const TOLD: u64 = 20;

/// One guest's part of the table.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    pub(crate) table: Table,
    /// Elements of the maps that lead to its chains.
    pub(crate) maps: [Set; 2],
}

/// The name of the set that counts a guest's packets of one direction.
pub(crate) fn counts(short: &str, direction: Direction) -> String {
    match direction {
        Direction::Up => format!("sent-{short}"),
        Direction::Down => format!("got-{short}"),
    }
}

/// The table without any guest.
pub(crate) fn table(layout: &BridgeLayout) -> Table {
    let ours = || Value::interface(&layout.bridge);
    let mut passing = Chain::at("passing", ChainKind::Filter, HookPoint::Forward, AFTER_FILTER);
    passing.rule([Match::IsNot(Field::Family, Value::fourth_version())], Action::Return);
    for (interface, direction, address, map) in [
        (Field::InInterface, Value::original(), Field::SourceAddress, "openers"),
        (Field::OutInterface, Value::reply(), Field::TargetAddress, "answered"),
    ] {
        let goes = [Match::Is(interface, ours()), Match::Is(Field::Direction, direction)];
        passing.rule(goes, Action::Follow(address, map.into()));
    }
    let sets = ["openers", "answered"].map(|name| set(name, SetKind::ByAddress(Vec::new())));
    Table { family: Family::Inet, sets: sets.into(), chains: vec![passing] }
}

/// One guest's addition to the table.
pub(crate) fn share(layout: &BridgeLayout, short: &str, address: Ipv4Addr) -> Share {
    let directions = [Direction::Up, Direction::Down];
    let sets = directions.map(|direction| Set {
        name: counts(short, direction),
        timed: true,
        kind: SetKind::Counts { most: KEYS },
    });
    let chains = directions.map(|direction| chain(layout, short, direction));
    let leading =
        |map: &str, chain: &Chain| set(map, SetKind::ByAddress(vec![(address, Target(chain.name.clone()))]));
    let maps = [leading("openers", &chains[0]), leading("answered", &chains[1])];
    Share { table: Table { family: Family::Inet, sets: sets.into(), chains: chains.into() }, maps }
}

fn chain(layout: &BridgeLayout, short: &str, direction: Direction) -> Chain {
    let set = counts(short, direction);
    let word = match direction {
        Direction::Up => "up",
        Direction::Down => "down",
    };
    let mut chain = Chain::new(format!("{word}-{short}"));
    for (number, is_tcp) in [(Value::TCP, true), (Value::UDP, false)] {
        let protocol = || Match::Is(Field::Protocol, Value::protocol(number));
        let tuple = Tuple { direction, is_tcp };
        let unheard = Match::NotCounted(tuple, set.clone());
        chain.rule(
            [protocol(), unheard, Match::AtMost { packets: TOLD }],
            Action::Log { group: layout.flows_group },
        );
        let counted = Match::Counted { tuple, set: set.clone(), forgotten: FORGOTTEN };
        chain.rule([protocol(), counted], Action::Accept);
    }
    if direction == Direction::Up {
        // Packets that cannot be counted, and so logged, are dropped: a guest cannot hide flows by filling its sets.
        for number in [Value::TCP, Value::UDP] {
            let protocol = || Match::Is(Field::Protocol, Value::protocol(number));
            let told = Match::AtMost { packets: TOLD };
            chain.rule([protocol(), told], Action::Log { group: layout.log_group });
            chain.rule([protocol()], Action::Drop);
        }
    }
    chain
}
