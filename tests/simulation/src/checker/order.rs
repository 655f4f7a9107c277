//! First come, first served: the queues of each active node as they have to be, beside the queues as
//! they are. A node that takes over begins with the queues of the node that it has copied.

use fairlock::protocol::ClientId;
use std::collections::BTreeMap;

/// Who asked, and the number of the request.
pub(crate) type Asked = (ClientId, u64);

/// One who waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    asked: Asked,
    /// The connection over which it waits; none while it is broken or was never here.
    over: Option<usize>,
    /// The end of its wait by this node's clock, if this node was the first to read it.
    until: Option<u64>,
    /// Whether its place is known.
    placed: bool,
}

/// The queues of all nodes and keys, the first to be served first.
#[derive(Debug, Default)]
pub(crate) struct Order(BTreeMap<(usize, u8), Vec<Waiting>>);

impl Order {
    /// A node becomes active with what it has copied of another one, if of any. Where that may be long
    /// ago, not `exact`, the places say little.
    pub(crate) fn begin(&mut self, node: usize, copied: Option<usize>, exact: bool) {
        let queues: Vec<(u8, Vec<Waiting>)> = self
            .0
            .iter()
            .filter(|((of, _), _)| Some(*of) == copied)
            .map(|((_, key), queue)| (*key, queue.clone()))
            .collect();
        self.0.retain(|(of, _), _| *of != node);
        for (key, mut queue) in queues {
            for waiting in &mut queue {
                waiting.over = None;
                waiting.until = None;
                waiting.placed &= exact;
            }
            self.0.insert((node, key), queue);
        }
    }

    /// A request waits at a node. `new`: the node had not known it.
    pub(crate) fn queued(
        &mut self,
        (node, key): (usize, u8),
        asked: Asked,
        connection: usize,
        new: bool,
        until: Option<u64>,
    ) {
        let queue = self.0.entry((node, key)).or_default();
        let place = queue.iter().position(|waiting| waiting.asked == asked);
        match place {
            Some(place) if !new => {
                queue[place].over = Some(connection);
                return;
            }
            Some(place) => {
                queue.remove(place);
            }
            None => {}
        }
        queue.push(Waiting {
            asked,
            over: Some(connection),
            until: until.filter(|_| new),
            placed: new,
        });
    }

    /// A request waits at this node no longer.
    pub(crate) fn gone(&mut self, at: (usize, u8), asked: Asked) {
        if let Some(queue) = self.0.get_mut(&at) {
            queue.retain(|waiting| waiting.asked != asked);
        }
    }

    /// A request is told to go elsewhere, where it may have its place.
    pub(crate) fn moved(&mut self, at: (usize, u8), asked: Asked) {
        for waiting in self.0.get_mut(&at).into_iter().flatten() {
            if waiting.asked == asked {
                waiting.over = None;
            }
        }
    }

    /// A node has lost a connection.
    pub(crate) fn broken(&mut self, node: usize, connection: usize) {
        for waiting in self.at(node) {
            if waiting.over == Some(connection) {
                waiting.over = None;
            }
        }
    }

    /// A node has lost all connections, or serves no longer.
    pub(crate) fn left(&mut self, node: usize) {
        for waiting in self.at(node) {
            waiting.over = None;
        }
    }

    fn at(&mut self, node: usize) -> impl Iterator<Item = &mut Waiting> {
        let here = self.0.iter_mut().filter(move |((of, _), _)| *of == node);
        here.flat_map(|(_, queue)| queue)
    }

    /// A node grants anew to a request, which then waits no longer. `known`: it had waited there.
    pub(crate) fn granted(
        &mut self,
        at: (usize, u8),
        asked: Asked,
        known: bool,
    ) -> Result<(), String> {
        let Some(queue) = self.0.get_mut(&at) else {
            return Ok(());
        };
        let place = queue.iter().position(|waiting| waiting.asked == asked);
        let unsure = place.map_or(known, |place| !queue[place].placed);
        let before = &queue[..place.unwrap_or(queue.len())];
        let stayed = before
            .iter()
            .find(|waiting| waiting.over.is_some() && waiting.placed && !unsure);
        let result = match stayed {
            Some(stayed) => Err(format!(
                "node {} grants key {} to {}#{} before {}#{}, who came first and is there: {before:?}",
                at.0, at.1, asked.0, asked.1, stayed.asked.0, stayed.asked.1
            )),
            None => Ok(()),
        };
        if let Some(place) = place {
            queue.remove(place);
        }
        result
    }

    /// The end of a request's wait by the clock of the node, if that was the first to read it.
    pub(crate) fn until(&self, at: (usize, u8), asked: Asked) -> Option<u64> {
        let mut queue = self.0.get(&at)?.iter();
        queue.find(|waiting| waiting.asked == asked)?.until
    }

    /// A request that should have ended by `now` on this node and has not.
    pub(crate) fn overdue(&self, now: u64, node: usize) -> Option<(u8, u64)> {
        self.0.iter().find_map(|((of, key), queue)| {
            let overdue = queue.iter().find(|waiting| {
                waiting.over.is_some() && waiting.until.is_some_and(|until| until < now)
            });
            overdue
                .filter(|_| *of == node)
                .map(|waiting| (*key, waiting.asked.1))
        })
    }

    /// Whether nobody waits anywhere.
    pub(crate) fn is_empty(&self) -> bool {
        let mut all = self.0.values().flatten();
        all.all(|waiting| waiting.over.is_none())
    }
}
