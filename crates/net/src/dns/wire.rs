//! Parses the queries of guests and encodes their answers.

use agentiso_core::network::DomainName;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{DNSClass, Name, Record, RecordType};

use crate::policy::Transport;

/// Longest query. No real one needs more.
pub const MAX_QUERY: usize = 4096;

const HEADER: usize = 12;

/// Longest answer over UDP without EDNS (RFC 1035).
const PLAIN_UDP: u16 = 512;

/// Longest answer over UDP with EDNS, even if the guest accepts more: its link carries this in one packet.
const MAX_UDP: u16 = 4096;

const MAX_TCP: usize = u16::MAX as usize;

/// The code of the option that explains an answer (RFC 8914).
const EXPLANATION: u16 = 15;

/// Bytes of an explanation that are sent.
const MAX_EXPLANATION: usize = 400;

/// One question that can be answered.
#[derive(Clone, Debug)]
pub struct Question {
    id: u16,
    recursion_desired: bool,
    /// As the query spells it, upper and lower case included.
    pub name: Name,
    pub kind: RecordType,
    /// Longest answer over UDP that the guest accepts; `None` without EDNS.
    payload: Option<u16>,
}

/// A query that gets no real answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unanswerable {
    /// Nothing is sent: it is no query, and an answer could make two programs answer each other for ever.
    Ignored,
    /// These bytes are sent.
    Fault(Vec<u8>),
}

impl Question {
    pub fn read(bytes: &[u8]) -> Result<Self, Unanswerable> {
        let Some(header) = bytes.first_chunk::<HEADER>() else { return Err(Unanswerable::Ignored) };
        let id = u16::from_be_bytes([header[0], header[1]]);
        let op_code = OpCode::from_u8((header[2] >> 3) & 0xf);
        if header[2] & 0x80 != 0 {
            return Err(Unanswerable::Ignored);
        }
        let fault = |code| Err(Unanswerable::Fault(fault(id, op_code, code)));
        if op_code != OpCode::Query {
            return fault(ResponseCode::NotImp);
        }
        if bytes.len() > MAX_QUERY {
            return fault(ResponseCode::FormErr);
        }
        let Ok(message) = Message::from_vec(bytes) else { return fault(ResponseCode::FormErr) };
        let [query] = &message.queries[..] else { return fault(ResponseCode::FormErr) };
        if message.version() != 0 {
            return fault(ResponseCode::BADVERS);
        }
        if query.query_class() != DNSClass::IN {
            return fault(ResponseCode::NotImp);
        }
        Ok(Self {
            id,
            recursion_desired: message.metadata.recursion_desired,
            name: query.name().clone(),
            kind: query.query_type(),
            payload: message.edns.as_ref().map(|edns| edns.max_payload().clamp(PLAIN_UDP, MAX_UDP)),
        })
    }

    /// The name in the form that rules compare.
    pub fn domain(&self) -> Result<DomainName, String> {
        domain(&self.name)
    }
}

/// Converts a name from the wire to the form that rules compare. On the wire a label may hold any byte, even a dot.
pub fn domain(name: &Name) -> Result<DomainName, String> {
    let mut text = String::new();
    for label in name {
        if !text.is_empty() {
            text.push('.');
        }
        match std::str::from_utf8(label) {
            Ok(label) if !label.contains('.') => text.push_str(label),
            Ok(_) | Err(_) => return Err(format!("{} is not a host name", name.to_ascii())),
        }
    }
    DomainName::from_wire(&text)
}

/// Converts back to the form on the wire. Label by label, because the text form of names has its own rules.
pub(super) fn name(domain: &DomainName) -> Option<Name> {
    Name::from_labels(domain.as_str().split('.').map(str::as_bytes)).ok()
}

/// The reason that an answer carries beside its records: a code of RFC 8914 and text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub code: ExplanationCode,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExplanationCode {
    Blocked,
    Filtered,
    NotReached,
}

impl ExplanationCode {
    fn number(self) -> u16 {
        match self {
            Self::Blocked => 15,
            Self::Filtered => 17,
            Self::NotReached => 22,
        }
    }
}

/// The answer to a question.
#[derive(Clone, Debug)]
pub struct Answer {
    pub code: ResponseCode,
    pub answers: Vec<Record>,
    pub authorities: Vec<Record>,
    pub explanation: Option<Explanation>,
}

impl Answer {
    pub fn empty(code: ResponseCode) -> Self {
        Self { code, answers: Vec::new(), authorities: Vec::new(), explanation: None }
    }

    pub fn explained(mut self, code: ExplanationCode, text: impl Into<String>) -> Self {
        self.explanation = Some(Explanation { code, text: text.into() });
        self
    }

    /// The encoded answer. If it is too long for the transport, only the question is sent, marked as truncated.
    pub fn write(self, question: &Question, transport: Transport) -> Vec<u8> {
        let mut message = Message::response(question.id, OpCode::Query);
        message.metadata.response_code = self.code;
        message.metadata.recursion_desired = question.recursion_desired;
        message.metadata.recursion_available = true;
        message.add_query(Query::query(question.name.clone(), question.kind));
        message.answers = self.answers;
        message.authorities = self.authorities;
        if question.payload.is_some() {
            let mut edns = Edns::new();
            edns.set_max_payload(MAX_UDP);
            if let Some(explanation) = &self.explanation {
                edns.options_mut().insert(explanation.option());
            }
            message.set_edns(edns);
        }
        let limit = match transport {
            Transport::Tcp => MAX_TCP,
            Transport::Udp | Transport::Icmp => usize::from(question.payload.unwrap_or(PLAIN_UDP)),
        };
        let whole = message.to_vec().ok().filter(|bytes| bytes.len() <= limit);
        whole.or_else(|| message.truncate().to_vec().ok()).unwrap_or_else(|| {
            // Reached only if the question cannot be encoded again.
            fault(question.id, OpCode::Query, ResponseCode::ServFail)
        })
    }
}

impl Explanation {
    fn option(&self) -> EdnsOption {
        let mut content = self.code.number().to_be_bytes().to_vec();
        let end = self.text.floor_char_boundary(MAX_EXPLANATION);
        content.extend_from_slice(&self.text.as_bytes()[..end]);
        EdnsOption::Unknown(EXPLANATION, content)
    }
}

/// An answer with only a header, written by hand so that it cannot fail.
fn fault(id: u16, op_code: OpCode, code: ResponseCode) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes[..2].copy_from_slice(&id.to_be_bytes());
    bytes[2] = 0x80 | (u8::from(op_code) & 0xf) << 3;
    // BADVERS does not fit into a header; FORMERR means the same in an answer without EDNS.
    bytes[3] = if code == ResponseCode::BADVERS { 1 } else { code.low() };
    bytes
}

/// A question for an upstream resolver, with a random id.
pub fn ask(name: &Name, kind: RecordType, payload: Option<u16>) -> Message {
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name.clone(), kind));
    if let Some(payload) = payload {
        let mut edns = Edns::new();
        edns.set_max_payload(payload);
        message.set_edns(edns);
    }
    message
}

/// Parses the bytes as an answer to this question; `None` if they are not one.
pub fn read_reply(asked: &Message, bytes: &[u8]) -> Option<Message> {
    let id = bytes.first_chunk::<2>().map(|id| u16::from_be_bytes(*id))?;
    if id != asked.metadata.id {
        return None;
    }
    let message = Message::from_vec(bytes).ok()?;
    let is_reply = message.metadata.message_type == MessageType::Response;
    (is_reply && message.queries == asked.queries).then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn query(labels: &[Vec<u8>], payload: Option<u16>) -> Message {
        let name = Name::from_labels(labels.iter().map(Vec::as_slice)).unwrap();
        ask(&name, RecordType::A, payload)
    }

    proptest! {
        #[test]
        fn question_reader_survives_any_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..80), plain: bool) {
            if plain && bytes.len() > 5 {
                bytes[2..6].copy_from_slice(&[1, 0, 0, 1]);
            }
            if let Err(Unanswerable::Fault(fault)) = Question::read(&bytes) {
                prop_assert_eq!(&fault[..2], &bytes[..2]);
                prop_assert!(fault.len() == HEADER && fault[2] & 0x80 != 0 && fault[3] != 0);
            }
        }

        #[test]
        fn answer_fits_its_transport_limit(
            labels in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 1..5),
            payload in prop::option::of(any::<u16>()), count in 0_usize..400, text in ".{0,500}",
        ) {
            let asked = query(&labels, payload);
            let question = Question::read(&asked.to_vec().unwrap()).unwrap();
            let record = Record::update0(question.name.clone(), 1, RecordType::A);
            let mut answer = Answer::empty(ResponseCode::Refused).explained(ExplanationCode::Blocked, text);
            answer.answers = vec![record; count];
            let limit = usize::from(payload.unwrap_or(0).clamp(512, 4096));
            for (transport, limit) in [(Transport::Udp, limit), (Transport::Tcp, MAX_TCP)] {
                let bytes = answer.clone().write(&question, transport);
                prop_assert!(bytes.len() <= limit, "{} of {limit}", bytes.len());
                prop_assert_eq!(&bytes[..2], &asked.metadata.id.to_be_bytes());
            }
        }

        #[test]
        fn wire_names_convert_losslessly_or_fail(
            labels in prop::collection::vec(prop::collection::vec(prop_oneof!["[a-zA-Z0-9.-]", ".*"], 1..3), 1..4),
        ) {
            let labels: Vec<Vec<u8>> = labels.iter().map(|parts| parts.concat().into_bytes()).collect();
            prop_assume!(labels.iter().all(|label| (1..=63).contains(&label.len())));
            let Ok(name) = Name::from_labels(labels.iter().map(Vec::as_slice)) else { return Ok(()) };
            if let Ok(domain) = domain(&name) {
                prop_assert_eq!(domain.as_str().split('.').count(), labels.len());
                prop_assert_eq!(super::name(&domain), Some(name));
            }
        }
    }
}
