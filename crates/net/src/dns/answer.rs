//! Answers one query of one guest, under its policy.

use std::net::Ipv4Addr;
use std::time::Duration;

use agentiso_core::network::DomainName;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record, RecordType};
use tokio::time::Instant;

use super::cache::Outcome;
use super::found::{Found, address};
use super::resolver::Resolver;
use super::wire::{Answer, ExplanationCode, Question, Unanswerable};
use super::{Neighbours, RefusedName, Reply};
use crate::policy::{Guard, Refusal, RefusalCode, Transport, Verdict};

/// Short, because VMs and their addresses come and go.
const NEIGHBOUR_TTL: u32 = 5;

/// VMs are found by their host name alone, or below this domain.
const NEIGHBOUR_DOMAIN: &str = ".agentiso";

/// An answer that is not encoded yet, and the refusal if it is one.
type Judged = (Answer, Option<Refusal>);

impl Resolver {
    /// Answers a query. `None`: it gets no answer.
    pub async fn answer(
        &self,
        guard: &Guard,
        neighbours: &dyn Neighbours,
        query: &[u8],
        transport: Transport,
    ) -> Option<Reply> {
        let question = match Question::read(query) {
            Ok(question) => question,
            Err(Unanswerable::Ignored) => return None,
            Err(Unanswerable::Fault(bytes)) => return Some(Reply { bytes, refused: None }),
        };
        let (answer, refusal) = self.judge(guard, neighbours, &question).await;
        let refused = refusal.map(|refusal| RefusedName { name: readable(&question), refusal });
        Some(Reply { bytes: answer.write(&question, transport), refused })
    }

    async fn judge(&self, guard: &Guard, neighbours: &dyn Neighbours, question: &Question) -> Judged {
        let domain = match question.domain() {
            Ok(domain) => domain,
            Err(why) => return refused(Refusal::new(RefusalCode::NameNotAllowed, why)),
        };
        if let Some(address) = neighbour(neighbours, &domain) {
            return (of_neighbour(question, address), None);
        }
        if let Verdict::Refused(refusal) = guard.judge_name(&domain) {
            return refused(refusal);
        }
        if matches!(question.kind, RecordType::AAAA | RecordType::HTTPS | RecordType::SVCB) {
            return (Answer::empty(ResponseCode::NoError), None);
        }
        if is_meta(question.kind) {
            return (Answer::empty(ResponseCode::NotImp), None);
        }
        if let Some(refusal) = reverse_of_hidden(guard, question) {
            let answer = Answer::empty(ResponseCode::NXDomain);
            return (answer.explained(ExplanationCode::Filtered, refusal.message.as_str()), Some(refusal));
        }
        let held = self.look_up(guard, &domain, question.kind).await;
        match &*held.outcome {
            Outcome::Found(found) => {
                of_found(guard, question, &domain, found, held.remaining(Instant::now()))
            }
            Outcome::Failed(why) => {
                let text = format!("{domain} could not be looked up: {why}");
                (Answer::empty(ResponseCode::ServFail).explained(ExplanationCode::NotReached, text), None)
            }
        }
    }
}

fn refused(refusal: Refusal) -> Judged {
    let answer = Answer::empty(ResponseCode::Refused);
    (answer.explained(ExplanationCode::Blocked, refusal.message.as_str()), Some(refusal))
}

/// The name for the log, whatever bytes it contains.
fn readable(question: &Question) -> String {
    question.domain().map_or_else(|_| question.name.to_ascii(), |domain| domain.to_string())
}

fn neighbour(neighbours: &dyn Neighbours, domain: &DomainName) -> Option<Ipv4Addr> {
    let host = domain.as_str().strip_suffix(NEIGHBOUR_DOMAIN).unwrap_or(domain.as_str());
    if host.contains('.') { None } else { neighbours.address_of(host) }
}

fn of_neighbour(question: &Question, address: Ipv4Addr) -> Answer {
    let mut answer = Answer::empty(ResponseCode::NoError);
    if question.kind == RecordType::A {
        answer.answers.push(Record::from_rdata(question.name.clone(), NEIGHBOUR_TTL, RData::A(A(address))));
    }
    answer
}

/// Types that ask for more than one kind of record, or for none: transfers and transaction signatures.
fn is_meta(kind: RecordType) -> bool {
    kind == RecordType::OPT || (128..=255).contains(&u16::from(kind))
}

/// The refusal of a reverse lookup for an address that is hidden from the guest, such as those of the host's own
/// network.
fn reverse_of_hidden(guard: &Guard, question: &Question) -> Option<Refusal> {
    let network = question.name.parse_arpa_name().ok()?;
    match network.addr() {
        std::net::IpAddr::V4(address) => guard.address_refusal(address),
        std::net::IpAddr::V6(_) => None,
    }
}

/// The answer from found records, without the addresses that the guest may not reach. The others become reachable by
/// the name in the question, however long the chain of names was.
fn of_found(
    guard: &Guard,
    question: &Question,
    domain: &DomainName,
    found: &Found,
    remaining: Duration,
) -> Judged {
    let code = if found.exists { ResponseCode::NoError } else { ResponseCode::NXDomain };
    let mut answer = Answer::empty(code);
    let ttl = u32::try_from(remaining.as_secs()).unwrap_or(u32::MAX);
    let mut hidden = None;
    for record in &found.records {
        if let Some(address) = address(record) {
            if let Some(refusal) = guard.address_refusal(address) {
                hidden.get_or_insert(refusal);
                continue;
            }
            guard.bind(domain, address, remaining);
        }
        answer.answers.push(presented(record, question, ttl));
    }
    answer.authorities.extend(found.zone.iter().map(|record| presented(record, question, ttl)));
    let nothing_left = !answer.answers.iter().any(|record| address(record).is_some());
    match hidden.filter(|_| nothing_left) {
        None => (answer, None),
        Some(refusal) => {
            let message = format!("{domain} resolves to an address that is not allowed: {refusal}");
            let refusal = Refusal::new(refusal.code, message);
            let empty = Answer::empty(ResponseCode::NoError);
            (empty.explained(ExplanationCode::Filtered, refusal.message.as_str()), Some(refusal))
        }
    }
}

/// The record for the guest: with the time to live of the whole answer, and with the name as the question spells it.
fn presented(record: &Record, question: &Question, ttl: u32) -> Record {
    let mut record = record.clone();
    record.ttl = ttl;
    if record.name == question.name {
        record.name = question.name.clone();
    }
    record
}
