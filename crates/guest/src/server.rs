//! Serves the host's connections, one after the other, as long as the transport lasts.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentiso_protocol::io::{AcceptError, Acceptor, LinkStream};
use agentiso_protocol::limits;
use agentiso_protocol::schema::v1::guest_server::GuestServer;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::runtime;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower::Service as _;

use crate::args::InheritedFds;
use crate::console;
use crate::port::{self, Port};
use crate::service::Agent;
use crate::system::{NoSystem, System, Vm, wait_for};
use crate::transport::Transport;

/// Threads for calls that block: one for each file call, a few for changes of the guest.
const MAX_THREADS: usize = limits::MAX_CONCURRENT_FILE_CALLS + 8;

/// Idle threads end after this time, because their stacks take memory in every workspace. They do not end at once, so
/// that a restored VM still has one.
const THREAD_KEEP_ALIVE: Duration = Duration::from_secs(600);

/// The time that the port gets to appear.
const PORT_DEADLINE: Duration = Duration::from_secs(60);

/// The time that the host gets to hang up after it was told that the VM is ready to power off.
const HANG_UP_DEADLINE: Duration = Duration::from_secs(1);

/// The most streams that the host has reset and whose work has not ended yet. Cancelled commands come in bursts.
const MAX_RESET_STREAMS: usize = 1024;

/// The reason for which serving ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The transport failed.
    #[error("the transport failed")]
    Transport(#[source] io::Error),
    /// The link failed.
    #[error(transparent)]
    Link(AcceptError),
}

/// Serves a transport until the host can never connect again.
pub async fn serve<T: Transport>(transport: T, system: Arc<dyn System>) -> Result<(), ServeError> {
    let agent = Arc::new(Agent::new(system));
    let mut acceptor = Acceptor::new(transport);
    loop {
        match acceptor.accept().await {
            Ok(link) => {
                // Before anything else: until then, restored VMs of one template draw the same random numbers.
                agent.system().stir(link.nonce());
                serve_connection(link, &agent).await;
            }
            Err(AcceptError::HungUp) => {
                let transport = acceptor.stream().await.map_err(ServeError::Link)?;
                if !transport.wait_peer().await.map_err(ServeError::Transport)? {
                    return Ok(());
                }
            }
            Err(error @ (AcceptError::Stream(_) | AcceptError::Gone)) => return Err(ServeError::Link(error)),
        }
        if agent.is_shut_down() {
            agent.system().power_off();
        }
    }
}

/// The tasks of one connection; they end with it.
#[derive(Clone, Debug, Default)]
struct ConnectionTasks(Arc<Mutex<JoinSet<()>>>);

impl<F> hyper::rt::Executor<F> for ConnectionTasks
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, task: F) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            task.await;
        });
    }
}

async fn serve_connection<T: Transport>(link: LinkStream<T>, agent: &Arc<Agent>) {
    let tasks = ConnectionTasks::default();
    let server = GuestServer::from_arc(Arc::clone(agent))
        .max_decoding_message_size(limits::MAX_MESSAGE_BYTES)
        .max_encoding_message_size(limits::MAX_MESSAGE_BYTES);
    let service = service_fn(move |request| {
        let mut server = server.clone();
        async move { Ok::<_, Infallible>(server.call(request).await.unwrap_or_else(|never| match never {})) }
    });
    let connection = http2::Builder::new(tasks.clone())
        .initial_stream_window_size(limits::STREAM_WINDOW_BYTES)
        .initial_connection_window_size(limits::CONNECTION_WINDOW_BYTES)
        .max_frame_size(limits::MAX_HTTP2_FRAME_BYTES)
        .max_header_list_size(limits::MAX_HEADER_LIST_BYTES)
        .max_concurrent_streams(limits::MAX_CONCURRENT_STREAMS)
        .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
        .max_local_error_reset_streams(MAX_RESET_STREAMS)
        .max_send_buf_size(limits::MAX_SEND_BUFFER_BYTES)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(link), service);
    tokio::pin!(connection);
    // The result is ignored: most connections end with an error, because the host hangs up or opens another one.
    tokio::select! {
        // The host normally ends the connection, so its side comes first.
        biased;
        _result = connection.as_mut() => {}
        () = overdue(agent) => {}
    }
    let mut left = std::mem::take(&mut *tasks.0.lock().unwrap_or_else(PoisonError::into_inner));
    left.shutdown().await;
}

/// Resolves when the VM is ready to power off but the host has not hung up in time.
async fn overdue(agent: &Agent) {
    agent.shut_down().await;
    sleep(HANG_UP_DEADLINE).await;
}

/// Runs the agent in a VM, on its virtio-serial port.
pub fn run_agent(fds: InheritedFds) -> Result<(), Box<dyn Error>> {
    bound_heap();
    let system = Arc::new(Vm::new(fds)?);
    let runtime = build_runtime()?;
    runtime.block_on(async {
        let device = wait_for(PORT_DEADLINE, port::find)?.ok_or("the VM has no port for its agent")?;
        let port = Port::open(&device)?;
        console::log(format_args!("{} serves {}", env!("CARGO_PKG_VERSION"), device.display()));
        serve(port, system).await?;
        Ok(())
    })
}

/// Runs the agent on a socket, outside a VM.
pub fn run_on_socket(fd: i32) -> Result<(), Box<dyn Error>> {
    // SAFETY: the parent process passes ownership of the descriptor with its number; it is taken once.
    let socket = StdUnixStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
    socket.set_nonblocking(true)?;
    build_runtime()?.block_on(async {
        serve(UnixStream::from_std(socket)?, Arc::new(NoSystem)).await?;
        Ok(())
    })
}

/// A runtime with one thread for all async work; further threads exist only for blocking work.
fn build_runtime() -> io::Result<runtime::Runtime> {
    runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(MAX_THREADS)
        .thread_keep_alive(THREAD_KEEP_ALIVE)
        .build()
}

/// Makes the C library give large buffers back to the kernel as soon as they are free.
fn bound_heap() {
    // SAFETY: plain settings, made before any other thread runs.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 256 * 1024);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 512 * 1024);
    }
}
