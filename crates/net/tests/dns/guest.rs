//! A test guest with a guard and a resolver, which asks questions in one line.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use agentiso_net::dns::{Neighbours, RefusedName, Resolver};
use agentiso_net::policy::{Guard, HostAddresses, Transport};
use hickory_proto::op::{Edns, Message, Query};
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use hickory_proto::rr::{RData, RecordType};

use crate::server::name;

#[derive(Default)]
pub(crate) struct Others(pub(crate) HashMap<String, Ipv4Addr>);

impl Neighbours for Others {
    fn address_of(&self, host: &str) -> Option<Ipv4Addr> {
        self.0.get(host).copied()
    }
}

pub(crate) struct Guest {
    pub(crate) guard: Guard,
    pub(crate) resolver: Resolver,
    pub(crate) others: Others,
}

/// The answer to a question.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) message: Message,
    pub(crate) refused: Option<RefusedName>,
}

impl Guest {
    pub(crate) fn new(policy: serde_json::Value, upstreams: Vec<SocketAddr>) -> Self {
        let policy = serde_json::from_value(policy).unwrap();
        let host = HostAddresses::fixed([Ipv4Addr::new(198, 51, 100, 1)]);
        let guard = Guard::new(policy, host, Ipv4Addr::new(10, 42, 0, 1));
        Self { guard, resolver: Resolver::new(upstreams), others: Others::default() }
    }

    pub(crate) async fn ask(&self, text: &str, kind: RecordType) -> Answered {
        self.ask_over(text, kind, Transport::Udp).await
    }

    pub(crate) async fn ask_over(&self, text: &str, kind: RecordType, transport: Transport) -> Answered {
        let mut query = Message::query();
        query.metadata.recursion_desired = true;
        query.add_query(Query::query(name(text), kind));
        query.set_edns(Edns::new());
        let id = query.metadata.id;
        let heard = self.send(&query.to_vec().unwrap(), transport).await.unwrap();
        assert_eq!(heard.message.metadata.id, id);
        assert!(heard.message.queries[0].name().eq_case(&name(text)), "the question comes back as it was");
        heard
    }

    pub(crate) async fn send(&self, query: &[u8], transport: Transport) -> Option<Answered> {
        let reply = self.resolver.answer(&self.guard, &self.others, query, transport).await?;
        Some(Answered { message: Message::from_vec(&reply.bytes).unwrap(), refused: reply.refused })
    }

    pub(crate) fn may_open(&self, address: [u8; 4], port: u16) -> bool {
        self.guard.judge(Transport::Tcp, SocketAddrV4::new(address.into(), port)).is_allowed()
    }
}

impl Answered {
    pub(crate) fn addresses(&self) -> Vec<[u8; 4]> {
        let address = |record: &hickory_proto::rr::Record| {
            let RData::A(address) = &record.data else { return None };
            Some(address.0.octets())
        };
        self.message.answers.iter().filter_map(address).collect()
    }

    /// The explanation's code and text.
    pub(crate) fn explanation(&self) -> Option<(u16, String)> {
        let option = self.message.edns.as_ref()?.option(EdnsCode::Unknown(15))?;
        let EdnsOption::Unknown(_, content) = option else { return None };
        let (code, text) = content.split_first_chunk::<2>()?;
        Some((u16::from_be_bytes(*code), String::from_utf8(text.to_vec()).unwrap()))
    }
}
