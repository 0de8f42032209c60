//! What an upstream resolver's answer comes to: the records that answer the question, and for how long.

use std::net::Ipv4Addr;
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

/// Names in a row that lead from one to the next. Browsers and resolvers give up at about the same.
const MAX_CHAIN: usize = 16;

/// Records of one answer. A name with more addresses is not reached any better by them.
const MAX_RECORDS: usize = 256;

/// However long an answer claims to hold: a policy's author who moves a service wants to see it moved.
pub(super) const MAX_TTL: Duration = Duration::from_secs(300);

/// How long it is believed that a name does not exist.
pub(super) const MAX_NEGATIVE_TTL: Duration = Duration::from_secs(60);

/// The same, where the answer does not say.
const DEFAULT_NEGATIVE_TTL: Duration = Duration::from_secs(5);

/// The useful part of an answer: the chain of names from the question's to the last, and that one's records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub exists: bool,
    pub records: Vec<Record>,
    /// The zone's own record, which tells the asker how long to believe that there is nothing.
    pub zone: Option<Record>,
    pub ttl: Duration,
}

impl Found {
    /// Takes from an answer what the question asked for, and nothing else that is in it. `None`: the answer is a
    /// failure of the resolver.
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
    // Longer than anybody follows, or a circle: there is no answer at its end.
    Vec::new()
}
