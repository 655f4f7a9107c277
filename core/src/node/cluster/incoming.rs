//! The link from a peer: who may open one, and the frames that come over it.
//!
//! Nothing that comes in makes the node panic, allocate without a check or believe another node than
//! the one the link belongs to; what cannot be read ends the link.

use super::{Incoming, Node, Shared, Slot};
use crate::cluster::{Event, Greeting, GreetingError, Members, Unit, split_frame};
use crate::engine::ConnectionId;
use crate::node::answer::Flow;
use crate::node::log::now_and_then;
use crate::node::serve::panic_text;
use crate::node::state::now;
use crate::node::stream::Stream;
use crate::protocol::{Code, Reply};
use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The place of a link among those from one peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LinkId {
    slot: Slot,
    number: u64,
}

/// How much is read at once.
const READ_BYTES: usize = 256 << 10;

impl Node {
    /// A connection wants to be a link.
    #[cold]
    pub(crate) fn admit_link(&mut self, id: ConnectionId, line: &[u8]) -> Flow {
        match self.greet(line) {
            Ok(id) => {
                self.replies
                    .extend_from_slice(crate::cluster::welcome().as_bytes());
                Flow::Link(id)
            }
            Err(refusal) => {
                if let Some(connection) = self.connections.get_mut(id) {
                    let address = connection.stream.peer_address();
                    self.complain_of_link(address, &refusal.text);
                }
                self.answer(&Reply::Refused {
                    operation: None,
                    key: b"-",
                    code: refusal.code.as_str(),
                    tag: None,
                    text: &refusal.text,
                });
                Flow::Close
            }
        }
    }

    /// Whether this first line of a connection that is not taken yet would make it a link, and if not why.
    pub(crate) fn check_link(
        &mut self,
        address: SocketAddr,
        line: &[u8],
    ) -> Result<(), (Code, String)> {
        let checked = self.check_greeting(line).map(|_| ());
        checked.map_err(|refusal| {
            self.complain_of_link(address, &refusal.text);
            (refusal.code, refusal.text)
        })
    }

    /// Who wants to make a link, if it may: the greeting, and the other node's list.
    fn check_greeting<'a>(&mut self, line: &'a [u8]) -> Result<(Greeting<'a>, Members), Refusal> {
        let Some(cluster) = &mut self.cluster else {
            return Err(Refusal {
                code: Code::Syntax,
                text: "this node has no peers".to_owned(),
            });
        };
        let greeting = Greeting::parse(line)?;
        let knows_secret = match (&cluster.secret, greeting.secret) {
            (None, _) => true,
            (Some(secret), Some(given)) => secret.matches(&given.decode()),
            (Some(_), None) => false,
        };
        if !knows_secret {
            return Err(Refusal {
                code: Code::Auth,
                text: "wrong or missing cluster secret".to_owned(),
            });
        }
        let members = greeting.members(cluster.member.members())?;
        if cluster.peer_mut(members.own()).is_none() {
            return Err(not_a_peer(greeting.node));
        }
        Ok((greeting, members))
    }

    fn greet(&mut self, line: &[u8]) -> Result<LinkId, Refusal> {
        let (greeting, members) = self.check_greeting(line)?;
        let Some(cluster) = &mut self.cluster else {
            return Err(not_a_peer(greeting.node));
        };
        let slot = members.own();
        let number = cluster.new_link();
        let own = cluster.member.members().field();
        let Some(peer) = cluster.peer_mut(slot) else {
            return Err(not_a_peer(greeting.node));
        };
        if members.field() != own && peer.incoming.is_none() {
            let (node, list) = (greeting.node, greeting.list);
            now_and_then!(
                warn,
                "the lists of nodes differ: {own} here, {list} on {node}"
            );
        }
        greeting.public.clone_into(&mut peer.public);
        let before = peer.incoming.replace(Incoming {
            number,
            task: None,
            spoke: false,
        });
        // What the old link still holds was sent before what the new one brings.
        if let Some(task) = before.and_then(|before| before.task) {
            task.abort();
        }
        Ok(LinkId { slot, number })
    }

    /// Says that a link was refused; who was refused tries again and again.
    fn complain_of_link(&mut self, address: SocketAddr, text: &str) {
        self.counters.not_admitted += 1;
        now_and_then!(error, "refused a link from {address}: {text}");
    }

    /// Whether this is the link that its peer speaks over now. Remembers the task that reads it.
    fn begin_link(&mut self, id: LinkId, task: tokio::task::AbortHandle) -> bool {
        let peer = self
            .cluster
            .as_mut()
            .and_then(|cluster| cluster.peer_mut(id.slot));
        let incoming = peer.and_then(|peer| peer.incoming.as_mut());
        match incoming {
            Some(incoming) if incoming.number == id.number => {
                incoming.task = Some(task);
                true
            }
            _ => false,
        }
    }

    /// Handles the whole frames at the beginning of `bytes`: how many bytes that were, or why the link
    /// cannot be used any more.
    fn take_frames(&mut self, id: LinkId, bytes: &[u8]) -> Result<usize, String> {
        self.look_at_clock(now());
        let mut used = 0;
        loop {
            match split_frame(&bytes[used..]) {
                Ok(Unit::Whole { body, used: length }) => {
                    self.take_frame(id, body)?;
                    used += length;
                }
                Ok(Unit::Partial) => break,
                Err(error) => return Err(error.to_string()),
            }
        }
        self.settle_cluster();
        Ok(used)
    }

    fn take_frame(&mut self, id: LinkId, body: &[u8]) -> Result<(), String> {
        let Some(cluster) = &mut self.cluster else {
            return Err("this node has no peers".to_owned());
        };
        let incoming = cluster
            .peer_mut(id.slot)
            .and_then(|peer| peer.incoming.as_mut());
        let Some(incoming) = incoming.filter(|incoming| incoming.number == id.number) else {
            return Err("the peer has made another link".to_owned());
        };
        let first = !std::mem::replace(&mut incoming.spoke, true);
        let now = super::present();
        if first {
            let event = Event::Relinked { peer: id.slot };
            cluster.member.handle(now, event, &mut self.engine);
        }
        cluster
            .member
            .handle_frame(now, id.slot, body, &mut self.engine)
            .map_err(|error| error.to_string())
    }

    fn incoming_ended(&mut self, id: LinkId, why: &str) {
        let Some(peer) = self
            .cluster
            .as_mut()
            .and_then(|cluster| cluster.peer_mut(id.slot))
        else {
            return;
        };
        if peer
            .incoming
            .as_ref()
            .is_some_and(|incoming| incoming.number == id.number)
        {
            peer.incoming = None;
            peer.lost(why);
            self.cluster_event(Event::Doubted { peer: id.slot });
        }
    }
}

/// Why a link is refused.
struct Refusal {
    code: Code,
    text: String,
}

fn not_a_peer(node: &str) -> Refusal {
    Refusal {
        code: Code::Syntax,
        text: format!("{node} is not a peer of this node"),
    }
}

impl From<GreetingError> for Refusal {
    fn from(error: GreetingError) -> Refusal {
        Refusal {
            code: error.code(),
            text: error.to_string(),
        }
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.slot.fmt(f)
    }
}

/// Reads frames until the link ends. `held` was read behind the first line.
pub(crate) fn receive(node: Shared, id: LinkId, stream: Stream, held: Vec<u8>) {
    let shared = node.clone();
    let task = tokio::spawn(async move {
        let why = read(&node, id, stream, held).await;
        node.lock().incoming_ended(id, &why);
    });
    let handle = task.abort_handle();
    if !shared.lock().begin_link(id, handle) {
        task.abort();
    }
}

async fn read(node: &Shared, id: LinkId, mut stream: Stream, held: Vec<u8>) -> String {
    let mut bytes = held;
    let mut buffer = vec![0; READ_BYTES];
    loop {
        // What a bug has left behind cannot be trusted with anybody's lock, so the node ends with it.
        let taken = catch_unwind(AssertUnwindSafe(|| node.lock().take_frames(id, &bytes)));
        match taken {
            Ok(Ok(used)) => drop(bytes.drain(..used)),
            Ok(Err(why)) => return why,
            Err(panic) => {
                let text = panic_text(&*panic);
                node.lock()
                    .fail(format!("a frame of a peer led to a panic: {text}"));
                return "a panic".to_owned();
            }
        }
        match poll_fn(|cx| stream.poll_read(cx, &mut buffer)).await {
            Ok(0) => return "closed by the other node".to_owned(),
            Ok(count) => {
                bytes.extend_from_slice(&buffer[..count]);
                if count == buffer.len() {
                    // There is more; clients have their turn in between.
                    tokio::task::yield_now().await;
                }
            }
            Err(error) => return error.to_string(),
        }
    }
}
