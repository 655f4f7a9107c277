//! The end of a connection that is no part of the node any more: replies that were due are still
//! written, then it is closed without cutting them off.

use super::connection::Connection;
use super::counters::Limit;
use super::serve::crowd;
use super::state::{Node, Shared, now};
use super::unread::Load;
use crate::protocol::Role;
use std::future::poll_fn;
use std::io;
use std::time::Duration;

/// How long bytes that come too late are read and thrown away. Closing earlier would make the
/// client's system drop replies that the client has not read yet.
const LINGER: Duration = Duration::from_secs(1);
/// The same for a node that is about to stop and should not keep its operator waiting.
const LINGER_WHEN_LEAVING: Duration = Duration::from_millis(100);

/// Sends what is left, and closes. `more_may_come` says that the client has not ended its side.
pub(crate) async fn farewell(node: Shared, mut connection: Box<Connection>, more_may_come: bool) {
    see_off(&node, &mut connection, more_may_come).await;
    node.lock().close(connection);
}

/// Sends what is left, and waits until the client can have read it.
pub(crate) async fn see_off(node: &Shared, connection: &mut Connection, more_may_come: bool) {
    if send_rest(node, connection).await.is_err() {
        let address = connection.stream.peer_address();
        undelivered(node, connection, &address.to_string());
        return;
    }
    let ended = poll_fn(|cx| connection.stream.poll_shutdown(cx)).await;
    if ended.is_ok() && more_may_come {
        let linger = match node.lock().role {
            Role::Leaving => LINGER_WHEN_LEAVING,
            Role::Starting | Role::Standby | Role::Active => LINGER,
        };
        // Over time is as good as over: what was due has left.
        let _ = tokio::time::timeout(linger, discard(connection)).await;
    }
}

async fn send_rest(node: &Shared, connection: &mut Connection) -> io::Result<()> {
    let mut spare = Vec::new();
    loop {
        while !connection.outbox.is_empty() {
            poll_fn(|cx| connection.stream.poll_writable(cx)).await?;
            connection
                .outbox
                .flush(&mut connection.stream, &mut spare)?;
            if !connection.outbox.is_empty()
                && let Some(listing) = &mut connection.listing
            {
                listing.pause();
            }
        }
        if connection
            .user
            .as_ref()
            .is_some_and(|user| user.is_retired())
        {
            // Nobody says any more what it may see now, so it has to ask again.
            connection.listing = None;
        }
        let Some(listing) = &mut connection.listing else {
            return Ok(());
        };
        let lines = connection.outbox.lines(&mut spare);
        {
            let mut node = node.lock();
            let crowd = crowd(node.yielding);
            let Node {
                engine, counters, ..
            } = &mut *node;
            if listing.append(engine, counters, now(), lines, crowd) {
                connection.listing = None;
            }
        }
        node.lock().weigh_parted(connection)?;
        tokio::task::yield_now().await;
    }
}

async fn discard(connection: &mut Connection) {
    let mut buffer = [0; 1024];
    while poll_fn(|cx| connection.stream.poll_read(cx, &mut buffer))
        .await
        .is_ok_and(|count| count > 0)
    {}
}

impl Node {
    /// Rows for a client that reads slowly count as what others leave unread.
    fn weigh_parted(&mut self, connection: &mut Connection) -> io::Result<()> {
        match self.unread.weigh(connection, self.open) {
            Load::MoreThanItsShare => {
                self.counters.reached(Limit::UnreadInAll);
                Err(io::ErrorKind::OutOfMemory.into())
            }
            // Rows are made in pieces, so they are never more than one client may leave.
            Load::Fine | Load::TooMuch => Ok(()),
        }
    }
}

/// Grants whose replies could not be written after all go to the next in the queue.
fn undelivered(node: &Shared, connection: &Connection, address: &str) {
    let mut node = node.lock();
    let now = now();
    let grants = connection.outbox.unsent_grants();
    let grants: Vec<_> = grants
        .filter_map(|(key, token)| node.engine.grant_of(key, token))
        .collect();
    node.engine.undelivered(now, address, &grants);
    node.deliver();
    node.flush_others(now);
    node.rearm();
}
