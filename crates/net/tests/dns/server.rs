//! A small DNS server on 127.0.0.1 that answers as a test scripts it, over UDP and TCP, and counts.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::{A, CNAME, SOA, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;

/// The server's behaviour for one name.
#[derive(Clone, Default)]
pub(crate) struct Script {
    pub(crate) code: ResponseCode,
    pub(crate) answers: Vec<Record>,
    pub(crate) authorities: Vec<Record>,
    pub(crate) delay: Duration,
    /// Over UDP, answer only with the mark of a truncated answer.
    pub(crate) truncated: bool,
    /// Send forged datagrams before the answer.
    pub(crate) forged: bool,
    pub(crate) silent: bool,
    pub(crate) no_edns: bool,
}

struct Shared {
    scripts: Mutex<HashMap<Name, Script>>,
    udp: AtomicUsize,
    tcp: AtomicUsize,
    ports: Mutex<Vec<u16>>,
    ids: Mutex<Vec<u16>>,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        // Both use the same port: try until one is free for both.
        let (tcp, udp) = loop {
            let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
            if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
                break (tcp, udp);
            }
        };
        let address = tcp.local_addr().unwrap();
        let shared = Arc::new(Shared {
            scripts: Mutex::default(),
            udp: AtomicUsize::new(0),
            tcp: AtomicUsize::new(0),
            ports: Mutex::default(),
            ids: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_udp(Arc::new(udp), Arc::clone(&shared)));
        tasks.spawn(serve_tcp(tcp, Arc::clone(&shared)));
        Self { address, shared, _tasks: tasks }
    }

    pub(crate) fn on(&self, name: &str, script: Script) {
        self.shared.scripts.lock().unwrap().insert(self::name(name), script);
    }

    pub(crate) fn asked(&self) -> usize {
        self.shared.udp.load(Ordering::SeqCst)
    }

    pub(crate) fn asked_over_tcp(&self) -> usize {
        self.shared.tcp.load(Ordering::SeqCst)
    }

    pub(crate) fn ports(&self) -> Vec<u16> {
        self.shared.ports.lock().unwrap().clone()
    }

    pub(crate) fn ids(&self) -> Vec<u16> {
        self.shared.ids.lock().unwrap().clone()
    }
}

async fn serve_udp(socket: Arc<UdpSocket>, shared: Arc<Shared>) {
    let mut tasks = JoinSet::new();
    let mut buffer = [0; 4096];
    while let Ok((len, from)) = socket.recv_from(&mut buffer).await {
        shared.udp.fetch_add(1, Ordering::SeqCst);
        shared.ports.lock().unwrap().push(from.port());
        let query = Message::from_vec(&buffer[..len]).unwrap();
        shared.ids.lock().unwrap().push(query.metadata.id);
        let (socket, shared) = (Arc::clone(&socket), Arc::clone(&shared));
        tasks.spawn(async move {
            let (script, mut reply) = respond(&shared, &query);
            if script.silent {
                return;
            }
            tokio::time::sleep(script.delay).await;
            if script.forged {
                for forged in forgeries(&reply) {
                    socket.send_to(&forged, from).await.unwrap();
                }
            }
            if script.no_edns && query.edns.is_some() {
                reply = Message::error_msg(query.metadata.id, query.metadata.op_code, ResponseCode::FormErr);
                reply.add_queries(query.queries);
            }
            if script.truncated {
                reply = reply.truncate();
            }
            socket.send_to(&reply.to_vec().unwrap(), from).await.unwrap();
        });
    }
}

async fn serve_tcp(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        shared.tcp.fetch_add(1, Ordering::SeqCst);
        let mut query = vec![0; usize::from(stream.read_u16().await.unwrap())];
        stream.read_exact(&mut query).await.unwrap();
        let (_, reply) = respond(&shared, &Message::from_vec(&query).unwrap());
        let bytes = reply.to_vec().unwrap();
        stream.write_u16(u16::try_from(bytes.len()).unwrap()).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
    }
}

fn respond(shared: &Shared, query: &Message) -> (Script, Message) {
    let asked = &query.queries[0];
    let script = shared.scripts.lock().unwrap().get(asked.name()).cloned();
    let script = script.unwrap_or(Script { code: ResponseCode::NXDomain, ..Script::default() });
    let mut reply = Message::response(query.metadata.id, query.metadata.op_code);
    reply.metadata.response_code = script.code;
    reply.add_query(asked.clone());
    reply.insert_answers(script.answers.clone());
    reply.insert_authorities(script.authorities.clone());
    (script, reply)
}

/// Forged answers with another id, with another question, as a query, and noise, with an address of the attacker's.
fn forgeries(reply: &Message) -> Vec<Vec<u8>> {
    let mut evil = reply.clone();
    evil.answers = vec![a(&reply.queries[0].name().to_ascii(), 60, [6, 6, 6, 6])];
    let mut other_id = evil.clone();
    other_id.metadata.id ^= 1;
    let mut other_question = evil.clone();
    other_question.queries[0].set_name(name("evil.example."));
    let mut query = evil;
    query.metadata.message_type = MessageType::Query;
    let mut forged: Vec<Vec<u8>> =
        [other_id, other_question, query].iter().map(|message| message.to_vec().unwrap()).collect();
    forged.push(vec![0xff; 40]);
    forged.push(Vec::new());
    forged
}

pub(crate) fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

pub(crate) fn a(owner: &str, ttl: u32, address: [u8; 4]) -> Record {
    let [a, b, c, d] = address;
    Record::from_rdata(name(owner), ttl, RData::A(A::new(a, b, c, d)))
}

pub(crate) fn cname(owner: &str, ttl: u32, target: &str) -> Record {
    Record::from_rdata(name(owner), ttl, RData::CNAME(CNAME(name(target))))
}

pub(crate) fn txt(owner: &str, ttl: u32, text: &str) -> Record {
    Record::from_rdata(name(owner), ttl, RData::TXT(TXT::new(vec![text.to_owned()])))
}

pub(crate) fn soa(owner: &str, ttl: u32, minimum: u32) -> Record {
    let soa = SOA::new(name("ns.example."), name("admin.example."), 1, 1, 1, 1, minimum);
    Record::from_rdata(name(owner), ttl, RData::SOA(soa))
}

pub(crate) fn found(answers: Vec<Record>) -> Script {
    Script { answers, ..Script::default() }
}

pub(crate) fn kinds(message: &Message) -> Vec<RecordType> {
    message.answers.iter().map(Record::record_type).collect()
}
