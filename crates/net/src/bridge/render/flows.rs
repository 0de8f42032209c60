//! The table that counts what the kernel carries for each guest: datagrams to the outside, and everything between guests.
//!
//! It is a table of its own because the others are replaced whenever a policy changes, and with them would go the counts.
//! Each guest has its own sets, so that none can fill those of another.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::{Ground, set};
use crate::bridge::nft::{
    Action, At, Chain, ChainKind, Course, Family, Field, Match, Set, SetKind, Table, Target, Tuple, Value,
};

/// Behind what refuses, so that only what passes is counted.
const AFTER_FILTER: i32 = 10;

/// Keys in one set: so many connections as the kernel tracks for a guest, each with its beginning, its end and two sizes
/// of heads between them.
pub(crate) const KEYS: u32 = 4 * super::outside::CONNECTIONS;

/// Longer than anything that is open may be silent. Counts are removed when they were read; this is for a daemon that
/// never comes back.
const FORGOTTEN: Duration = Duration::from_secs(3 * 60 * 60);

/// Of what is new, so much is told of in a second. Who is told looks at everything there is.
const TOLD: u64 = 20;

/// What one guest has in the table.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    pub(crate) table: Table,
    /// What leads there.
    pub(crate) maps: [Set; 2],
}

/// The set in which a guest's packets of one course are counted.
pub(crate) fn counts(short: &str, course: Course) -> String {
    match course {
        Course::Up => format!("sent-{short}"),
        Course::Down => format!("got-{short}"),
    }
}

/// The table without any guest.
pub(crate) fn table(ground: &Ground) -> Table {
    let ours = || Value::interface(&ground.bridge);
    let mut passing = Chain::at("passing", ChainKind::Filter, At::Forward, AFTER_FILTER);
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

/// What is added to it for one guest.
pub(crate) fn share(ground: &Ground, short: &str, address: Ipv4Addr) -> Share {
    let courses = [Course::Up, Course::Down];
    let sets = courses.map(|course| Set {
        name: counts(short, course),
        timed: true,
        kind: SetKind::Counts { most: KEYS },
    });
    let chains = courses.map(|course| chain(ground, short, course));
    let leading =
        |map: &str, chain: &Chain| set(map, SetKind::ByAddress(vec![(address, Target(chain.name.clone()))]));
    let maps = [leading("openers", &chains[0]), leading("answered", &chains[1])];
    Share { table: Table { family: Family::Inet, sets: sets.into(), chains: chains.into() }, maps }
}

fn chain(ground: &Ground, short: &str, course: Course) -> Chain {
    let set = counts(short, course);
    let word = match course {
        Course::Up => "up",
        Course::Down => "down",
    };
    let mut chain = Chain::new(format!("{word}-{short}"));
    for (number, is_tcp) in [(Value::TCP, true), (Value::UDP, false)] {
        let protocol = || Match::Is(Field::Protocol, Value::protocol(number));
        let tuple = Tuple { course, is_tcp };
        let unheard = Match::NotCounted(tuple, set.clone());
        chain.rule(
            [protocol(), unheard, Match::AtMost { packets: TOLD }],
            Action::Log { group: ground.flows_group },
        );
        let counted = Match::Counted { tuple, set: set.clone(), forgotten: FORGOTTEN };
        chain.rule([protocol(), counted], Action::Accept);
    }
    if course == Course::Up {
        // What could not be in the log is not sent either: a guest that fills its sets hides nothing by it.
        for number in [Value::TCP, Value::UDP] {
            let protocol = || Match::Is(Field::Protocol, Value::protocol(number));
            let told = Match::AtMost { packets: TOLD };
            chain.rule([protocol(), told], Action::Log { group: ground.log_group });
            chain.rule([protocol()], Action::Drop);
        }
    }
    chain
}
