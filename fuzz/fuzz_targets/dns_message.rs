//! A guest's DNS query and a resolver's answer: the reply to the guest must always be a valid message within its size
//! limit.
//!
//! The first byte of the input is the length of the query; the answer follows it.

#![no_main]

use agentiso_net::dns::Found;
use agentiso_net::dns::wire::{self, Answer, ExplanationCode, Question, Unanswerable};
use agentiso_net::policy::Transport;
use hickory_proto::op::{Message, ResponseCode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((len, rest)) = data.split_first() else { return };
    let (query, reply) = rest.split_at(usize::from(*len).min(rest.len()));
    let question = match Question::read(query) {
        Ok(question) => question,
        Err(Unanswerable::Ignored) => return,
        Err(Unanswerable::Fault(bytes)) => {
            let fault = Message::from_vec(&bytes).expect("a fault is a message");
            assert_ne!(fault.metadata.response_code, ResponseCode::NoError);
            return;
        }
    };
    let refused = Answer::empty(ResponseCode::Refused).explained(ExplanationCode::Blocked, "no");
    let refused =
        Message::from_vec(&refused.write(&question, Transport::Udp)).expect("a refusal is a message");
    assert_eq!(refused.metadata.response_code, ResponseCode::Refused);

    // The answer gets the id of the question: guessing it is not the purpose here.
    let asked = wire::ask(&question.name, question.kind, None);
    let mut reply = reply.to_vec();
    if let Some(id) = reply.first_chunk_mut::<2>() {
        *id = asked.metadata.id.to_be_bytes();
    }
    let Some(reply) = wire::read_reply(&asked, &reply) else { return };
    let Some(found) = Found::in_answer(&question.name, question.kind, &reply) else { return };
    let addresses = found.addresses().count();
    let mut answer = Answer::empty(ResponseCode::NoError);
    answer.answers = found.records;
    let datagram = answer.clone().write(&question, Transport::Udp);
    assert!(datagram.len() <= 4096);
    Message::from_vec(&datagram).expect("an answer is a message");
    let whole = Message::from_vec(&answer.write(&question, Transport::Tcp)).expect("an answer is a message");
    assert!(whole.metadata.truncation || whole.answers.len() >= addresses);
});
