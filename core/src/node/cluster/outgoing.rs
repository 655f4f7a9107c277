//! The link to a peer: made afresh when the member asks for it, then frames are sent over it.
//!
//! A link is made before the one in use is given up, so that a peer whose old link is fine never sees
//! it end. Nothing is read from a link but its end; what the peer says comes over its own.

use super::dial::{Failure, dial};
use super::{Cluster, Node, Outgoing, Shared, Slot};
use crate::cluster::Event;
use crate::engine::Time;
use crate::node::log::now_and_then;
use crate::node::state::now;
use crate::node::stream::Stream;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use tokio::sync::Notify;

impl Node {
    /// Makes a link to a peer, unless one is being made.
    pub(super) fn connect_to(&mut self, to: Slot) {
        let Some(node) = self.shared() else { return };
        let Some(cluster) = &mut self.cluster else {
            return;
        };
        let (greeting, times) = (cluster.greeting.clone(), cluster.times);
        let connector = cluster.connector.clone();
        let number = cluster.new_link();
        let Some(peer) = cluster.peer_mut(to) else {
            return;
        };
        if peer.dial.as_ref().is_some_and(|dial| !dial.is_finished()) {
            return;
        }
        let address = peer.address.clone();
        let task = tokio::spawn(async move {
            match dial(
                &address,
                connector.as_deref(),
                &greeting,
                times.retry,
                times.limit,
            )
            .await
            {
                Ok(stream) => {
                    let news = Arc::new(Notify::new());
                    if node.lock().linked(to, number, Arc::clone(&news)) {
                        let end = send(&node, to, stream, &news).await;
                        node.lock().link_lost(to, number, &end);
                    }
                }
                Err(failure) => node.lock().not_linked(to, failure),
            }
        });
        peer.dial = Some(task.abort_handle());
    }

    /// A link has been made and takes the place of the one before. False if nobody wants it.
    fn linked(&mut self, to: Slot, number: u64, news: Arc<Notify>) -> bool {
        let Some(peer) = self
            .cluster
            .as_mut()
            .and_then(|cluster| cluster.peer_mut(to))
        else {
            return false;
        };
        let Some(task) = peer.dial.take() else {
            return false;
        };
        if peer.trouble.take().is_some() {
            now_and_then!(info, "the link with {} has been made", peer.address);
        }
        let before = peer.outgoing.replace(Outgoing { number, task, news });
        if let Some(before) = before {
            before.task.abort();
        }
        self.cluster_event(Event::Connected { peer: to });
        true
    }

    fn not_linked(&mut self, to: Slot, failure: Failure) {
        let Some(peer) = self
            .cluster
            .as_mut()
            .and_then(|cluster| cluster.peer_mut(to))
        else {
            return;
        };
        peer.dial = None;
        match failure {
            Failure::Refused => {
                // Nobody listens there, so a link that was not seen to end has ended too.
                if let Some(outgoing) = peer.outgoing.take() {
                    outgoing.task.abort();
                }
                self.cluster_event(Event::Refused { peer: to });
            }
            Failure::CutShort => self.cluster_event(Event::CutShort { peer: to }),
            Failure::Silent => {}
            Failure::NotFound(text) | Failure::NoNode(text) => {
                if peer.trouble.as_ref() != Some(&text) {
                    now_and_then!(warn, "no link with {}: {text}", peer.address);
                    peer.trouble = Some(text);
                }
            }
            Failure::Rejected(text) => {
                if peer.trouble.as_ref() != Some(&text) {
                    now_and_then!(
                        error,
                        "{} does not accept this node as its peer: {text}; while it is there, a node that has no complete copy does not become active",
                        peer.address
                    );
                    peer.trouble = Some(text);
                }
                self.cluster_event(Event::Rejected { peer: to });
            }
        }
    }

    fn link_lost(&mut self, to: Slot, number: u64, end: &io::Error) {
        let Some(peer) = self
            .cluster
            .as_mut()
            .and_then(|cluster| cluster.peer_mut(to))
        else {
            return;
        };
        if peer
            .outgoing
            .as_ref()
            .is_none_or(|link| link.number != number)
        {
            return;
        }
        peer.outgoing = None;
        peer.lost(&end.to_string());
        self.cluster_event(Event::Lost { peer: to });
    }

    /// The next frames for a peer; changes that wait are made into frames before.
    fn frames_for(&mut self, to: Slot, into: &mut Vec<u8>) {
        self.write_journal(now());
        if let Some(cluster) = &mut self.cluster {
            let now = super::present();
            if self.engine.changes_waiting() > 0 {
                cluster.told_changes = now.time;
            }
            cluster.replicate(now, &mut self.engine);
            cluster.member.take_frames(to, into);
            // What was made for the others is theirs to send.
            cluster.wake_links(false);
            self.settle_outputs();
        }
    }

    /// Whether nobody but the standbys is to hear of what has happened in this step, so that the journal hears of it together
    /// with what comes before they do.
    #[inline]
    pub(in crate::node) fn leaves_all_to_links(&self) -> bool {
        self.touched.is_empty() && self.replies.is_empty() && self.waits_for_links()
    }

    fn waits_for_links(&self) -> bool {
        let is_linked =
            |cluster: &Cluster| cluster.peers.iter().any(|peer| peer.outgoing.is_some());
        self.settings.sync_standbys > 0
            && self.engine.changes_waiting() > 0
            && self.cluster.as_ref().is_some_and(is_linked)
    }

    /// Sees to it that the changes that wait are told: now, or at the moment that is returned.
    pub(crate) fn send_changes(&mut self) -> Option<Time> {
        let cluster = self.cluster.as_mut()?;
        let due = cluster.told_changes.after(cluster.collect);
        if due > cluster.looked {
            return Some(due);
        }
        if cluster.peers.iter().any(|peer| peer.outgoing.is_some()) {
            cluster.wake_links(true);
        } else {
            // Nobody hears of them, but the member remembers what it may have to tell later.
            cluster.told_changes = cluster.looked;
            cluster.replicate(super::present(), &mut self.engine);
            self.settle_outputs();
        }
        None
    }

    /// Telling changes is a moment at which the roles look at the time, too.
    fn settle_outputs(&mut self) {
        let outputs = |cluster: &Cluster| cluster.member.has_outputs();
        if self.cluster.as_ref().is_some_and(outputs) {
            self.settle_cluster();
        }
    }
}

/// Sends frames as they come up, until the link ends.
async fn send(node: &Shared, to: Slot, mut stream: Stream, news: &Notify) -> io::Error {
    let mut frames = Vec::new();
    loop {
        frames.clear();
        if frames.capacity() > KEPT_BYTES {
            frames = Vec::new();
        }
        node.lock().frames_for(to, &mut frames);
        if frames.is_empty() {
            tokio::select! {
                () = news.notified() => {}
                end = ended(&mut stream) => return end,
            }
        } else if let Err(error) = write(&mut stream, &frames).await {
            return error;
        } else if frames.len() > MUCH {
            // A copy of the whole state is made as fast as the peer takes it; clients have their turn in
            // between.
            tokio::task::yield_now().await;
        }
    }
}

/// After so many bytes others come first.
const MUCH: usize = 64 << 10;

/// A buffer larger than this is given back once it is sent.
const KEPT_BYTES: usize = 1 << 20;

async fn write(stream: &mut Stream, frames: &[u8]) -> io::Result<()> {
    let mut sent = 0;
    while sent < frames.len() {
        match stream.write(&frames[sent..])? {
            0 => poll_fn(|cx| stream.poll_writable(cx)).await?,
            count => sent += count,
        }
    }
    Ok(())
}

/// Waits for the end of a link. The other side says nothing over it.
async fn ended(stream: &mut Stream) -> io::Error {
    let mut buffer = [0; 64];
    match poll_fn(|cx| stream.poll_read(cx, &mut buffer)).await {
        Ok(0) => io::Error::new(io::ErrorKind::UnexpectedEof, "closed by the other node"),
        Ok(_) => io::Error::new(
            io::ErrorKind::InvalidData,
            "the other node said something over a link that is not its own",
        ),
        Err(error) => error,
    }
}
