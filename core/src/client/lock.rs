//! A held lock.

use super::acquire::OnLost;
use super::call::Call;
use super::instance::{Here, Instance};
use super::session::{Ask, Grant, LockId};
use super::wire_lease;
use crate::error::{Error, LostReason};
use crate::protocol::{Key, Token};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A held lock. Not bound to a thread, a task or a connection: who has this object holds the lock.
///
/// Dropping it releases the lock in the background, without blocking; [`release`](Self::release) says whether that
/// worked. A lock can be lost (its lease ends, an operator takes it, the client is closed):
/// [`is_held`](Self::is_held), [`lost`](Self::lost) and [`on_lost`](Self::on_lost) tell so before anybody
/// else can get it. What protects the resource itself is the fencing [`token`](Self::token).
#[must_use = "the lock is released when this is dropped"]
pub struct Lock {
    inner: Arc<LockInner>,
}

/// The lock itself, alive while the [`Lock`] or one of its calls is.
pub(crate) struct LockInner {
    here: Here,
    id: LockId,
    key: Key,
    /// The key as the user wrote it where its spelling differs.
    decoded: Option<Box<[u8]>>,
    token: Token,
}

impl LockInner {
    pub(crate) fn here(&self) -> &Here {
        &self.here
    }

    /// Where the lock lives, unless this process was forked from the one that holds it.
    pub(crate) fn instance(&self) -> Result<&Arc<Instance>, Error> {
        let instance = self.here.instance();
        if instance.is_of_this_process() {
            Ok(instance)
        } else {
            Err(Error::forked())
        }
    }
}

impl Drop for LockInner {
    fn drop(&mut self) {
        if let Ok(instance) = self.instance() {
            instance.drop_lock(self.id);
        }
    }
}

impl Lock {
    pub(crate) fn new(here: Here, key: Key, grant: Grant) -> Lock {
        let decoded = (key.is_escaped()).then(|| key.decode().into_boxed_slice());
        Lock {
            inner: Arc::new(LockInner {
                here,
                id: grant.lock,
                key,
                decoded,
                token: grant.token,
            }),
        }
    }

    /// What is locked.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        match &self.inner.decoded {
            Some(key) => key,
            None => self.inner.key.spelling(),
        }
    }

    /// The fencing token: greater than that of every grant before. Give it to the protected resource
    /// with each write.
    #[must_use]
    pub fn token(&self) -> Token {
        self.inner.token
    }

    /// The lease by which the lock ends: that of the acquire, or of the latest [`keep_for`](Self::keep_for) that has put its end off.
    #[must_use]
    pub fn lease(&self) -> Duration {
        match self.inner.instance() {
            Ok(instance) => instance.lock_view(self.inner.id).lease,
            Err(_) => Duration::ZERO,
        }
    }

    /// How long the lock is held at least, if nobody takes it: never too long, and counted by a clock
    /// that goes on while the machine sleeps. Zero if it is lost or released.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        match self.inner.instance() {
            Ok(instance) => instance.lock_view(self.inner.id).remaining,
            Err(_) => Duration::ZERO,
        }
    }

    /// Whether the lock is held as far as this client knows. False in a forked process.
    #[must_use]
    pub fn is_held(&self) -> bool {
        match self.inner.instance() {
            Ok(instance) => instance.lock_view(self.inner.id).held,
            Err(_) => false,
        }
    }

    /// How the lock was lost, if it was.
    #[must_use]
    pub fn lost_reason(&self) -> Option<LostReason> {
        let instance = self.inner.instance().ok()?;
        instance.lock_view(self.inner.id).lost
    }

    /// Renews the lock: the lease ends no earlier than its length from now. Sent again until it is
    /// confirmed or only an eighth of the lease is left.
    ///
    /// # Errors
    /// [`LockLost`](crate::ErrorKind::LockLost), [`Forked`](crate::ErrorKind::Forked).
    pub fn keep(&self) -> Call<()> {
        self.keep_as(Ok(None))
    }

    /// Renews the lock with another lease. A lock never ends earlier by that.
    ///
    /// # Errors
    /// As [`keep`](Self::keep), and [`InvalidArgument`](crate::ErrorKind::InvalidArgument).
    pub fn keep_for(&self, lease: Duration) -> Call<()> {
        self.keep_as(wire_lease(lease).map(Some))
    }

    fn keep_as(&self, lease: Result<Option<crate::protocol::Millis>, Error>) -> Call<()> {
        let lock = self.inner.id;
        Call::of_lock(
            &self.inner,
            lease.map(|lease| Ask::KeepLock { lock, lease }),
        )
    }

    /// Releases the lock, and says whether it was still held: false means that it had been lost
    /// before. Sent every 200 ms over any connection until a server confirms it. Cancelling the call does
    /// not stop it. A lock that is released already stays so: true.
    ///
    /// # Errors
    /// [`ReleaseUnconfirmed`](crate::ErrorKind::ReleaseUnconfirmed) if no server answered for 5 s: only
    /// the lease will free the lock, or another try of this. [`Forked`](crate::ErrorKind::Forked).
    pub fn release(&self) -> Call<bool> {
        let lock = self.inner.id;
        Call::of_lock(&self.inner, Ok(Ask::ReleaseLock { lock }))
    }

    /// Waits until the lock is lost, for ever if it is released instead.
    pub fn lost(&self) -> Lost<'_> {
        Lost {
            lock: self,
            watcher: None,
        }
    }

    /// Calls `told` once when the lock is lost, on the client's own thread or on one that is just calling
    /// this client, or on this one and at once if it has been lost. Never if the lock is released before. It must not block and must not panic.
    pub fn on_lost(&self, told: impl FnOnce(LostReason) + Send + 'static) {
        if let Ok(instance) = self.inner.instance() {
            let told: OnLost = Box::new(told);
            instance.on_lost(self.inner.id, told);
        }
    }

    /// Gives the object up without releasing the lock: it is held until its lease ends or somebody
    /// releases it by its token. It is no longer renewed.
    pub fn leave_held(self) -> Token {
        if let Ok(instance) = self.inner.instance() {
            instance.leave_held(self.inner.id);
        }
        self.inner.token
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("key", &String::from_utf8_lossy(self.key()))
            .field("token", &self.inner.token)
            .finish_non_exhaustive()
    }
}

/// Ready when the lock is lost. Made by [`Lock::lost`].
#[must_use = "futures do nothing unless polled"]
pub struct Lost<'a> {
    lock: &'a Lock,
    watcher: Option<u64>,
}

impl Future for Lost<'_> {
    type Output = LostReason;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<LostReason> {
        let lock = &self.lock.inner;
        match lock.instance() {
            Ok(instance) => instance.poll_lost(lock.id, &mut self.watcher, context.waker()),
            Err(_) => Poll::Pending,
        }
    }
}

impl Drop for Lost<'_> {
    fn drop(&mut self) {
        let lock = &self.lock.inner;
        if let Some(watcher) = self.watcher
            && let Ok(instance) = lock.instance()
        {
            instance.forget_watcher(lock.id, watcher);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Lock;
    use crate::client::blocking;

    #[test]
    fn the_compiler_warns_who_lets_a_lock_go_at_once() {
        #[expect(unused_must_use, reason = "the warning is what this proves")]
        let _forgets = |lock: Lock| {
            std::convert::identity(lock);
        };
        #[expect(unused_must_use, reason = "the warning is what this proves")]
        let _forgets = |lock: blocking::Lock| {
            std::convert::identity(lock);
        };
    }
}
