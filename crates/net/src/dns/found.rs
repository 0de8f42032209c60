//! Extracts from an upstream answer the records that answer the question, and how long they hold.

use std::net::Ipv4Addr;
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

/// Longest chain of CNAME records. Browsers and resolvers give up at about the same length.
const MAX_CHAIN: usize = 16;

/// Records kept of one answer. More addresses do not make a name better reachable.
const MAX_RECORDS: usize = 256;

/// Longest time to live, even if the answer gives a longer one, so that guests soon find a service that was moved.
pub(super) const MAX_TTL: Duration = Duration::from_secs(300);

/// Longest time to live of the answer that a name does not exist.
pub(super) const MAX_NEGATIVE_TTL: Duration = Duration::from_secs(60);

/// The same, if the answer has no SOA record.
const DEFAULT_NEGATIVE_TTL: Duration = Duration::from_secs(5);

/// The useful part of an answer: the chain from the question's name to the last one, and the records of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub exists: bool,
    pub records: Vec<Record>,
    /// The zone's SOA record, which tells the client how long to cache that there is nothing.
    pub zone: Option<Record>,
    pub ttl: Duration,
}

impl Found {
    /// Takes only what the question asked for out of an answer. `None`: the resolver failed.
    pub fn in_answer(name: &Name, kind: RecordType, message: &Message) -> Option<Self> {
        let code = message.metadata.response_code;
        let exists = code == ResponseCode::NoError;
        if !exists && code != ResponseCode::NXDomain {
            return None;
        }
        let records = chain(name, kind, &message.answers);
        if exists && records.iter().any(|record| record.record_type() == kind) {
            let shortest = records.iter().map(|record| record.ttl).min().unwrap_or(0);
            let ttl = Duration::from_secs(shortest.into()).min(MAX_TTL);
            return Some(Self { exists, records, zone: None, ttl });
        }
        let zone = message.authorities.iter().find_map(|record| {
            let RData::SOA(soa) = &record.data else { return None };
            Some((record.clone(), record.ttl.min(soa.minimum)))
        });
        let ttl = zone.as_ref().map_or(DEFAULT_NEGATIVE_TTL, |(_, ttl)| Duration::from_secs((*ttl).into()));
        let zone = zone.map(|(record, _)| record);
        Some(Self { exists, records, zone, ttl: ttl.min(MAX_NEGATIVE_TTL) })
    }

    pub fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.records.iter().filter_map(address)
    }
}

pub(super) fn address(record: &Record) -> Option<Ipv4Addr> {
    let RData::A(address) = &record.data else { return None };
    Some(address.0)
}

fn chain(name: &Name, kind: RecordType, answers: &[Record]) -> Vec<Record> {
    let of = |owner: &Name, kind: RecordType| {
        let owner = owner.clone();
        answers.iter().filter(move |record| {
            record.name == owner && record.record_type() == kind && record.dns_class == DNSClass::IN
        })
    };
    let mut records: Vec<Record> = Vec::new();
    let mut owner = name.clone();
    for _ in 0..MAX_CHAIN {
        let wanted: Vec<Record> = of(&owner, kind).take(MAX_RECORDS).cloned().collect();
        if !wanted.is_empty() {
            records.extend(wanted);
            return records;
        }
        let Some(link) = of(&owner, RecordType::CNAME).next() else { return records };
        let RData::CNAME(next) = &link.data else { return records };
        owner = next.0.clone();
        records.push(link.clone());
    }
    // The chain is too long, or a circle: it has no answer.
    Vec::new()
}
