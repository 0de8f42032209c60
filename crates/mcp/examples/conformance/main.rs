//! A server for the conformance suite of MCP, with the tools, prompts and resources that its scenarios ask for.
//! Everything else is the code that clients of agentiso use: HTTP, transport, eras, progress, cancellation.
//! `tests/clients/conformance.py` runs it.
//!
//! ```text
//! conformance [NAME...]    further names under which it may be addressed
//! ```

mod content;
mod offer;

use std::error::Error;
use std::sync::Arc;

use agentiso_http::{Backend, Front, Settings, Token, TokenHash, listen};
use agentiso_mcp::serve_offer;
use futures::future::BoxFuture;
use tokio::net::{TcpListener, UnixStream};
use tokio_util::sync::CancellationToken;

#[derive(Debug)]
struct Fixture(TokenHash);

impl Backend for Fixture {
    fn knows(&self, token: &str) -> bool {
        self.0.is_of(token)
    }

    fn open(&self) -> BoxFuture<'_, Result<UnixStream, String>> {
        Box::pin(async {
            let (ours, theirs) = UnixStream::pair().map_err(|error| error.to_string())?;
            tokio::spawn(serve_offer(offer::Suite, theirs));
            Ok(ours)
        })
    }
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the process that started it has to learn address and token")]
async fn main() -> Result<(), Box<dyn Error>> {
    let token = Token::random("")?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("MCP at http://{}/mcp", listener.local_addr()?);
    println!("token {}", token.expose());
    let front = Arc::new(Front::new(Fixture(token.hash()), Settings::CLIENTS));
    // It serves until the process is ended.
    listen(front, listener, std::env::args().skip(1).collect(), CancellationToken::new()).await;
    Ok(())
}
